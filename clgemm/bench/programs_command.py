"""The command ``python -m clgemm bench --programs N``: random programs, beside NumPy's time.

A survey repeats one product in a turn, after a pause. A program makes products of several shapes,
one right after the other. So what one leaves behind counts: caches, memory, and threads of the
host's BLAS, which spin for a while.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from statistics import median
from typing import NamedTuple

from clgemm.bench.contenders import ACCELERATED, ROUTED
from clgemm.bench.figures import Spread, ratios, spread
from clgemm.bench.pipe import Worker, environment, own_environment
from clgemm.bench.programs import DEFAULT, Program, random_programs
from clgemm.bench.survey import Bounds, Summary, range_text, summary
from clgemm.output import written
from clgemm.terminal import Side, positive, print_table, progress

__all__ = ["add_arguments", "main"]

CONTENDERS = ("NumPy", "clgemm", ROUTED, ACCELERATED)
ROUNDS = 5
TURN_S = 0.3
PAUSE_S = 0.3  # the threads of the host's BLAS sleep by then
WRONG = "an element's error is {:.3g} times the bound of rounding errors"


class Result(NamedTuple):
    """The times of a program.

    Attributes
    ----------
    rounds_s : dict of str to list of float
        Seconds of a pass by contender, one figure for each round.
    errors : dict of str to float
        The worst error of an element, divided by its bound.
    """

    program: Program
    rounds_s: dict[str, list[float]]
    errors: dict[str, float]

    def ratio(self, contender: str) -> Spread:
        """Return a contender's time over NumPy's."""
        return spread(ratios(self.rounds_s["NumPy"], self.rounds_s[contender]))

    @property
    def wrong(self) -> str:
        """What is wrong with a result of a contender; empty if nothing is."""
        found = (f"{name}: {WRONG.format(x)}" for name, x in self.errors.items() if not x <= 1)
        return "; ".join(found)


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


def main(args: argparse.Namespace, identified: list[str], label: str, threads: int) -> int:
    """Measure random programs and print their times.

    Returns
    -------
    int
        0 if all results are right and the file is written, 1 if not, 2 if the bounds are wrong.
    """
    try:
        within = _bounds(args)
        programs = random_programs(args.programs, args.seed, within)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    variables = environment(threads, spin_times={})  # threads spin as the user has set it
    if args.precision:
        variables["CLGEMM_PRECISION"] = args.precision
    results: list[Result] = []
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(name, identified, own_environment(name, variables)))
            for name in CONTENDERS
        }
        about = workers["NumPy"].ask("about")
        step = stack.enter_context(progress(len(programs)))
        end = math.inf if args.minutes is None else time.monotonic() + 60 * args.minutes
        for program in programs:
            if results and time.monotonic() >= end:
                break
            step(program.label)
            results.append(_measured(program, workers))
    sides, work = range_text(within.sides, " to "), range_text(within.work, " to ")
    blas = f"{about.get('blas', '')} {about.get('kernels', '')}".strip()
    heading = [
        f"{label}; host BLAS {blas}, {threads} threads",
        (
            f"{len(results)} of {len(programs)} random programs, seed {args.seed}: "
            f"products with sides {sides} of {work} multiply-adds"
        ),
    ]
    _print(heading, results)
    text = _as_json(heading, args.seed, results)
    saved = written(args.json, lambda file: file.write_text(text + "\n", "utf-8"))
    return 0 if saved and not any(result.wrong for result in results) else 1


def _bounds(args: argparse.Namespace) -> Bounds:
    """Return the bounds of the products."""
    given = {name: getattr(args, name) for name in ("sides", "work") if getattr(args, name)}
    return replace(DEFAULT, **given)


def _measured(program: Program, workers: dict[str, Worker]) -> Result:
    """Time the contenders in turns, and then check their results."""
    rounds_s: dict[str, list[float]] = {name: [] for name in workers}
    for worker in workers.values():
        worker.ask("prepare_program", **program.as_dict())
    for _ in range(ROUNDS):
        for name, worker in workers.items():
            time.sleep(PAUSE_S)
            rounds_s[name].append(worker.ask("turn", seconds=TURN_S))
    errors = {name: float(worker.ask("judge_program")) for name, worker in workers.items()}
    for worker in workers.values():
        worker.ask("release")
    return Result(program, rounds_s, errors)


def _groups(results: list[Result]) -> dict[str, list[Result]]:
    """Return the programs all together, and by the work of their largest product."""
    found: dict[str, list[Result]] = {"all": list(results)}
    for result in sorted(results, key=_largest):
        power = len(str(_largest(result))) - 1
        found.setdefault(f"up to 1e{power + 1}", []).append(result)
    return found


def _largest(result: Result) -> int:
    return max(product.work for product in result.program.products)


def _summaries(results: list[Result], contender: str) -> dict[str, Summary]:
    return {
        name: summary([result.ratio(contender).median for result in group])
        for name, group in _groups(results).items()
    }


def _as_json(heading: list[str], seed: int, results: list[Result]) -> str:
    head = {
        "about": heading,
        "seed": seed,
        "summary": {
            name: {group: asdict(each) for group, each in _summaries(results, name).items()}
            for name in CONTENDERS[1:]
        },
    }
    text = json.dumps(head, indent=1).removesuffix("\n}")
    lines = ",\n".join(
        json.dumps(
            {
                "label": result.program.label,
                "time_s": {name: median(each) for name, each in result.rounds_s.items()},
                "ratio": {name: result.ratio(name).median for name in CONTENDERS[1:]},
                "wrong": result.wrong,
                **result.program.as_dict(),
            }
        )
        for result in results
    )
    return f'{text},\n "programs": [\n{lines}\n]}}'


def _print(heading: list[str], results: list[Result]) -> None:
    print(*heading, "time over NumPy's of a whole program; the median of the rounds", sep="\n")
    rows = []
    for contender in CONTENDERS[1:]:
        rows.append([contender, *[""] * 6])
        for name, each in _summaries(results, contender).items():
            figures = each.mean, each.low, each.median, each.high, each.greatest
            rows.append([f"  {name}", str(each.count), *(f"{x:.2f}" for x in figures)])
    headings = ["largest product", "programs", "mean", "5 %", "50 %", "95 %", "greatest"]
    right: Side = "right"
    print_table("", headings, ["left", *[right] * 6], rows)
    worst = sorted(results, key=lambda result: -result.ratio(ROUTED).median)[:10]
    rows = [
        [
            result.program.label,
            f"{median(result.rounds_s['NumPy']) / len(result.program.steps) * 1e6:.0f}",
            *(f"{result.ratio(name).median:.2f}" for name in CONTENDERS[1:]),
        ]
        for result in worst
    ]
    headings = ["the worst programs", "NumPy's us per product", *CONTENDERS[1:]]
    print_table("", headings, ["left", *[right] * (len(headings) - 1)], rows)
    for result in results:
        if result.wrong:
            print(f"WRONG: {result.program.label}: {result.wrong}")
