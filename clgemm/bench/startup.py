"""``bench --startup``: new processes until their first product, and the overhead of a tiny call."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyopencl.array as cl_array

import clgemm
from clgemm.bench.report import print_rows
from clgemm.hardware.device import Device
from clgemm.terminal import minutes, progress, say, written

TINY = (8, 64)
CALLS, ROUNDS = 200, 11


def made_folders(folder: Path) -> dict[str, str]:
    """Return the variables that put all caches of compiled programs into a folder.

    Their folders are created: some runtimes do not.
    """
    variables = {
        "CLGEMM_CACHE_DIR": "clgemm",
        "POCL_CACHE_DIR": "pocl",
        "CUDA_CACHE_PATH": "cuda",
        "cl_cache_dir": "intel",
        "NEO_CACHE_DIR": "neo",
        "MESA_SHADER_CACHE_DIR": "mesa",
        "XDG_CACHE_HOME": "other",  # pyopencl's cache
    }
    for name in variables.values():
        (folder / name).mkdir(parents=True, exist_ok=True)
    return {variable: str(folder / name) for variable, name in variables.items()}


def _tiny_calls(device: Any, n: int) -> dict[str, Callable[[], object]]:
    """Return calls whose time is overhead: Python, the enqueueing and the waiting."""
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
    }


def _ns_per_call(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the nanoseconds of each call."""
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
RUNS, WARM_RUNS = 3, 5
PROCESS_S = 2.0  # about what one takes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--startup",
        action="store_true",
        help="time new processes until their first product instead, with empty and with filled "
        "caches, beside CuPy and PyTorch; and tiny calls. With --json",
    )


def main(args: argparse.Namespace, devices: Sequence[Device]) -> int:
    """Time the programs and the tiny calls, and print tables.

    Returns
    -------
    int
        0; 1 if the file is not written.
    """
    modules = {"CuPy": "cupy", "torch": "torch"}
    present = {
        contender: text
        for contender, text in PROGRAMS.items()
        if contender not in modules or importlib.util.find_spec(modules[contender]) is not None
    }
    count = len(present)
    say(f"{count} programs in new processes: {minutes(PROCESS_S * count * (RUNS + WARM_RUNS))}")
    found = {}
    with tempfile.TemporaryDirectory() as name, progress(count + 1) as step:
        for contender, text in present.items():
            step(contender)
            found[contender] = _cold_and_warm(BEGIN + text + END, Path(name) / contender)
        step("tiny calls")
        with clgemm.device(*devices):
            tiny = [{"n": n, "ns_per_call": _ns_per_call(_tiny_calls(devices[0], n))} for n in TINY]
    _print(found, tiny)
    text = json.dumps({"first products": found, "tiny calls": tiny}, indent=1)
    return 0 if written(args.json, text) else 1


def _cold_and_warm(program: str, folder: Path) -> dict[str, list[float]]:
    """Return the medians of a program's three times, for empty and for filled caches."""
    cold = [_three_times(program, made_folders(folder / str(number))) for number in range(RUNS)]
    filled = made_folders(folder / "0")
    warm = [_three_times(program, filled) for _ in range(WARM_RUNS)]
    return {
        kind: [median(each) for each in zip(*runs, strict=True)]
        for kind, runs in (("cold", cold), ("warm", warm))
    }


def _three_times(program: str, variables: Mapping[str, str]) -> list[float]:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    if done.returncode:
        print(*done.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return [float("nan")] * 3
    return [float(word) for word in done.stdout.split()[-3:]]


def _print(found: dict[str, dict[str, list[float]]], tiny: list[dict[str, Any]]) -> None:
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
    names = list(tiny[0]["ns_per_call"])
    print_rows(
        "Tiny products, microseconds per call",
        ["n", *names],
        [
            [str(row["n"]), *(f"{row['ns_per_call'][name] / 1000:.2f}" for name in names)]
            for row in tiny
        ],
    )
