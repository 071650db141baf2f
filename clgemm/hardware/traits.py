"""The limits and traits of a device, from what its driver reports and from what was measured.

What kernels and plans depend on is told by the names of platforms and vendors here alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyopencl as cl

from clgemm.core import costs
from clgemm.core.costs import CpuCosts
from clgemm.core.traits import LONGEST_US, MANY_CORES, MOST_SLOWER, Limits, Traits, Unit

if TYPE_CHECKING:
    from clgemm.hardware.device import Device

POCL, INTEL = "Portable Computing Language", "Intel(R) OpenCL"  # the beginnings of platform names
# With these features of OpenCL 3.0, a work-group sees what another one of the launch wrote.
SEEING_OTHERS = {"__opencl_c_atomic_order_acq_rel", "__opencl_c_atomic_scope_device"}
# Limits.persisting_cache_bytes of NVIDIA's GPUs by compute capability. OpenCL does not report the
# size of the second-level cache. Measured on an H200, whose cache has 60 MB.
PERSISTING_CACHE_BYTES = {(9, 0): 34_000_000}
# Limits.registers by a part of the vendor's name. OpenCL does not report them. AMD's have 256 at
# most, and few work-items then; Intel's have 128 where an instruction serves 8 work-items.
REGISTERS = {"AMD": 128, "Advanced Micro Devices": 128}
FEW_REGISTERS = 64  # of other GPUs, and of NVIDIA's up to `OLD_CAPABILITY`
OLD_CAPABILITY = (3, 0)
# Limits.unit of NVIDIA's GPUs: the least compute capability, KiB of local memory, most work-items.
# After the tables of NVIDIA's CUDA programming guide.
NVIDIA_UNITS = (
    *(((3, 0), 48, 2048), ((5, 0), 64, 2048), ((5, 2), 96, 2048), ((6, 0), 64, 2048)),
    *(((6, 1), 96, 2048), ((7, 5), 64, 1024), ((8, 0), 164, 2048), ((8, 6), 100, 1536)),
    *(((9, 0), 228, 2048), ((12, 0), 100, 1536)),
)
# The same of AMD's by the lanes of a wave: of GCN and CDNA, and of RDNA, where two of AMD's compute
# units are one of OpenCL's.
AMD_UNITS = {64: Unit(65536, 64 << 10, 2560, 64), 32: Unit(131072, 128 << 10, 2048, 32)}
# Intel's Xe cores. OpenCL counts their vector engines: 16, or 8 of twice the width, by names.
INTEL_UNIT = Unit(131072, 128 << 10, 2048, 16)
ENGINES, WIDE_ENGINES = 16, 8
HAS_WIDE_ENGINES = "Data Center GPU Max", "Arc B", "Arc(TM) B", "UHD Graphics"
# Intel's compiler takes 32 work-items an instruction for this GPU alone, which leaves each of them
# half of the registers: default kernels spill without this option of the compiler.
MANY_LANES, LARGE_REGISTERS = "Data Center GPU Max", "-cl-intel-256-GRF-per-thread"


def traits_of(device: Device) -> Traits:
    """Return the traits of a device. Its instructions are added when they are first needed."""
    d = device.cl_device
    return Traits(
        limits=device.limits,
        kind=device.kind,
        is_nvidia=is_nvidia(device.platform),
        capability=compute_capability(d),
        register_width=register_width(device),
        is_vector_compiler=device.platform.startswith((POCL, INTEL)),
        wants_fma=device.platform.startswith(INTEL),
        # Intel's runtime is its own vendor.
        is_amd=device.kind == "CPU" and "AMD" in f"{d.vendor} {d.name}",
        steals_work=device.platform.startswith(INTEL),
    )


def limits_of(d: cl.Device, kind: str, platform: str) -> Limits:
    """Return the limits of kernels on a device."""
    return Limits(
        local_memory_bytes=d.local_mem_size,
        work_group_size=min(d.max_work_group_size, d.max_work_item_sizes[0]),
        allocation_bytes=d.max_mem_alloc_size,
        compute_units=_compute_units(d, kind, platform),
        vector_width=max(1, d.native_vector_width_float) if kind == "CPU" else 1,
        fused_split_k=_sees_others(d, platform),
        asynchronous_copies=is_nvidia(platform) and compute_capability(d) >= (8, 0),
        byte_products=is_nvidia(platform) and compute_capability(d) >= (6, 1),
        matrix_products=is_nvidia(platform) and compute_capability(d) >= (8, 0),
        exact_tensors=is_nvidia(platform) and kind == "GPU" and compute_capability(d) == (9, 0),
        persisting_cache_bytes=PERSISTING_CACHE_BYTES.get(compute_capability(d), 0)
        if is_nvidia(platform)
        else 0,
        emulates_local_memory=kind != "CPU" and d.local_mem_type == cl.device_local_mem_type.GLOBAL,
        registers=_registers(d, platform) if kind != "CPU" else Limits.registers,
        unit=_unit(d, platform) if kind != "CPU" else Limits.unit,
        transposes_tiles=kind == "CPU" or is_nvidia(platform),
        build_options=(LARGE_REGISTERS,) if MANY_LANES in d.name else (),
        # The H200 and its like have no displays, and host arrays reach them in tiles.
        longest_us=LONGEST_US / MOST_SLOWER
        if kind == "GPU" and compute_capability(d) != (9, 0)
        else Limits.longest_us,
        cpu_costs=_known_cpu_costs(d, platform),
    )


def _registers(d: cl.Device, platform: str) -> int:
    if is_nvidia(platform):
        return Limits.registers if compute_capability(d) > OLD_CAPABILITY else FEW_REGISTERS
    return next((n for name, n in REGISTERS.items() if name in d.vendor), FEW_REGISTERS)


def _compute_units(d: cl.Device, kind: str, platform: str) -> int:
    if kind != "GPU" or not platform.startswith(INTEL):
        return int(d.max_compute_units)
    is_wide = any(name in d.name for name in HAS_WIDE_ENGINES)
    return max(1, d.max_compute_units // (WIDE_ENGINES if is_wide else ENGINES))


def _unit(d: cl.Device, platform: str) -> Unit:
    """Return what work-groups share on a compute unit; an H100's where that is not known."""
    if is_nvidia(platform):
        known = (each for each in NVIDIA_UNITS if each[0] <= compute_capability(d))
        _, kib, items = max(known, default=NVIDIA_UNITS[0])
        return Unit(local_bytes=kib << 10, items=items)
    if platform.startswith(INTEL):
        return INTEL_UNIT
    try:
        return AMD_UNITS.get(d.wavefront_width_amd, Limits.unit)
    except (cl.Error, AttributeError):  # not AMD's own driver
        return Limits.unit


