"""The host: its processor, and NumPy's BLAS and its threads in this process."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")
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


def has_avx512() -> bool:
    """Return whether this processor has AVX-512, as far as Linux reports it."""
    return "avx512f" in processor_facts().get("flags", "").split()


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
