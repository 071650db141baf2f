"""The command ``python -m clgemm ladder``: its arguments, the run and the output."""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from clgemm.hardware.choice import find_device, get_device
from clgemm.hardware.device import Device
from clgemm.ladder import cuda, opencl
from clgemm.ladder.climb import Climb, as_dict, peers, print_climb
from clgemm.ladder.explain import explain
from clgemm.ladder.measure import Problem, Result, expected_seconds
from clgemm.ladder.page import page, shipped
from clgemm.ladder.plot import picture
from clgemm.ladder.rung import Rung, Shape, Target
from clgemm.ladder.rungs import RUNGS, TUTORIAL_NAMES, configure
from clgemm.terminal import (
    minutes,
    positive,
    progress,
    require_picture,
    require_writable,
    say,
    written,
)

GPU_SIZE, CPU_SIZE = 4096, 512
NUMBERS = range(1, len(RUNGS) + 1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--size",
        type=positive,
        nargs="+",
        metavar="N",
        help=f"square matrices of these sizes (default: {GPU_SIZE} on a GPU, {CPU_SIZE} elsewhere)",
    )
    parser.add_argument("--device", metavar="D", help="number, kind or part of a name")
    parser.add_argument(
        "--rung",
        type=int,
        nargs="+",
        metavar="R",
        choices=NUMBERS,
        default=list(NUMBERS),
        help="run only these rungs",
    )
    parser.add_argument(
        "--set",
        type=_assignment,
        nargs="+",
        metavar="NAME=VALUE",
        default=[],
        help="parameters of the rungs that have them, by clgemm's or the tutorial's names (TSM=64)",
    )
    parser.add_argument("--repeat", type=positive, metavar="N", help="timed runs of each rung")
    parser.add_argument("--cuda", action="store_true", help="also run through the CUDA toolchain")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the staircase (last size)")
    parser.add_argument(
        "--explain",
        type=int,
        metavar="R",
        choices=NUMBERS,
        help="print one rung as a difference, with its bytes, flops and registers; time nothing",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the interactive page")
    parser.add_argument(
        "--also",
        type=Path,
        nargs="+",
        metavar="FILE",
        default=[],
        help="measurements of other devices, from --json, for the page",
    )


def _assignment(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not equals or not value.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with a whole number")
    name = name.strip()
    return TUTORIAL_NAMES.get(name.upper(), name.lower()), int(value)


def main(args: argparse.Namespace) -> int:
    """Run the rungs.

    Returns
    -------
    int
        0 if all rungs that can run on the device ran and are right, and the files are written; 1 if
        not; 2 if the arguments are wrong.
    """
    try:
        device = find_device(args.device) if args.device else get_device()
        known = args.rung
        if args.explain:
            known = [args.explain, max(1, RUNGS[args.explain - 1].before())]
        _require_known(args.set, known)
        require_writable("--json", args.json)
        require_picture("--plot", args.plot, extra="ladder")
        require_writable("--html", args.html)
        others = [climb for file in args.also for climb in _measured(file)]
        sizes = args.size or [GPU_SIZE if device.kind == "GPU" else CPU_SIZE]
        if args.explain:
            for n in sizes:
                explain(device, args.explain, n, dict(args.set))
            return 0
        if args.cuda and (reason := cuda.why_not()):
            raise ValueError(reason)
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    count = len(set(args.rung)) * (1 + args.cuda)
    seconds = sum(expected_seconds(device.kind, n, count, args.repeat) for n in sizes)
    say(f"{device.label}, n = {', '.join(map(str, sizes))}: {count} rungs, {minutes(seconds)}")
    climbs = []
    for n in sizes:
        climbs.append(_climb(device, n, args))
        print_climb(climbs[-1])
    saved = written(args.json, json.dumps([as_dict(climb) for climb in climbs], indent=2))
    saved &= written(args.plot, lambda file: picture(climbs[-1]).savefig(file, dpi=150))
    shown = [*map(as_dict, climbs), *others, *shipped()]
    saved &= written(args.html, lambda file: file.write_text(page(shown), "utf-8"))
    return 0 if saved and all(climb.ok for climb in climbs) else 1


def _measured(file: Path) -> list[dict[str, Any]]:
    """Return what ``--json`` wrote into a file."""
    try:
        climbs: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        page(climbs)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"--also {file} is not what ladder --json writes: {error}") from None
    return climbs


def _require_known(parameters: Iterable[tuple[str, int]], numbers: Iterable[int]) -> None:
    known = {field.name for number in numbers for field in fields(RUNGS[number - 1])}
    for name, _ in parameters:
        if name not in known:
            raise ValueError(f"none of the rungs has a parameter {name}; they have {sorted(known)}")


def _climb(device: Device, n: int, args: argparse.Namespace) -> Climb:
    shape = Shape(n, n, n)
    problem = functools.cache(functools.partial(Problem, shape))  # one for each dtype
    today = datetime.date.today().isoformat()
    climb = Climb(device.name, n, [], {}, [], device.cl_device.driver_version, today)
    toolchains: dict[str, tuple[Target, Callable[[Rung, Problem, int | None], Result]]] = {
        "OpenCL": (opencl.target(device), functools.partial(opencl.run, device))
    }
    if args.cuda:
        toolchains["CUDA"] = (cuda.target(), cuda.run)
    numbers = sorted(set(args.rung))
    with progress(len(numbers) * len(toolchains) + 1) as step:
        for toolchain, (target, run) in toolchains.items():
            for number in numbers:
                kind = RUNGS[number - 1]
                step(f"rung {number}, {kind.title} ({toolchain})")
                if missing := kind.missing(target):
                    climb.absent[number, toolchain] = missing
                    continue
                names = {field.name for field in fields(kind)}
                given = {name: value for name, value in args.set if name in names}
                try:
                    rung = configure(number, shape, target, **given)
                except ValueError as error:
                    climb.refusals[number, toolchain] = str(error)
                else:
                    climb.results.append(run(rung, problem(rung.dtype), args.repeat))
        step("clgemm.sgemm, NumPy and others")
        if any(RUNGS[number - 1].dtype == Rung.dtype for number in numbers):
            climb.peers.extend(peers(device, problem(Rung.dtype), args.repeat))
    return climb