def _known_cpu_costs(d: cl.Device, platform: str) -> CpuCosts:
    """Return the constants of the most similar CPU that is known."""
    has_many = d.max_compute_units >= MANY_CORES
    if platform.startswith(INTEL):
        return costs.INTEL_MANY_CORES if has_many else costs.INTEL
    if has_many:
        return costs.POCL_MANY_CORES
    return costs.POCL_3_0 if "PoCL 3.0" in platform else costs.POCL


def _sees_others(d: cl.Device, platform: str) -> bool:
    try:
        if is_nvidia(platform):  # not a feature of its OpenCL C, but PTX has it
            return "OpenCL 3" in platform and compute_capability(d) >= (7, 0)
        return {feature.name for feature in d.opencl_c_features} >= SEEING_OTHERS
    except (cl.Error, AttributeError):  # older than OpenCL 3.0
        return False


def is_nvidia(platform: str) -> bool:
    """Return whether a platform is NVIDIA's driver."""
    return "NVIDIA" in platform


def register_width(device: Device) -> int:
    """Return how many floats of a CPU's vector register the runtime's compiler uses."""
    width = min(device.limits.vector_width, 16)
    # PoCL 3.0 from PyPI has LLVM 14, which compiles for AMD's processors with AVX-512 as for older
    # ones. PoCL still reports the processor's own width.
    old = any(f"PoCL {version}" in device.platform for version in ("1.", "2.", "3.0"))
    return min(width, 8) if old and "AMD" in device.cl_device.vendor else width


def compute_capability(device: cl.Device) -> tuple[int, int]:
    """Return the compute capability of an NVIDIA GPU, or (0, 0) for other devices."""
    try:
        return device.compute_capability_major_nv, device.compute_capability_minor_nv
    except (cl.Error, AttributeError):
        return 0, 0
