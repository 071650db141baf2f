"""Start-up times: a new process's first call, and the overhead of a tiny call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["cache_variables", "cold_start", "made_folders", "overheads"]

SIZE = 1024  # m, n and k of the first product
# A script, because running a module of this package would import clgemm before the timer starts.
NEW_PROCESS = """
import json, sys, time
begin = time.perf_counter()
import numpy
numpy_s = time.perf_counter() - begin
if sys.argv[1] == "clgemm":
    import clgemm
import_s = time.perf_counter() - begin
from clgemm.bench.startup import first_calls
calls = first_calls(sys.argv[1], sys.argv[2:])
print(json.dumps({"import_numpy_s": numpy_s, "import_s": import_s, **calls}))
"""
TINY = (8, 64)
CALLS, ROUNDS = 200, 11


def cache_variables(folder: Path) -> dict[str, str]:
    """Return the variables that put all caches of compiled programs into a folder."""
    return {
        "CLGEMM_CACHE_DIR": str(folder / "clgemm"),
        "POCL_CACHE_DIR": str(folder / "pocl"),
        "CUDA_CACHE_PATH": str(folder / "cuda"),
        "cl_cache_dir": str(folder / "intel"),
        "NEO_CACHE_DIR": str(folder / "neo"),
        "MESA_SHADER_CACHE_DIR": str(folder / "mesa"),
        "XDG_CACHE_HOME": str(folder / "other"),  # pyopencl's cache
    }


def cold_start(
    identified: list[str], variables: Mapping[str, str], repeat: int
) -> dict[str, dict[str, float]]:
    """Time the first products of new processes, with empty and with warm caches on disk.

    Parameters
    ----------
    identified : list of str
        The device, as `clgemm.hardware.identity.identity` returns it.
    variables : mapping of str to str
        The processes' environment.
    repeat : int
        The number of processes of each kind, whose medians are returned.

    Returns
    -------
    dict
        ``"empty"``, ``"warm"`` and ``"NumPy"``. Each has ``import_s``, ``import_numpy_s``,
        ``first_s`` and ``second_s``: the seconds to import everything, to import NumPy, of the
        first call and of the second. A kind that fails has ``failure`` instead.
    """
    with tempfile.TemporaryDirectory() as name:
        empties = [Path(name) / str(i) for i in range(repeat)]
        kinds = {
            "empty": [("clgemm", folder) for folder in empties],
            "warm": [("clgemm", folder) for folder in empties],
            "NumPy": [("NumPy", folder) for folder in empties],
        }
        return {
            kind: _medians(
                [(who, {**variables, **made_folders(folder)}) for who, folder in runs], identified
            )
            for kind, runs in kinds.items()
        }


def made_folders(folder: Path) -> dict[str, str]:
    """Create the folders of `cache_variables`, which some runtimes do not, and return these."""
    variables = cache_variables(folder)
    for path in variables.values():
        Path(path).mkdir(parents=True, exist_ok=True)
    return variables


def _medians(runs: list[tuple[str, dict[str, str]]], identified: list[str]) -> dict[str, Any]:
    results = []
    for contender, variables in runs:
        command = [sys.executable, "-c", NEW_PROCESS, contender, *identified]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            words = done.stderr.strip().splitlines() or [""]
            return {"failure": f"exit status {done.returncode}: {words[-1]}"}
        results.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: median(result[name] for result in results) for name in results[0]}


def first_calls(contender: str, identified: list[str]) -> dict[str, float]:
    """Multiply twice, and return the seconds of each call; the first one finds the device."""
    import numpy as np

    import clgemm
    from clgemm.hardware.identity import find

    a, b = np.ones((SIZE, SIZE), np.float32), np.ones((SIZE, SIZE), np.float32)
    c = np.zeros((SIZE, SIZE), np.float32)

    def first() -> None:
        if contender == "clgemm":
            clgemm.set_device(find(identified))
        second()

    def second() -> None:
        (clgemm if contender == "clgemm" else np).matmul(a, b, out=c)

    times = {}
    for name, call in (("first_s", first), ("second_s", second)):
        begin = time.perf_counter()
        call()
        times[name] = time.perf_counter() - begin
    if not (c == SIZE).all():
        raise RuntimeError(f"the product of ones is not {SIZE} everywhere")
    return times


def overheads(device: Any) -> list[dict[str, Any]]:
    """Time tiny calls, whose time is overhead: Python, the enqueueing and the waiting.

    CLGEMM_THRESHOLD is removed from the environment, so that `clgemm.dot` and `clgemm.matmul`
    choose the side as usual: the host's BLAS.

    Returns
    -------
    list of dict
        ``n`` and ``ns_per_call``, the nanoseconds of each function by its name.
    """
    os.environ.pop("CLGEMM_THRESHOLD", None)
    return [{"n": n, "ns_per_call": _ns_per_call(_tiny_calls(device, n))} for n in TINY]


def _tiny_calls(device: Any, n: int) -> dict[str, Callable[[], object]]:
    import numpy as np
    import pyopencl.array as cl_array

    import clgemm

    x, y, z = (np.ones((n, n), np.float32) for _ in range(3))
    c = np.ones((n, n), np.float32, "F")
    p, q, r = (cl_array.to_device(device.queue, matrix) for matrix in (x, y, z))

    def resident() -> None:
        clgemm.matmul(p, q, out=r)
        device.queue.finish()

    return {
        "clgemm.sgemm": lambda: clgemm.sgemm(1.0, x, y, c=c, overwrite_c=1),
        "clgemm.matmul, device arrays": resident,
        "clgemm.matmul": lambda: clgemm.matmul(x, y, out=z),
        "np.matmul": lambda: np.matmul(x, y, out=z),
        "clgemm.dot": lambda: clgemm.dot(x, y, out=z),
        "np.dot": lambda: np.dot(x, y, out=z),
    }


def _ns_per_call(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):  # in turns, so that a slow moment of the machine slows all calls
        for name, call in calls.items():
            call()
            begin = time.perf_counter_ns()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter_ns() - begin) / CALLS)
    return {name: median(t) for name, t in times.items()}
