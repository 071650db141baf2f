"""The command ``python -m clgemm ladder``: its arguments, the run, the table, JSON and picture."""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clgemm.hardware.choice import find_device, get_device
from clgemm.hardware.device import Device
from clgemm.ladder.explain import KEPLER, KEPLER_PEERS, explain, page, shipped
from clgemm.ladder.measure import (
    Peer,
    Problem,
    Result,
    cuda_problem,
    cuda_target,
    expected_seconds,
    opencl_target,
    peers,
    run,
)
from clgemm.ladder.rung import Rung, Shape, Target
from clgemm.ladder.rungs import RUNGS, TUTORIAL_NAMES, configure
from clgemm.terminal import (
    COLOURS,
    PLOT_STYLE,
    Side,
    figure,
    json_number,
    minutes,
    positive,
    print_table,
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
        if args.cuda and (reason := cuda_problem()):
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
    known = {name for number in numbers for name in RUNGS[number - 1].parameters()}
    for name, _ in parameters:
        if name not in known:
            raise ValueError(f"none of the rungs has a parameter {name}; they have {sorted(known)}")


def _climb(device: Device, n: int, args: argparse.Namespace) -> Climb:
    shape = Shape(n, n, n)
    problem = functools.cache(functools.partial(Problem, shape))  # one for each dtype
    today = datetime.date.today().isoformat()
    climb = Climb(device.name, n, device.cl_device.driver_version, today)
    toolchains: dict[str, tuple[Device | None, Target]] = {
        "OpenCL": (device, opencl_target(device))
    }
    if args.cuda:
        toolchains["CUDA"] = (None, cuda_target())
    numbers = sorted(set(args.rung))
    with progress(len(numbers) * len(toolchains) + 1) as step:
        for toolchain, (where, target) in toolchains.items():
            for number in numbers:
                kind = RUNGS[number - 1]
                step(f"rung {number}, {kind.title} ({toolchain})")
                if missing := kind.missing(target):
                    climb.absent[number, toolchain] = missing
                    continue
                given = {name: value for name, value in args.set if name in kind.parameters()}
                try:
                    rung = configure(number, shape, target, **given)
                except ValueError as error:
                    climb.refusals[number, toolchain] = str(error)
                else:
                    result = run(where, rung, problem(rung.dtype), args.repeat)
                    climb.results[number, toolchain] = result
        step("clgemm.sgemm, NumPy and others")
        if any(RUNGS[number - 1].dtype == Rung.dtype for number in numbers):
            climb.peers.extend(peers(device, problem(Rung.dtype), args.repeat))
    return climb


@dataclass(frozen=True)
class Climb:
    """The figures of the rungs, for one size on one device.

    Attributes
    ----------
    results : dict of (int, str) to Result
        By the rung's number and the toolchain: OpenCL's in the order of the rungs, then CUDA's.
    refusals : dict of (int, str) to str
        The reason why a rung did not run, likewise.
    absent : dict of (int, str) to str
        What the device lacks for a rung that no parameters let run there, likewise.
    driver, date : str
        The version of the device's driver, and the day of the run as YYYY-MM-DD.
    """

    device: str
    n: int
    driver: str
    date: str
    results: dict[tuple[int, str], Result] = field(default_factory=dict)
    refusals: dict[tuple[int, str], str] = field(default_factory=dict)
    absent: dict[tuple[int, str], str] = field(default_factory=dict)
    peers: list[Peer] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all rungs that can run on the device ran and are right, and there are any."""
        right = all(result.correct for result in self.results.values())
        return bool(self.results) and right and not self.refusals


HEADINGS = ("#", "rung", "GFLOP/s", "step", "of cuBLAS", "Kepler", "support", "error")
JUSTIFY: list[Side] = ["right", "left", "right", "right", "right", "right", "right", "right"]


def _rows(climb: Climb, toolchain: str) -> Iterator[tuple[str, ...]]:
    cublas = next((peer.gflops for peer in climb.peers if peer.name == "cuBLAS"), 0.0)
    for rung in RUNGS:
        result = climb.results.get((rung.number, toolchain))
        head = str(rung.number), rung.label()
        kepler = f"{rung.kepler_gflops:,}" if rung.kepler_gflops else ""
        if result is None:
            if (rung.number, toolchain) in climb.refusals:
                yield *head, "refused", "", "", kepler, "", ""
            elif (rung.number, toolchain) in climb.absent:
                yield *head, "cannot run", "", "", kepler, "", ""
            continue
        before = climb.results.get((rung.before(), toolchain))
        if before and before.rung.dtype != rung.dtype:
            before = None
        yield (
            *head,
            figure(result.gflops) if result.correct else "WRONG",
            f"x{result.gflops / before.gflops:.2f}" if before else "",
            f"{result.gflops / cublas:.2f}" if cublas and rung.dtype == Rung.dtype else "",
            kepler,
            f"{result.support_share:.1%}" if result.support_share else "",
            f"{result.relative_error:.1e}",
        )


def _notes(climb: Climb, toolchain: str) -> Iterator[str]:
    for (number, where), result in climb.results.items():
        if where == toolchain and result.note:
            yield f"rung {number}: {result.note}"
    for (_, refused), reason in climb.refusals.items():
        if refused == toolchain:
            yield f"refused: {reason}"
    for (number, where), reason in climb.absent.items():
        if where == toolchain:
            yield f"rung {number}: cannot run here: {reason}"


def print_climb(climb: Climb) -> None:
    """Print a table of the rungs for each toolchain, and a table of the peers."""
    for toolchain in ("OpenCL", "CUDA"):
        if rows := list(_rows(climb, toolchain)):
            title = f"{toolchain} on {climb.device}, n = {climb.n}, by the device's clock"
            print_table(title, HEADINGS, JUSTIFY, rows)
            print(*(f"  {note}" for note in _notes(climb, toolchain)), sep="\n", end="\n\n")
    if climb.peers:
        print_table(
            "Other libraries, float32, time of a call by the host's clock",
            ("", "GFLOP/s", "error"),
            ("left", "right", "right"),
            [(p.name, figure(p.gflops), f"{p.relative_error:.1e}") for p in climb.peers],
        )


def as_dict(climb: Climb) -> dict[str, Any]:
    """Return a climb as JSON has it."""
    return {
        "device": climb.device,
        "driver": climb.driver,
        "date": climb.date,
        "n": climb.n,
        "rungs": [_result_as_dict(result) for result in climb.results.values()],
        **{
            key: [
                {"rung": rung, "toolchain": toolchain, "reason": reason}
                for (rung, toolchain), reason in reasons.items()
            ]
            for key, reasons in (("refused", climb.refusals), ("absent", climb.absent))
        },
        "peers": [
            {
                "name": p.name,
                "gflops": p.gflops,
                "time_ns": p.time_ns,
                "error": json_number(p.relative_error),
            }
            for p in climb.peers
        ],
    }


def _result_as_dict(result: Result) -> dict[str, Any]:
    rung: Rung = result.rung
    return {
        "rung": rung.number,
        "title": rung.title,
        "dtype": rung.dtype.name,
        "toolchain": result.toolchain,
        "parameters": asdict(rung),
        "gflops": result.gflops,
        "time_ns": result.time_ns,
        "error": json_number(result.relative_error),
        "error_bound": result.error_bound,
        "correct": result.correct,
        "support_share": result.support_share,
        "kepler_gflops": rung.kepler_gflops or None,
        "note": result.note,
    }


# A peer more than this many times as fast as the fastest rung is in the legend only: its line would
# flatten the bars.
HEADROOM = 2.2
WIDE_RANGE = 30  # the axis is logarithmic if the fastest rung is so many times the slowest


def picture(climb: Climb) -> Any:
    """Return a figure of one climb above the tutorial's (extra ``ladder``: matplotlib)."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(PLOT_STYLE):
        whole = Figure(figsize=(14, 11), layout="constrained")
        ours, kepler = whole.subplots(2, 1, height_ratios=(3, 2))
        toolchains = {
            name: {n: x.gflops for (n, where), x in climb.results.items() if where == name}
            for name in ("OpenCL", "CUDA")
        }
        _stairs(ours, {name: steps for name, steps in toolchains.items() if steps})
        _levels(ours, {peer.name: peer.gflops for peer in climb.peers})
        ours.set_title(f"{climb.device}, n = {climb.n}", loc="left", fontweight="bold")
        _stairs(kepler, {"Kepler": KEPLER})
        _levels(kepler, KEPLER_PEERS)
        kepler.set_title("The tutorial: Tesla K40m, n = 4096", loc="left", fontweight="bold")
        return whole


def _stairs(axes: Any, toolchains: Mapping[str, Mapping[int, float]]) -> None:
    """Draw a bar for each rung, with the bars of several toolchains side by side."""
    width = 0.84 / len(toolchains)
    for position, (name, steps) in enumerate(toolchains.items()):
        shift = (position - (len(toolchains) - 1) / 2) * width
        bars = axes.bar(
            [number + shift for number in steps],
            list(steps.values()),
            width * 0.96,
            color=COLOURS["other" if name == "Kepler" else name],
            label=name,
        )
        axes.bar_label(
            bars,
            [_figure(gflops) for gflops in steps.values()],
            padding=2,
            fontsize=10 if len(toolchains) == 1 else 8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
    shown = [rung for rung in RUNGS if any(rung.number in steps for steps in toolchains.values())]
    numbers = [rung.number for rung in shown]
    ticks = [f"{rung.number}  {rung.label()}" for rung in shown]
    axes.set_xticks(numbers, ticks, fontsize=9, rotation=28, ha="right", rotation_mode="anchor")
    axes.set_xlim(min(numbers, default=1) - 0.6, max(numbers, default=1) + 0.6)
    axes.set_ylabel("GFLOP/s")
    every = [gflops for steps in toolchains.values() for gflops in steps.values() if gflops > 0]
    if every and max(every) > WIDE_RANGE * min(every):
        axes.set_yscale("log")
        axes.set_ylim(min(every) / 2, 1.5 * max(every))
    axes.yaxis.set_major_formatter("{x:,g}")


def _levels(axes: Any, peers: Mapping[str, float]) -> None:
    """Draw a line for each peer, and a legend with the peers' figures beside the axes."""
    top = axes.get_ylim()[1]
    axes.set_ylim(top=max([top, *(1.08 * x for x in peers.values() if x < HEADROOM * top)]))
    for name, gflops in sorted(peers.items(), key=lambda peer: -peer[1]):
        colour = COLOURS.get(name.split()[0], COLOURS["other"])
        label = f"{name}: {_figure(gflops)}"
        axes.axhline(gflops, color=colour, linewidth=1.3, linestyle="--", zorder=0, label=label)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9, frameon=False)


def _figure(gflops: float) -> str:
    return f"{gflops:,.0f}" if gflops >= 100 else f"{gflops:.3g}"
