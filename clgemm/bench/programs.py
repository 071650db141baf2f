"""``bench --startup`` and ``--whole-programs``: programs in new processes, and tiny calls.

Programs take turns, with empty caches, of this package and of the drivers, and with filled ones.
Until their first product, clgemm's are timed beside others'. Whole programs are timed from the
import of NumPy to their end, plain and accelerated. The control is plain again: identical runs
differ, too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import numpy as np
import pyopencl.array as cl_array

import clgemm
from clgemm.bench import corpus
from clgemm.bench.report import print_rows
from clgemm.hardware.device import Device
from clgemm.terminal import minutes, positive, progress, say, written


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--whole-programs",
        nargs="*",
        metavar="NAME",
        help="run whole programs instead, plain and with accelerated NumPy, cold and warm; all of "
        "them, or those named. With --turns and --json",
    )
    parser.add_argument("--turns", type=positive, default=TURNS, help="runs of each kind")
    parser.add_argument(
        "--startup",
        action="store_true",
        help="time new processes until their first product instead, with empty and with filled "
        "caches, beside CuPy and PyTorch; and tiny calls. With --json",
    )


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
FIRST_PRODUCTS = {
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


def startup(args: argparse.Namespace, devices: Sequence[Device]) -> int:
    """Time the programs and the tiny calls, and print tables.

    Returns
    -------
    int
        0; 1 if the file is not written.
    """
    modules = {"CuPy": "cupy", "torch": "torch"}
    present = {
        contender: text
        for contender, text in FIRST_PRODUCTS.items()
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
    _print_startup(found, tiny)
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


def _print_startup(found: dict[str, dict[str, list[float]]], tiny: list[dict[str, Any]]) -> None:
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


TURNS = 9
ACCELERATED_S = 2.0  # about what an accelerated run and a plain one take
ALLOWED = 2e-2  # relative difference of two results in float32
LONGEST_S = 300.0  # of one run
LEFT_S = 12.0  # the longest that child processes go on after a program
# What an accelerated run executes: the program, and then a report of where its products went.
ACCELERATED = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
import clgemm.accel
found = clgemm.accel.report()
print(found.offloaded, "of", found.offloaded + sum(found.stayed.values()), file=sys.stderr)
"""


class Result(NamedTuple):
    """What the turns of a program gave.

    Attributes
    ----------
    plain_s : list of float
        Seconds of the plain runs.
    cold, warm, control : list of float
        Plain seconds over those of another run in the same turn: accelerated with empty caches,
        accelerated with filled ones, and plain again.
    went : str
        Where the products of the last warm run went.
    problem : str
        What went wrong; empty if nothing did.
    """

    name: str
    plain_s: list[float]
    cold: list[float]
    warm: list[float]
    control: list[float]
    went: str = ""
    problem: str = ""


def whole_programs(args: argparse.Namespace) -> int:
    """Run the programs and print a table.

    Returns
    -------
    int
        0; 1 if a program failed or gave another result; 2 if a name is wrong.
    """
    wanted = args.whole_programs or list(corpus.PROGRAMS)
    if unknown := [name for name in wanted if name not in corpus.PROGRAMS]:
        known = ", ".join(corpus.PROGRAMS)
        print(f"no such program: {', '.join(unknown)}; there is {known}", file=sys.stderr)
        return 2
    accelerated = len(wanted) * (1 + 2 * args.turns)
    say(f"{len(wanted)} programs, {args.turns} turns: {minutes(ACCELERATED_S * accelerated)}")
    results: list[Result] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        warm = os.environ | made_folders(folder / "warm")
        step = stack.enter_context(progress(1 + len(wanted)))
        step("warmup")
        _run([sys.executable, "-m", "clgemm", "warmup"], warm)
        for name in wanted:
            step(name)
            results.append(_measured(name, args.turns, folder, warm))
    _print_programs(results)
    text = json.dumps([result._asdict() for result in results], indent=1)
    return 0 if written(args.json, text) and not any(result.problem for result in results) else 1


def _measured(name: str, turns: int, folder: Path, warm: Mapping[str, str]) -> Result:
    """Run a program in turns."""
    result = Result(name, [], [], [], [])
    what = [corpus.__file__, name]
    plain = [sys.executable, *what]
    accelerated = [sys.executable, "-m", "clgemm.accel", "-c", ACCELERATED, *what]
    try:
        expected = _run(plain, os.environ)[1]
        _run(accelerated, warm)  # fills the caches
        _wait_for_children()
        for turn in range(turns):
            plain_s, again_s = (_run(plain, os.environ)[0] for _ in range(2))
            result.plain_s.append(plain_s)
            result.control.append(plain_s / again_s)
            warm_s, found, said = _run(accelerated, warm)
            result.warm.append(plain_s / warm_s)
            _require_same(expected, found)
            _wait_for_children()
            cold = os.environ | made_folders(folder / f"{name}-{turn}")
            cold_s, found, _ = _run(accelerated, cold)
            result.cold.append(plain_s / cold_s)
            _require_same(expected, found)
            _wait_for_children()
        return result._replace(went=said.strip().splitlines()[-1])
    except (RuntimeError, ValueError, IndexError) as error:
        return result._replace(problem=str(error))


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float, str]:
    """Run a program; return its seconds, its result and what it wrote to the error stream."""
    try:
        done = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it took more than {LONGEST_S:g} s") from None
    if done.returncode:
        words = done.stderr.strip().splitlines() or [""]
        raise RuntimeError(f"exit status {done.returncode}: {words[-1]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"seconds": 0.0, "result": 0.0}
    return found["seconds"], found["result"], done.stderr


def _require_same(expected: float, found: float) -> None:
    if not math.isclose(expected, found, rel_tol=ALLOWED, abs_tol=1e-3):
        raise ValueError(f"its result is {found} accelerated, and {expected} plain")


def _wait_for_children() -> None:
    """Wait until no child process of an accelerated program runs any more."""
    end = time.monotonic() + LEFT_S
    while time.monotonic() < end and _are_children_left():
        time.sleep(0.1)


def _are_children_left() -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if b"clgemm/hardware/supervisor.py" in path.read_bytes():
                return True
    return not Path("/proc/self").exists()


def _print_programs(results: Sequence[Result]) -> None:
    rows = []
    for each in results:
        if each.problem:
            rows.append([each.name, "failed", "", "", "", each.problem])
            continue
        seconds = f"{median(each.plain_s):.2f}"
        figures = (f"{median(ratios):.2f}" for ratios in (each.cold, each.warm, each.control))
        rows.append([each.name, seconds, *figures, each.went])
    good = [each for each in results if not each.problem]
    for title, reduce in (("geometric mean", geometric_mean), ("least", min)):
        columns = []
        for of in ("cold", "warm", "control"):
            medians = [median(getattr(each, of)) for each in good]
            columns.append(f"{reduce(medians):.2f}" if medians else "")
        rows.append([title, "", *columns, ""])
    print_rows(
        "Whole programs: the plain program's time over the accelerated one's, medians",
        ("program", "plain s", "cold", "warm", "control", "on the device"),
        rows,
    )
