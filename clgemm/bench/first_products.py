"""The command ``python -m clgemm bench --startup``: new processes until their first product.

Cold: all caches are empty, those of the drivers too. CuPy and PyTorch run beside clgemm where they
are installed and there is a GPU for them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from clgemm.bench.startup import made_folders
from clgemm.output import written
from clgemm.terminal import print_table

__all__ = ["add_arguments", "main"]

SIZE = 2048
# Each program prints the seconds until NumPy is imported, until all is, and until it has a product.
BEGIN = f"""
import time; t0 = time.perf_counter()
import numpy as np; t1 = time.perf_counter()
a = np.ones(({SIZE}, {SIZE}), "f"); b = a.copy(); made = time.perf_counter() - t1
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for contender, text in PROGRAMS.items():
            module = {"CuPy": "cupy", "torch": "torch"}.get(contender)
            if module is not None and importlib.util.find_spec(module) is None:
                continue
            found[contender] = _timed(BEGIN + text + END, folder / contender)
        script = folder / "script.py"
        script.write_text("import numpy\n")
        commands = {
            what: _commands([str(script) if x == "SCRIPT" else x for x in line], folder / what)
            for what, line in COMMANDS.items()
        }
    _print(found, commands)
    text = json.dumps({"first products": found, "commands": commands}, indent=1)
    return 0 if written(args.json, lambda file: file.write_text(text + "\n", "utf-8")) else 1


def _timed(program: str, folder: Path) -> dict[str, list[float]]:
    """Return the medians of three times, for empty and for filled caches."""
    cold = [
        _run(program, os.environ | made_folders(folder / str(number))) for number in range(RUNS)
    ]
    filled = os.environ | made_folders(folder / "0")
    warm = [_run(program, filled) for _ in range(WARM_RUNS)]
    return {"cold": _medians(cold), "warm": _medians(warm)}


def _medians(runs: list[list[float]]) -> list[float]:
    return [median(each) for each in zip(*runs, strict=True)]


def _run(program: str, environment: Mapping[str, str]) -> list[float]:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return [float("nan")] * 3
    return [float(word) for word in done.stdout.split()[-3:]]


def _commands(command: list[str], folder: Path) -> dict[str, list[float]]:
    """Return the seconds of a command's whole process, with empty and with filled caches."""
    import time

    def seconds(environment: Mapping[str, str]) -> list[float]:
        begun = time.perf_counter()
        subprocess.run(command, env=dict(environment), capture_output=True, check=False)
        return [time.perf_counter() - begun]

    cold = [seconds(os.environ | made_folders(folder / str(number))) for number in range(RUNS)]
    warm = [seconds(os.environ | made_folders(folder / "0")) for _ in range(WARM_RUNS)]
    return {"cold": _medians(cold), "warm": _medians(warm)}


def _print(
    found: dict[str, dict[str, list[float]]], commands: dict[str, dict[str, list[float]]]
) -> None:
    rows = [
        [contender, kind, *(f"{x:.2f}" for x in times[kind])]
        for contender, times in found.items()
        for kind in ("cold", "warm")
    ]
    print_table(
        f"Seconds from the start of a program to its first product of {SIZE} x {SIZE} NumPy arrays",
        ("contender", "caches", "NumPy is imported", "all is", "first product"),
        ("left", "left", "right", "right", "right"),
        rows,
    )
    rows = [
        [what, *(f"{times[kind][0]:.2f}" for kind in ("cold", "warm"))]
        for what, times in commands.items()
    ]
    print_table(
        "Seconds of whole processes", ("command", "cold", "warm"), ("left", "right", "right"), rows
    )
