"""Start-up times: new processes until their first product, and the overhead of a tiny call.

`cold_start` and `overheads` are parts of every benchmark. ``bench --startup`` also runs CuPy and
PyTorch, where they are installed, and whole commands.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
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

from clgemm.bench.report import print_rows
from clgemm.output import written
from clgemm.terminal import minutes, progress, say

__all__ = ["add_arguments", "cache_variables", "cold_start", "made_folders", "main", "overheads"]

SIZE = 1024  # m, n and k of the first product
# A script, because running a module of this package would import clgemm before the timer starts.
# The first product finds the device.
NEW_PROCESS = f"""
import json, sys, time
begin = time.perf_counter()
import numpy as np
times = {{"import_numpy_s": time.perf_counter() - begin}}
library, identified = np, sys.argv[2:]
if sys.argv[1] == "clgemm":
    import clgemm as library
times["import_s"] = time.perf_counter() - begin
from clgemm.hardware.device import find
a, b = np.ones((2, {SIZE}, {SIZE}), np.float32)
c = np.zeros_like(a)
for name in ("first_s", "second_s"):
    begin = time.perf_counter()
    if library is not np and name == "first_s":
        library.set_device(find(identified))
    library.matmul(a, b, out=c)
    times[name] = time.perf_counter() - begin
assert (c == {SIZE}).all(), "the product of ones is not {SIZE} everywhere"
print(json.dumps(times))
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
        The device, as `clgemm.hardware.device.identity` returns it.
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


PRODUCT_SIZE = 2048
# Each program prints the seconds until NumPy is imported, until all is, and until it has a product.
BEGIN = f"""
import time; t0 = time.perf_counter()
import numpy as np; t1 = time.perf_counter()
a = np.ones(({PRODUCT_SIZE}, {PRODUCT_SIZE}), "f"); b = a.copy(); made = time.perf_counter() - t1
"""
END = """
c = product(); t3 = time.perf_counter()
assert (np.asarray(c) == 2048).all()
print(t1 - t0, t2 - t0 - made, t3 - t0 - made)
"""
PROGRAMS = {
    "NumPy": "t2 = time.perf_counter()\ndef product(): return a @ b",
    "clgemm.sgemm, strict": (
        "import clgemm; t2 = time.perf_counter()\n"
        "def product(): return clgemm.sgemm(1.0, a, b, precision='strict')"
    ),
    "clgemm.sgemm": (
        "import clgemm; t2 = time.perf_counter()\ndef product(): return clgemm.sgemm(1.0, a, b)"
    ),
    "CuPy": (
        "import cupy; t2 = time.perf_counter()\n"
        "def product(): return (cupy.asarray(a) @ cupy.asarray(b)).get()"
    ),
    "torch": (
        "import torch; t2 = time.perf_counter()\n"
        "where = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "def product():\n"
        "    x, y = (torch.from_numpy(z).to(where) for z in (a, b))\n"
        "    return (x @ y).cpu()"
    ),
}
COMMANDS = {
    "import clgemm": [sys.executable, "-c", "import clgemm"],
    "python": [sys.executable, "-c", "pass"],
    "script that imports NumPy": [sys.executable, "SCRIPT"],
    "the same by python -m clgemm.accel": [sys.executable, "-m", "clgemm.accel", "SCRIPT"],
    "python -m clgemm info": [sys.executable, "-m", "clgemm", "info"],
}
RUNS, WARM_RUNS = 3, 5
PROCESS_S = 2.0  # about what one takes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--startup",
        action="store_true",
        help="time new processes until their first product instead, with empty and with filled "
        "caches, beside CuPy and PyTorch. With --json",
    )


def main(args: argparse.Namespace) -> int:
    """Time the programs and commands, and print tables."""
    found: dict[str, dict[str, list[float]]] = {}
    commands: dict[str, dict[str, list[float]]] = {}
    modules = {"CuPy": "cupy", "torch": "torch"}
    present = {
        contender: text
        for contender, text in PROGRAMS.items()
        if contender not in modules or importlib.util.find_spec(modules[contender]) is not None
    }
    count = len(present) + len(COMMANDS)
    say(f"{count} programs in new processes: {minutes(PROCESS_S * count * (RUNS + WARM_RUNS))}")
    with tempfile.TemporaryDirectory() as name, progress(count) as step:
        folder = Path(name)
        for contender, text in present.items():
            step(contender)
            run = functools.partial(_three_times, BEGIN + text + END)
            found[contender] = _cold_and_warm(run, folder / contender)
        script = folder / "script.py"
        script.write_text("import numpy\n")
        for what, line in COMMANDS.items():
            step(what)
            command = [str(script) if word == "SCRIPT" else word for word in line]
            run = functools.partial(_whole_time, command)
            commands[what] = _cold_and_warm(run, folder / what)
    _print(found, commands)
    text = json.dumps({"first products": found, "commands": commands}, indent=1)
    return 0 if written(args.json, text) else 1


def _cold_and_warm(
    run: Callable[[Mapping[str, str]], list[float]], folder: Path
) -> dict[str, list[float]]:
    """Return the medians of the times that `run` returns, for empty and for filled caches."""
    cold = [run(os.environ | made_folders(folder / str(number))) for number in range(RUNS)]
    filled = os.environ | made_folders(folder / "0")
    warm = [run(filled) for _ in range(WARM_RUNS)]
    return {
        kind: [median(each) for each in zip(*runs, strict=True)]
        for kind, runs in (("cold", cold), ("warm", warm))
    }


def _three_times(program: str, environment: Mapping[str, str]) -> list[float]:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True)
    if done.returncode:
        print(*done.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return [float("nan")] * 3
    return [float(word) for word in done.stdout.split()[-3:]]


def _whole_time(command: list[str], environment: Mapping[str, str]) -> list[float]:
    begun = time.perf_counter()
    subprocess.run(command, env=dict(environment), capture_output=True, check=False)
    return [time.perf_counter() - begun]


def _print(
    found: dict[str, dict[str, list[float]]], commands: dict[str, dict[str, list[float]]]
) -> None:
    n = PRODUCT_SIZE
    print_rows(
        f"Seconds from the start of a program to its first product of {n} x {n} NumPy arrays",
        ("contender", "caches", "NumPy is imported", "all is", "first product"),
        [
            [contender, kind, *(f"{x:.2f}" for x in times)]
            for contender, kinds in found.items()
            for kind, times in kinds.items()
        ],
        left=2,
    )
    print_rows(
        "Seconds of whole processes",
        ("command", "cold", "warm"),
        [
            [what, *(f"{times[kind][0]:.2f}" for kind in ("cold", "warm"))]
            for what, times in commands.items()
        ],
    )
