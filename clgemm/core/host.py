"""The host: its processor, NumPy's BLAS and its threads in this process, and its GPUs' files."""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import sys
from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")
# On Linux, the beginnings of the names of GPUs that compute, in /dev and /dev/dri.
GPU_NODES = ("nvidia", "kfd", "render", "dxg")
# The environment variables that each BLAS reads; the first that is set counts.
VARIABLES = {
    "openblas": ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"),
    "mkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
    "blis": ("BLIS_NUM_THREADS", "OMP_NUM_THREADS"),
    "accelerate": ("VECLIB_MAXIMUM_THREADS",),
}


def blas_threads() -> int:
    """Return the number of threads that NumPy's BLAS uses now.

    threadpoolctl tells it. Without threadpoolctl, return what the environment sets, else the
    number of cores that this process may use.
    """
    pools = _pools()
    return max((pool.num_threads for pool in pools), default=0) or _from_environment()


@functools.cache
def processor_facts() -> dict[str, str]:
    """Return what Linux reports of the first processor, by name; empty on other systems."""
    try:
        with CPUINFO.open(encoding="utf-8", errors="replace") as file:
            lines = [line.partition(":") for line in itertools.takewhile(str.strip, file)]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in lines}


@functools.cache
def _pools() -> tuple[Any, ...]:
    """Return threadpoolctl's view of each BLAS in this process; empty without threadpoolctl."""
    importlib.import_module("numpy.linalg")  # loads NumPy's BLAS
    try:
        controller = importlib.import_module("threadpoolctl").ThreadpoolController
    except (ImportError, AttributeError):  # AttributeError: older than version 3
        return ()
    return tuple(controller().select(user_api="blas").lib_controllers)


@functools.cache
def _blas_name() -> str:
    import numpy as np

    built: Any = np.show_config("dicts")
    return str(built.get("Build Dependencies", {}).get("blas", {}).get("name", "")).lower()


def usable_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(getattr(os, "sched_getaffinity", lambda _: ())(0)) or os.cpu_count() or 1


def _from_environment() -> int:
    usable = usable_processors()
    known = [variables for blas, variables in VARIABLES.items() if blas in _blas_name()]
    for variable in known[0] if known else ("OMP_NUM_THREADS",):
        first = os.environ.get(variable, "").partition(",")[0].strip()
        if first.isdecimal() and int(first):
            return min(int(first), usable)
    return usable


@functools.cache
def blas_label() -> str:
    """Return what the host's times depend on: NumPy, its BLAS, the threads and the processor."""
    import numpy as np

    model = processor_facts().get("model name", "")
    cores, threads = usable_processors(), _from_environment()
    return f"NumPy {np.__version__}, {_blas_name()}, {threads} threads, {cores} cores of {model}"


def may_have_gpu() -> bool:
    """Return whether this machine may have a GPU, as far as can be seen at once."""
    return sys.platform != "linux" or bool(gpu_nodes())


def gpu_nodes() -> list[str]:
    """Return the names of the files by which Linux shows GPUs that compute."""
    names: list[str] = []
    for folder in ("/dev", "/dev/dri"):
        with contextlib.suppress(OSError):
            names += os.listdir(folder)  # noqa: PTH208 - quicker
    return sorted(name for name in names if name.startswith(GPU_NODES))
