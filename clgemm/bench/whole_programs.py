"""The command ``python -m clgemm bench --whole-programs``: programs, plain and accelerated.

They take turns, each in a process of its own, and are timed from the import of NumPy to their end.
Cold runs have empty caches, of this package and of the drivers. The control is plain again:
identical runs differ, too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from clgemm.bench import corpus
from clgemm.bench.corpus import PROGRAMS
from clgemm.bench.report import print_rows
from clgemm.bench.startup import made_folders
from clgemm.terminal import minutes, positive, progress, say, written

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


def main(args: argparse.Namespace) -> int:
    """Run the programs and print a table.

    Returns
    -------
    int
        0; 1 if a program failed or gave another result; 2 if a name is wrong.
    """
    wanted = args.whole_programs or list(PROGRAMS)
    if unknown := [name for name in wanted if name not in PROGRAMS]:
        known = ", ".join(PROGRAMS)
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
    _print(results)
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
            plain_s, _, _ = _run(plain, os.environ)
            result.plain_s.append(plain_s)
            again_s, _, _ = _run(plain, os.environ)
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


def _print(results: Sequence[Result]) -> None:
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
