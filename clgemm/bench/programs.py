"""``python -m clgemm bench --programs N``: random programs, beside NumPy's time.

A survey repeats one product in a turn, after a pause. A program makes products of several shapes,
one right after the other. So what one leaves behind counts: caches, memory, and threads of the
host's BLAS, which spin for a while.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from typing import Any, NamedTuple

from clgemm.bench.cases import Case
from clgemm.bench.contenders import ACCELERATED, ROUTED
from clgemm.bench.draws import STORAGE_BYTES, Bounds, Draw, random_cases, range_text
from clgemm.bench.report import print_rows
from clgemm.bench.rounds import Spread, environment, ratios, spread, within_time, worker_of
from clgemm.bench.survey import Summary, bounds_of, summary
from clgemm.core.child import Child
from clgemm.output import written
from clgemm.terminal import positive, progress

__all__ = ["DEFAULT", "Program", "add_arguments", "main", "random_programs"]

DEFAULT = Bounds(sides=(8, 4096), work=(10**5, 5 * 10**9))
SPREAD = 300  # how many times the work of a program's smallest product its largest may have
LEAST_TOP = 10  # times the least work: the largest product of the smallest programs
MOST_PRODUCTS = 24  # different ones in a program
STEPS = (40, 400)  # the fewest and the most products of a pass
PASS_WORK = 2 * 10**10  # multiply-adds of a pass, unless it has the fewest steps


@dataclass(frozen=True)
class Program:
    """Products in the order in which a program makes them, again and again.

    Attributes
    ----------
    products : tuple of Case
        The different ones.
    steps : tuple of int
        Positions in `products`. Each product occurs.
    """

    products: tuple[Case, ...]
    steps: tuple[int, ...]

    @property
    def work(self) -> int:
        """Multiply-adds of a pass."""
        return sum(self.products[step].work for step in self.steps)

    @property
    def label(self) -> str:
        """How many products it has, and the range of their work."""
        works = [product.work for product in self.products]
        return f"{len(works)} of {min(works):.1e} to {max(works):.1e}".replace("e+0", "e")

    def as_dict(self) -> dict[str, Any]:
        """Return the products and the steps, for JSON."""
        return {
            "products": [product.as_dict() for product in self.products],
            "steps": list(self.steps),
        }


def random_programs(count: int, seed: int, bounds: Bounds) -> list[Program]:
    """Return random programs, the same on every machine.

    A program has 1 to 24 different products. The work of the largest is log-uniform within the
    bounds, and the others have up to 300 times less. They come in random order.

    Raises
    ------
    ValueError
        If there are no products within the bounds.
    """
    return [_program(f"{seed} {number}", bounds) for number in range(count)]


def _program(seed: str, bounds: Bounds) -> Program:
    random = Random(seed).random
    draw = Draw(seed, bounds)
    low, high = bounds.work
    top = draw.size(min(LEAST_TOP * low, high), high)
    within = Bounds(bounds.sides, (max(low, top // SPREAD), top))
    wanted = draw.size(1, MOST_PRODUCTS)
    products = _that_fit(random_cases(wanted, int(random() * 2**31), within))
    mean = sum(product.work for product in products) / len(products)
    length = int(min(max(PASS_WORK / mean, STEPS[0]), STEPS[1]))
    steps = [*range(len(products))]
    steps += [int(random() * len(products)) for _ in range(length - len(products))]
    order = sorted(range(len(steps)), key=[random() for _ in steps].__getitem__)
    return Program(tuple(products), tuple(steps[place] for place in order))


def _that_fit(products: Sequence[Case]) -> list[Case]:
    """Return the products, the smallest first, whose operands fit into memory together."""
    found: list[Case] = []
    stored = 0
    for product in sorted(products, key=lambda each: each.size_bytes):
        stored += product.size_bytes
        if found and stored > STORAGE_BYTES:
            break
        found.append(product)
    return found


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
        within = bounds_of(args, DEFAULT)
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
            name: stack.enter_context(worker_of(name, identified, variables)) for name in CONTENDERS
        }
        about = workers["NumPy"].ask("about")
        step = stack.enter_context(progress(len(programs)))
        for program in within_time(programs, args.minutes):
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
    saved = written(args.json, text)
    return 0 if saved and not any(result.wrong for result in results) else 1


def _measured(program: Program, workers: dict[str, Child]) -> Result:
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
    print_rows("", headings, rows)
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
    print_rows("", headings, rows)
    for result in results:
        if result.wrong:
            print(f"WRONG: {result.program.label}: {result.wrong}")
