"""The options of ``python -m clgemm bench --survey``, and what differs from a plain benchmark."""

from __future__ import annotations

import argparse
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clgemm.bench.cases import DATA, Case
from clgemm.bench.contenders import HOST, PEERS, ROUTED
from clgemm.bench.figures import Outcome
from clgemm.bench.pipe import RequestError, Worker, WorkerDiedError
from clgemm.bench.report import Report
from clgemm.bench.rounds import Settings, Tournament
from clgemm.bench.survey import KINDS, Bounds, possible_kinds, random_cases, range_text
from clgemm.bench.survey_report import SurveyReport
from clgemm.core.precision import PRECISIONS, chosen_precision
from clgemm.core.settings import whole_number
from clgemm.terminal import duration, positive, whole

__all__ = [
    "SETTINGS",
    "add_arguments",
    "cases",
    "draw_survey",
    "enter",
    "explain",
    "new_report",
    "routed",
    "within_time",
]

# Small products take a second for all contenders. `SPIN_TIMES` has the idle threads sleep by then.
SETTINGS = Settings(rounds=5, turn_s=0.02, budget_s=10.0, pause_s=0.05)
SEED = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a survey."""
    parser.add_argument(
        "--survey",
        type=positive,
        metavar="N",
        help="measure N random products instead. Prints ratios by work, kind and layout, and the "
        "worst products with their plans. Also the regret of matmul's choice of the side",
    )
    parser.add_argument(
        "--seed",
        type=whole,
        metavar="S",
        default=SEED,
        help="seed of the survey: the same seed gives the same products everywhere (default: "
        "%(default)s)",
    )
    default = Bounds()
    parser.add_argument(
        "--sides",
        type=_range,
        metavar="LOW:HIGH",
        help=f"of m, n and k in a survey (default: {range_text(default.sides, ':')})",
    )
    parser.add_argument(
        "--work",
        type=_range,
        metavar="LOW:HIGH",
        help=f"multiply-adds in a survey (default: {range_text(default.work, ':')})",
    )
    parser.add_argument(
        "--minutes",
        type=duration("minutes"),
        metavar="M",
        help="end a survey after so many minutes: as many products as fit, drawn from the N",
    )
    parser.add_argument(
        "--data",
        choices=sorted(DATA),
        default="normal",
        help="distribution of the elements in a survey (default: %(default)s)",
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="clgemm's mode (default: CLGEMM_PRECISION or float32)",
    )


def _range(text: str) -> tuple[int, int]:
    """Parse a range such as ``64:2048`` or ``1e5:1e9``."""
    try:
        if not re.fullmatch(r"[^:]+:[^:]+", text):
            raise ValueError
        low, high = map(whole_number, text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a range of two whole numbers, such as 64:2048"
        ) from None
    return low, high


def _bounds(args: argparse.Namespace) -> Bounds:
    given = {name: getattr(args, name) for name in ("sides", "work") if getattr(args, name)}
    return Bounds(**given)


def cases(args: argparse.Namespace, peers: Sequence[str]) -> list[Case]:
    """Return the products of a survey.

    Raises
    ------
    ValueError
        If there are no such products or no peers, or if shapes are named too.
    """
    if args.shapes is not None:
        raise ValueError("--shapes and --survey exclude each other")
    if not peers:
        raise ValueError("a survey needs a peer: --peers none leaves nothing to compare with")
    found = random_cases(args.survey, args.seed, _bounds(args), args.data)
    if args.minutes is not None:
        random.Random(args.seed).shuffle(found)  # so that too little time favours no size
    return found


def within_time(
    args: argparse.Namespace, products: Sequence[Case], report: Report
) -> Iterator[Case]:
    """Yield products until the time is up, one at least; note in the report how many there were."""
    end = math.inf if args.minutes is None else time.monotonic() + 60 * args.minutes
    for count, product in enumerate(products):
        if count and time.monotonic() >= end:
            report.notes.append(
                f"{count} of {len(products)} products were measured in {args.minutes:g} minutes"
            )
            return
        yield product


def new_report(machine: dict[str, Any], args: argparse.Namespace) -> SurveyReport:
    """Return an empty report that says what is surveyed."""
    bounds = _bounds(args)
    survey = {
        "count": args.survey,
        "seed": args.seed,
        "sides": bounds.sides,
        "work": bounds.work,
        "data": args.data,
        "precision": chosen_precision(args.precision),
    }
    report = SurveyReport(machine, survey=survey)
    if absent := set(KINDS) - set(possible_kinds(bounds)):
        report.notes.append(f"kinds outside these bounds: {', '.join(sorted(absent))}")
    return report


def routed(peers: Sequence[str]) -> list[str]:
    """Return the contender whose regret is measured, if NumPy is among the peers."""
    return [ROUTED] if "NumPy" in peers else []


def enter(tournament: Tournament, peers: Sequence[str]) -> None:
    """Leave out modes without a peer, and enter the contender of `routed`.

    Raises
    ------
    RequestError
        If there is no peer at all.
    """
    if not peers:
        raise RequestError("none of the peers is here: a survey has nothing to compare with")
    modes = {PEERS[peer] for peer in peers}
    tournament.contenders = {
        mode: names + routed(peers) * (mode == HOST)
        for mode, names in tournament.contenders.items()
        if mode in modes
    }


def explain(
    report: SurveyReport, ours: Worker, case: Case, modes: Mapping[str, Sequence[Outcome]]
) -> None:
    """Add clgemm's plan of a product to a report, for each mode in which it is right."""
    for mode, outcomes in modes.items():
        if outcomes[0].ok:
            try:
                plan = ours.ask("plan", case=case.as_dict(), mode=mode)
            except (RequestError, WorkerDiedError) as error:
                plan = {"family": "", "config": "", "launches": f"no plan: {error}"}
            report.plans.setdefault(case, {})[mode] = plan


def draw_survey(report: SurveyReport) -> Callable[[Path], None]:
    """Return what writes the pictures of a survey to a file."""

    def draw(file: Path) -> None:
        from clgemm.bench import survey_plot  # needs matplotlib

        survey_plot.draw(report, str(file))

    return draw
