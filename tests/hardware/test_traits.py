"""Tests of traits: what is known of a device before anything runs on it."""

from __future__ import annotations

from types import SimpleNamespace

import pyopencl as cl
import pytest

from clgemm.core.costs import INTEL, INTEL_MANY_CORES, POCL, POCL_3_0, POCL_MANY_CORES
from clgemm.core.traits import MANY_CORES, Limits, Unit
from clgemm.hardware.traits import limits_of, register_width, traits_of


@pytest.mark.parametrize(
    ("platform", "vendor", "width"),
    [
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.0-rc1", "AuthenticAMD", 8),
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.0-rc1", "GenuineIntel", 16),
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.1+debian", "AuthenticAMD", 16),
        ("Intel(R) OpenCL, OpenCL 3.1 LINUX", "AuthenticAMD", 16),
    ],
)
def test_an_old_compiler_does_not_use_all_of_a_new_processor(platform, vendor, width):
    """The register width is that of the compiled code, not that of the processor."""

    class Stand:
        pass

    device, device.limits, device.cl_device = Stand(), Stand(), Stand()
    device.platform, device.cl_device.vendor, device.limits.vector_width = platform, vendor, 16
    assert register_width(device) == width


@pytest.mark.parametrize(
    ("platform", "kind", "found"),
    [
        ("NVIDIA CUDA, OpenCL 3.0 CUDA 13.0.1", "GPU", (True, False, False)),
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.1+debian", "CPU", (False, True, False)),
        ("Intel(R) OpenCL, OpenCL 3.1 LINUX", "CPU", (False, True, True)),
        ("rusticl, OpenCL 3.0", "CPU", (False, False, False)),
    ],
)
def test_a_platforms_name_tells_what_its_driver_is_good_at(platform, kind, found):
    """Traits follow from the platform's name: NVIDIA, compilers for CPUs, and fma()."""
    cl_device = SimpleNamespace(
        vendor="V", name="N", compute_capability_major_nv=9, compute_capability_minor_nv=0
    )
    limits = Limits(2**15, 256, 2**30, MANY_CORES, 16 if kind == "CPU" else 1)
    device = SimpleNamespace(kind=kind, platform=platform, limits=limits, cl_device=cl_device)
    traits = traits_of(device)
    assert (traits.is_nvidia, traits.is_vector_compiler, traits.wants_fma) == found
    assert traits.steals_work == platform.startswith("Intel")
    assert traits.has_vectors == (kind == "CPU")
    assert traits.register_width == limits.vector_width
    assert traits.has_many_cores
    assert traits.capability == (9, 0)
    assert not traits.is_amd
    cl_device.name = "AMD EPYC"  # Intel's runtime names itself the vendor
    assert traits_of(device).is_amd == (kind == "CPU")


@pytest.mark.parametrize(
    ("platform", "vendor", "units", "costs"),
    [
        ("Intel(R) OpenCL, OpenCL 3.1 LINUX", "Intel(R) Corporation", 2, INTEL),
        ("Intel(R) OpenCL, OpenCL 3.1 LINUX", "Intel", MANY_CORES, INTEL_MANY_CORES),
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.0-rc2", "GenuineIntel", 2, POCL_3_0),
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.0-rc2", "AuthenticAMD", 2, POCL_3_0),
        ("Portable Computing Language, OpenCL 3.0 PoCL 3.1+debian", "GenuineIntel", 2, POCL),
        ("Portable Computing Language, PoCL 3.0", "GenuineIntel", MANY_CORES, POCL_MANY_CORES),
    ],
)
def test_expected_times_are_those_of_the_most_similar_processor(platform, vendor, units, costs):
    """The constants follow from the runtime, its version, the processor and its cores."""
    cl_device = SimpleNamespace(
        name="",
        vendor=vendor,
        max_compute_units=units,
        local_mem_size=2**15,
        max_work_group_size=4096,
        max_work_item_sizes=[4096] * 3,
        max_mem_alloc_size=2**30,
        native_vector_width_float=16,
        opencl_c_features=[],
    )
    assert limits_of(cl_device, "CPU", platform).cpu_costs is costs


