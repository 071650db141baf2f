"""GPUs that are not at hand, simulated: a CPU's runtime that reports what they report.

Contexts, builds and launches are the runtime's own, so kernels give results. What this cannot show
is how fast a device is, and what its own compiler does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyopencl as cl

COMPILED = ("gfx900", "gfx1030", "tgllp", "dg2")  # those of docs/offline_compile.py
GIB = 2**30
LOCAL, GLOBAL = (int(getattr(cl.device_local_mem_type, x)) for x in ("LOCAL", "GLOBAL"))
MEMORY = {"global_mem_size": 4 * GIB, "native_vector_width_float": 1}


def _gpu(name: str, vendor: str, platform: tuple[str, str], group: int, **more: Any) -> Any:
    """Return what a GPU reports, by default one that shares memory with the host.

    Parameters
    ----------
    platform : tuple of str
        Its name and version.
    group : int
        The largest work-group.
    """
    reported = {
        "name": name,
        "vendor": vendor,
        "platform": platform,
        "version": platform[1],
        "driver_version": "1",
        "type": int(cl.device_type.GPU),
        "local_mem_size": 2**15,
        "local_mem_type": LOCAL,
        "max_work_group_size": group,
        "max_work_item_sizes": [group] * 3,
        "max_mem_alloc_size": GIB,
        "host_unified_memory": True,
        "double_fp_config": 0,
    }
    return MEMORY | reported | more


# From public reports on GitHub: Apple M1, hashcat/hashcat#2976; Mali-G71, 96boards-hikey/linux#59;
# Adreno 650, xmrig/xmrig#2383; UHD Graphics, intel/compute-runtime#428; Radeon by Mesa,
# clearlinux/distribution#2758. The GeForce has compute capability 3.0, which has few registers.
APPLE = "Apple", "OpenCL 1.2 (May  8 2021 03:14:28)"
ARM = "ARM Platform", "OpenCL 2.0 v1.r9p0-01rel0"
QUALCOMM = "QUALCOMM Snapdragon(TM)", "OpenCL 2.0 QUALCOMM"
INTEL = "Intel(R) OpenCL HD Graphics", "OpenCL 3.0 "
NVIDIA = "NVIDIA CUDA", "OpenCL 1.2 CUDA 10.2"
FEATURES = ["__opencl_c_int64"]
OTHERS = (
    _gpu("Apple M1", "Apple", APPLE, 256, max_compute_units=8),
    _gpu(
        *("Mali-G71", "ARM", ARM, 384),
        max_compute_units=8,
        max_work_item_sizes=[256] * 3,
        local_mem_type=GLOBAL,
        native_vector_width_float=4,
    ),
    _gpu("QUALCOMM Adreno(TM)", "QUALCOMM", QUALCOMM, 1024, max_compute_units=3),
    _gpu(
        *("Intel(R) UHD Graphics [0x9bca]", "Intel(R) Corporation", INTEL, 256),
        max_compute_units=24,
        local_mem_size=2**16,
        double_fp_config=1,
        opencl_c_features=FEATURES,
    ),
    _gpu(
        *("GeForce GTX 680", "NVIDIA Corporation", NVIDIA, 1024),
        max_compute_units=8,
        max_work_item_sizes=[1024, 1024, 64],
        local_mem_size=3 * 2**14,
        max_mem_alloc_size=GIB // 2,
        global_mem_size=2 * GIB,
        host_unified_memory=False,
        double_fp_config=1,
        compute_capability_major_nv=3,
        compute_capability_minor_nv=0,
    ),
    _gpu(
        *("AMD Radeon Graphics (radeonsi, raphael_mendocino)", "AMD", ("rusticl", "OpenCL 3.0 ")),
        *(1024,),
        max_compute_units=1,
        local_mem_size=2**16,
        opencl_c_features=FEATURES,
    ),
)


# What a device reports only if it is new enough, or NVIDIA's or AMD's.
OPTIONAL = (
    "wavefront_width_amd",
    *("opencl_c_features", "svm_capabilities"),
    *("compute_capability_major_nv", "compute_capability_minor_nv"),
)


def devices() -> dict[str, dict[str, Any]]:
    """Return what each simulated device reports, by its name: text, numbers and lists of them."""
    script = importlib.import_module("offline_compile")
    found = {each["name"]: each for each in OTHERS}
    for target in script.TARGETS:
        if target.name in COMPILED:
            platform = target.reported["platform"]
            features = [each.name for each in target.reported["opencl_c_features"]]
            found[target.title] = MEMORY | target.reported
            found[target.title]["version"] += " "  # as OpenCL has it: a space precedes the rest
            found[target.title] |= {"platform": [platform.name, platform.version]}
            found[target.title] |= {"opencl_c_features": features}
    return found


def replacements(reported: dict[str, Any]) -> Iterator[tuple[type, str, property]]:
    """Yield a class of pyopencl, an attribute, and what takes its place, for a simulated device."""
    of_platform = dict(zip(("name", "version"), reported["platform"], strict=True))
    of_device = {x: reported[x] for x in reported if x != "platform"} | {
        x: [SimpleNamespace(name=name) for name in reported[x]]
        for x in ("opencl_c_features",)
        if x in reported
    }
    for kind, facts, more in ((cl.Device, of_device, OPTIONAL), (cl.Platform, of_platform, ())):
        for attribute in {*facts, *more}:
            yield kind, attribute, property(_reporter(facts, attribute))


def _reporter(facts: dict[str, Any], attribute: str) -> Callable[[Any], Any]:
    def report(_: Any) -> Any:
        try:
            return facts[attribute]
        except KeyError:
            raise cl.LogicError(f"clGetDeviceInfo failed: INVALID_VALUE ({attribute})") from None

    return report
