"""``python -m clgemm bench --programs N``: random programs, beside NumPy's time.

A survey repeats one product in a turn, after a pause. A program makes products of several shapes,
one right after the other. So what one leaves behind counts: caches, memory, and threads of the
host's BLAS, which spin for a while.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from clgemm.bench.contenders import ACCELERATED, HOST, ROUTED
from clgemm.bench.draws import Bounds, Program, range_text
from clgemm.bench.report import print_rows, troubles
from clgemm.bench.rounds import (
    Outcome,
    Settings,
    Tournament,
    environment,
    within_time,
    worker_of,
)
from clgemm.bench.survey import Summary, bounds_of, summary
from clgemm.output import written
from clgemm.terminal import positive, progress

DEFAULT = Bounds(sides=(8, 4096), work=(10**5, 5 * 10**9))
OTHERS = ("clgemm", ROUTED, ACCELERATED)
# The threads of the host's BLAS sleep after the pause. No program is left out for its length.
SETTINGS = Settings(rounds=5, turn_s=0.3, budget_s=math.inf, pause_s=0.3)
WORST = 10  # programs that are listed by themselves


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--programs",
        type=positive,
        metavar="N",
        help="run N random programs instead: products of several shapes in random order, by NumPy, "
        "by the device, by matmul, which chooses, and by accelerated NumPy. With --seed, --sides, "
        "--work and --minutes",
    )


def main(
    args: argparse.Namespace,
    chosen: Sequence[Program],
    identified: list[str],
    label: str,
    threads: int,
) -> int:
    """Measure programs and print their times.

    Returns
    -------
    int
        0 if all results are right and the file is written, 1 if not.
    """
    variables = environment(threads, spin_times={})  # threads spin as the user has set it
    if args.precision:
        variables["CLGEMM_PRECISION"] = args.precision
    results: Results = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = ["NumPy", *OTHERS]
        workers = {
            name: stack.enter_context(worker_of(name, identified, variables)) for name in names
        }
        about = workers["NumPy"].ask("about")
        tournament = Tournament(workers, {HOST: names}, SETTINGS, folder)
        step = stack.enter_context(progress(len(chosen)))
        for program in within_time(chosen, args.minutes):
            step(program.label)
            results.append((program, tournament.contest(program)[HOST]))
    within = bounds_of(args, DEFAULT)
    sides, work = range_text(within.sides, " to "), range_text(within.work, " to ")
    blas = f"{about.get('blas', '')} {about.get('kernels', '')}".strip()
    heading = [
        f"{label}; host BLAS {blas}, {threads} threads",
        (
            f"{len(results)} of {len(chosen)} random programs, seed {args.seed}: "
            f"products with sides {sides} of {work} multiply-adds"
        ),
    ]
    ratios = {name: _ratios(results, name) for name in OTHERS}
    _print(heading, results, ratios)
    found = {
        "about": heading,
        "seed": args.seed,
        "summary": {
            name: {group: asdict(each) for group, each in _summaries(by_program).items()}
            for name, by_program in ratios.items()
        },
        "programs": [
            {
                "label": program.label,
                **program.as_dict(),
                "ratio": {name: ratios[name].get(program) for name in OTHERS},
                "outcomes": [each.as_dict(0.0) for each in outcomes],
            }
            for program, outcomes in results
        ],
    }
    saved = written(args.json, json.dumps(found, indent=1, allow_nan=False))
    return 0 if saved and all(each.ok for _, outcomes in results for each in outcomes) else 1


Results = list[tuple[Program, list[Outcome]]]
Ratios = Mapping[Program, float]


def _ratios(results: Results, contender: str) -> Ratios:
    """Return a contender's time over NumPy's, where both are right."""
    found = {}
    for program, (numpy, *others) in results:
        (other,) = (each for each in others if each.contender == contender)
        if ratio := numpy.ratio_to(other):
            found[program] = ratio.median
    return found


def _summaries(ratios: Ratios) -> dict[str, Summary]:
    """Return the statistics of all programs, and by the work of their largest product."""
    groups: dict[str, list[float]] = {"all": list(ratios.values())} if ratios else {}
    for program in sorted(ratios, key=lambda program: program.largest):
        group = f"up to 1e{len(str(program.largest))}"
        groups.setdefault(group, []).append(ratios[program])
    return {name: summary(group) for name, group in groups.items()}


def _print(heading: list[str], results: Results, ratios: Mapping[str, Ratios]) -> None:
    print(*heading, "time over NumPy's of a whole program; the median of the rounds", sep="\n")
    rows = []
    for contender, by_program in ratios.items():
        rows.append([contender, *[""] * 6])
        for name, each in _summaries(by_program).items():
            figures = each.mean, each.low, each.median, each.high, each.greatest
            rows.append([f"  {name}", str(each.count), *(f"{x:.2f}" for x in figures)])
    headings = ["largest product", "programs", "mean", "5 %", "50 %", "95 %", "greatest"]
    print_rows("", headings, rows)
    numpys = {program: outcomes[0] for program, outcomes in results}
    routed = ratios[ROUTED]
    rows = [
        [
            program.label,
            f"{numpys[program].time_s.median / len(program.steps) * 1e6:.0f}",
            *(f"{by[program]:.2f}" if program in by else "" for by in ratios.values()),
        ]
        for program in sorted(routed, key=routed.__getitem__, reverse=True)[:WORST]
    ]
    print_rows("", ["the worst programs", "NumPy's us per product", *OTHERS], rows)
    for trouble, labels in troubles(each for _, outcomes in results for each in outcomes).items():
        print(f"{'; '.join(labels)}: {trouble}")
