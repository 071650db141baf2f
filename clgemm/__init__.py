"""Single-precision matrix products on any OpenCL device, NumPy-compatible.

`sgemm` follows BLAS and always runs on the device. `dot`, `matmul`, `inner`, `tensordot` and
`multi_dot` follow NumPy and choose the faster side, device or host. `accel` accelerates NumPy
itself.

Nothing is imported before it is needed, not even NumPy.
"""

import atexit
import sys
from typing import TYPE_CHECKING, Any

from clgemm.core.imports import after_import

if TYPE_CHECKING:
    from clgemm import accel
    from clgemm.blas import cgemm, dgemm, gemm, sgemm, ssyrk, zgemm
    from clgemm.contraction import einsum, matrix_power, matvec, multi_dot, vecdot, vecmat
    from clgemm.core.settings import precision
    from clgemm.explanation import explain
    from clgemm.hardware.choice import device, devices, get_device, get_devices, set_device
    from clgemm.hardware.device import Device
    from clgemm.info import show_config
    from clgemm.prepared import PreparedProduct, prepare
    from clgemm.products import dot, inner, matmul, tensordot
    from clgemm.runtime.kept_memory import release
    from clgemm.runtime.progress import progress
    from clgemm.transfer.resident import resident
    from clgemm.trials.warm import warmup
    from clgemm.tuning import tune

__version__ = "0.1.0"

# The module of each name; that of a package is the package itself.
_PLACES = {
    "Device": "hardware.device",
    "PreparedProduct": "prepared",
    "accel": "accel",
    "cgemm": "blas",
    "dgemm": "blas",
    "device": "hardware.choice",
    "devices": "hardware.choice",
    "dot": "products",
    "einsum": "contraction",
    "explain": "explanation",
    "gemm": "blas",
    "get_device": "hardware.choice",
    "get_devices": "hardware.choice",
    "inner": "products",
    "matmul": "products",
    "matrix_power": "contraction",
    "matvec": "contraction",
    "multi_dot": "contraction",
    "precision": "core.settings",
    "prepare": "prepared",
    "progress": "runtime.progress",
    "release": "runtime.kept_memory",
    "resident": "transfer.resident",
    "set_device": "hardware.choice",
    "sgemm": "blas",
    "show_config": "info",
    "ssyrk": "blas",
    "tensordot": "products",
    "tune": "tuning",
    "vecdot": "contraction",
    "vecmat": "contraction",
    "warmup": "trials.warm",
    "zgemm": "blas",
}


def __getattr__(name: str) -> Any:
    """Import what a name stands for, at its first use."""
    if (place := _PLACES.get(name)) is None:
        raise AttributeError(f"module 'clgemm' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"clgemm.{place}")
    value = globals()[name] = module if place == name else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})


def _register() -> None:
    # Without `forks`, nothing would notice that the process forks.
    from clgemm.hardware import forks, runtimes  # noqa: F401

    runtimes.register()
    runtimes.find_space()


def _stop_threads() -> None:
    if (process_exit := sys.modules.get("clgemm.runtime.process_exit")) is not None:
        process_exit.stop()


# Before programs, and `clgemm.accel`, register functions of their own: it runs after those.
atexit.register(_stop_threads)
# OpenCL's loader reads the list of runtimes once, when a process first lists platforms: it must be
# complete before that, also if the program itself does it.
after_import("pyopencl", _register)

__all__ = [
    "Device",
    "PreparedProduct",
    "accel",
    "cgemm",
    "device",
    "devices",
    "dgemm",
    "dot",
    "einsum",
    "explain",
    "gemm",
    "get_device",
    "get_devices",
    "inner",
    "matmul",
    "matrix_power",
    "matvec",
    "multi_dot",
    "precision",
    "prepare",
    "progress",
    "release",
    "resident",
    "set_device",
    "sgemm",
    "show_config",
    "ssyrk",
    "tensordot",
    "tune",
    "vecdot",
    "vecmat",
    "warmup",
    "zgemm",
]