@pytest.mark.parametrize(
    ("platform", "vendor", "capability", "registers"),
    [
        ("NVIDIA CUDA, OpenCL 3.0", "NVIDIA Corporation", (9, 0), 256),
        ("NVIDIA CUDA, OpenCL 3.0", "NVIDIA Corporation", (3, 5), 256),
        ("NVIDIA CUDA, OpenCL 1.2", "NVIDIA Corporation", (3, 0), 64),
        ("AMD Accelerated Parallel Processing", "Advanced Micro Devices, Inc.", (0, 0), 128),
        ("rusticl", "AMD", (0, 0), 128),
        ("Intel(R) OpenCL Graphics", "Intel(R) Corporation", (0, 0), 64),
        ("QUALCOMM Snapdragon(TM)", "QUALCOMM", (0, 0), 64),
    ],
)
def test_registers_follow_from_the_maker_of_a_gpu(platform, vendor, capability, registers):
    """OpenCL does not report registers: a GPU of an unknown maker is taken to have few."""
    cl_device = SimpleNamespace(
        name="",
        vendor=vendor,
        max_compute_units=4,
        local_mem_size=2**15,
        max_work_group_size=256,
        max_work_item_sizes=[256] * 3,
        max_mem_alloc_size=2**30,
        compute_capability_major_nv=capability[0],
        compute_capability_minor_nv=capability[1],
        opencl_c_features=[],
        local_mem_type=cl.device_local_mem_type.LOCAL,
    )
    limits = limits_of(cl_device, "GPU", platform)
    assert limits.registers == registers
    assert not limits.build_options
    cl_device.name = "Intel(R) Data Center GPU Max 1550"
    assert "-cl-intel-256-GRF-per-thread" in limits_of(cl_device, "GPU", platform).build_options
    assert not limits.emulates_local_memory
    cl_device.local_mem_type = cl.device_local_mem_type.GLOBAL
    assert limits_of(cl_device, "GPU", platform).emulates_local_memory


def _gpu(name="", units=4, **more):
    """Return a GPU that reports this."""
    facts = {
        "vendor": "V",
        "local_mem_size": 2**15,
        "max_work_group_size": 256,
        "max_work_item_sizes": [256] * 3,
        "max_mem_alloc_size": 2**30,
        "opencl_c_features": [],
        "local_mem_type": cl.device_local_mem_type.LOCAL,
    }
    return SimpleNamespace(name=name, max_compute_units=units, **facts | more)


@pytest.mark.parametrize(
    ("capability", "kib", "items"),
    [
        *(((2, 0), 48, 2048), ((5, 0), 64, 2048), ((7, 0), 96, 2048), ((7, 5), 64, 1024)),
        *(((8, 0), 164, 2048), ((8, 9), 100, 1536), ((9, 0), 228, 2048), ((10, 0), 228, 2048)),
    ],
)
def test_what_a_unit_of_nvidias_holds_follows_from_its_capability(capability, kib, items):
    """By the last known one that is not newer; an H100's is what limits have by default."""
    major, minor = capability
    device = _gpu(compute_capability_major_nv=major, compute_capability_minor_nv=minor)
    unit = limits_of(device, "GPU", "NVIDIA CUDA, OpenCL 3.0").unit
    assert unit == Unit(65536, kib << 10, items, 32)
    assert (unit == Limits.unit) == (kib == 228)


@pytest.mark.parametrize(("lanes", "local_kib"), [(64, 64), (32, 128), (None, 228)])
def test_what_a_unit_of_amds_holds_follows_from_the_lanes_of_a_wave(lanes, local_kib):
    """Other drivers than AMD's do not report these."""
    device = _gpu(**({"wavefront_width_amd": lanes} if lanes else {}))
    unit = limits_of(device, "GPU", "AMD Accelerated Parallel Processing").unit
    assert unit.local_bytes == local_kib << 10
    assert unit.lanes == (lanes or 32)


@pytest.mark.parametrize(
    ("name", "reported", "units"),
    [
        ("Intel(R) Iris(R) Xe Graphics", 96, 6),
        ("Intel(R) Arc(TM) A770 Graphics", 512, 32),
        ("Intel(R) Arc(TM) B580 Graphics", 160, 20),
        ("Intel(R) Data Center GPU Max 1550", 512, 64),
        ("Intel(R) UHD Graphics 630", 4, 1),
    ],
)
def test_several_engines_of_intels_are_a_unit(name, reported, units):
    """OpenCL counts vector engines, but local memory is of a whole core; not so of processors."""
    device = _gpu(name, reported)
    limits = limits_of(device, "GPU", "Intel(R) OpenCL Graphics, OpenCL 3.0")
    assert limits.compute_units == units
    assert limits.unit.local_bytes == 128 << 10
    assert not limits.transposes_tiles
    device.native_vector_width_float = 16
    assert limits_of(device, "CPU", "Intel(R) OpenCL, OpenCL 3.0").compute_units == reported
