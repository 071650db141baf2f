"""``python -m clgemm bench --survey N``: random products, their ratios and the worst of them.

It is a benchmark with other products, and a report by work, kind, smallest side and layout. The
regret is the time of `clgemm.matmul`, which chooses the side, over that on the better side.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any

import numpy as np

from clgemm.bench.cases import DATA, KINDS, Bounds, Case, possible_kinds, random_cases, range_text
from clgemm.bench.contenders import CONTROL, DEVICE, HOST, ROUTED, against
from clgemm.bench.report import Report, machine_lines, print_rows, troubles
from clgemm.bench.rounds import Outcome, Settings
from clgemm.core.child import RequestError
from clgemm.core.settings import PRECISIONS, chosen_precision, whole_number
from clgemm.terminal import duration, positive, whole

SIDE_BANDS = {"1 to 7": 7, "8 to 63": 63, "64 to 383": 383, "384 or more": 10**9}  # the greatest


def summary(ratios: Sequence[float]) -> dict[str, float]:
    """Return the statistics of one ratio or more.

    Returns
    -------
    dict
        ``count``; ``mean``, which is geometric; ``low``, ``median`` and ``high``, the 5th, 50th and
        95th percentiles; ``least`` and ``greatest``.
    """
    found = {"count": len(ratios), "mean": geometric_mean(ratios)}
    points = {"low": 5, "median": 50, "high": 95, "least": 0, "greatest": 100}
    return found | {name: float(np.percentile(ratios, at)) for name, at in points.items()}


def groupings(cases: Iterable[Case]) -> dict[str, dict[str, list[Case]]]:
    """Return the products all together, and by work, kind, smallest side and layout."""
    found: dict[str, dict[str, list[Case]]] = {}
    cases = sorted(cases, key=lambda case: case.work)
    for name, (key, order) in GROUPINGS.items():
        groups: dict[str, list[Case]] = {}
        for case in cases:
            groups.setdefault(key(case), []).append(case)
        found[name] = {title: groups[title] for title in order or groups if title in groups}
    return found


def _decade(case: Case) -> str:
    power = len(str(case.work)) - 1
    return f"1e{power} to 1e{power + 1}"


def _band(case: Case) -> str:
    side = min(case.m, case.n, case.k)
    return next(name for name, greatest in SIDE_BANDS.items() if side <= greatest)


def _layout(case: Case) -> str:
    layouts = case.layout_a + case.layout_b
    if layouts == "NN":
        return "row-major"
    return "transposed" if set(layouts) <= set("NT") else "sliced"


# For each grouping, the group of a product, and the order of the groups: by work if it is empty.
GROUPINGS: dict[str, tuple[Callable[[Case], str], tuple[str, ...]]] = {
    "all": (lambda _: "all", ()),
    "multiply-adds": (_decade, ()),
    "kind": (lambda case: case.group, tuple(KINDS)),
    "smallest side": (_band, tuple(SIDE_BANDS)),
    "layout": (_layout, ("row-major", "transposed", "sliced")),
}


def regret(routed: Outcome, host: Outcome, device: Outcome) -> float | None:
    """Return the time of a product over that on the better side; None unless all three are right.

    The better side is the one with the lesser median. The ratio is the median of the rounds'
    ratios.

    Parameters
    ----------
    routed : Outcome
        clgemm's choice of the side.
    host, device : Outcome
        The same product on either side.
    """
    if not (routed.ok and host.ok and device.ok):
        return None
    better = min(host, device, key=lambda outcome: outcome.time_s.median)
    ratio = better.ratio_to(routed)
    return ratio.median if ratio else None


BEST = "best peer"
WORST = 20  # products that are listed by themselves
TITLES = {HOST: "NumPy arrays", DEVICE: "device arrays"}
EXTRA = (ROUTED, CONTROL)  # they are no peers
Ratios = dict[Case, float]


@dataclass
class SurveyReport(Report):
    """All measurements of a survey.

    Attributes
    ----------
    survey : dict
        ``count``, ``seed``, ``sides``, ``work``, ``data``, ``precision``.
    """

    survey: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether each of clgemm's products is right or was skipped, on either side."""
        outcomes = [each for _, modes in self.results for each in modes.get(HOST, [])]
        return super().ok and all(x.ok or x.skipped for x in outcomes if x.contender == ROUTED)

    def ratios(self, mode: str) -> dict[str, Ratios]:
        """Return by peer how many times faster clgemm was, where both are right.

        The `BEST` peer of a product is the one to which clgemm's ratio is the least. It comes first
        and is left out if there is one peer only.
        """
        found: dict[str, Ratios] = {}
        for case, modes in self.results:
            for peer in modes.get(mode, [])[1:]:
                if peer.contender not in EXTRA and (ratio := modes[mode][0].ratio_to(peer)):
                    found.setdefault(peer.contender, {})[case] = ratio.median
        if len(found) < 2:
            return found
        best: Ratios = {}
        for by_case in found.values():
            for case, value in by_case.items():
                best[case] = min(value, best.get(case, value))
        return {BEST: best, **found}

    def regrets(self, of: str = ROUTED) -> Ratios:
        """Return the regret of `clgemm.matmul` from NumPy arrays, where it was measured.

        That of the `CONTROL` is what two processes differ by that compute the same. It is for
        products of which NumPy's side is the better one.
        """
        found = {}
        for case, modes in self.results:
            by_name = {outcome.contender: outcome for outcome in modes.get(HOST, [])}
            if {of, "NumPy"} <= set(by_name):
                host, device = by_name["NumPy"], by_name["clgemm"]
                value = regret(by_name[of], host, device)
                is_hosts = value and host.time_s.median <= device.time_s.median
                if value is not None and (of == ROUTED or is_hosts):
                    found[case] = value
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return all measurements and their statistics, for JSON."""
        found, regrets = super().as_dict(), self.regrets()
        for entry, (case, _) in zip(found["cases"], self.results, strict=True):
            entry["regret"] = regrets.get(case)
        by_peer = {mode: self.ratios(mode) for mode in TITLES}
        return found | {
            "survey": self.survey,
            "summary": {
                mode: {peer: summaries(ratios) for peer, ratios in peers.items()}
                for mode, peers in by_peer.items()
            },
            "regret": summaries(regrets),
            "control": summaries(self.regrets(CONTROL)),
        }


def summaries(ratios: Ratios) -> dict[str, dict[str, dict[str, float]]]:
    """Return the statistics of all products and of each group of `groupings`."""
    return {
        name: {title: summary([ratios[case] for case in cases]) for title, cases in groups.items()}
        for name, groups in groupings(ratios).items()
    }


def print_survey(report: SurveyReport) -> None:
    """Print the machine, the statistics of the ratios and regrets, and the worst products."""
    print(*_head(report), sep="\n", end="\n\n")
    for mode, title in TITLES.items():
        ratios = report.ratios(mode)
        if not ratios:
            continue
        first, *others = ratios
        _print_summaries(f"{title}: how many times faster than {first}", ratios[first])
        if others:
            _print_peers(f"{title}: mean (5 %) to each peer", {x: ratios[x] for x in others})
        _print_worst(report, mode, ratios[first])
    if regrets := report.regrets():
        _print_summaries("matmul of NumPy arrays: its time over the better side's", regrets, True)
        if control := report.regrets(CONTROL):
            _print_summaries("of it, where NumPy is better: NumPy again, over NumPy", control, True)
        _print_regrets(report, regrets)
    every = [outcome for _, modes in report.results for each in modes.values() for outcome in each]
    for trouble, labels in troubles(every).items():
        shown = "; ".join(labels[:WORST]) + ("; ..." if len(labels) > WORST else "")
        print(f"{len(labels)} products ({shown}): {trouble}")
    print(*report.notes, sep="\n")


def _head(report: SurveyReport) -> Iterator[str]:
    survey = report.survey
    yield from machine_lines(report.machine)
    yield (
        f"survey of {survey['count']} random products, seed {survey['seed']}: "
        f"sides {range_text(survey['sides'], ' to ')}, "
        f"multiply-adds {range_text(survey['work'], ' to ')}, "
        f"precision {survey['precision']}, {survey['data']} data ({DATA[survey['data']]})"
    )
    yield "a ratio above 1: clgemm is faster; the median of the rounds' ratios"


def _print_summaries(title: str, ratios: Ratios, is_regret: bool = False) -> None:
    headings = ["products", "mean", "5 %", "50 %", "95 %", "greatest" if is_regret else "least"]

    def cells(each: dict[str, float]) -> list[str]:
        names = "mean", "low", "median", "high", headings[-1]
        return [str(each["count"]), *(f"{each[name]:.2f}" for name in names)]

    found = summaries(ratios)
    _print_groups(
        title, headings, {n: {x: cells(y) for x, y in by.items()} for n, by in found.items()}
    )


def _print_peers(title: str, ratios: dict[str, Ratios]) -> None:
    """Print the geometric mean and the 5th percentile of each peer's ratios."""
    by_peer = [summaries(by_case) for by_case in ratios.values()]
    every = {case: 1.0 for by_case in ratios.values() for case in by_case}

    def cell(each: dict[str, float] | None) -> str:
        return f"{each['mean']:.2f} ({each['low']:.2f})" if each else ""

    found = {
        name: {label: [cell(each[name].get(label)) for each in by_peer] for label in groups}
        for name, groups in groupings(every).items()
    }
    _print_groups(title, list(ratios), found)


def _print_groups(title: str, headings: list[str], by: dict[str, dict[str, list[str]]]) -> None:
    """Print the cells of each group of `groupings`, below the grouping's name."""
    rows = []
    for name, groups in by.items():
        if name != "all":
            rows.append([name, *[""] * len(headings)])
        indent = "" if name == "all" else "  "
        rows += [[f"{indent}{label}", *cells] for label, cells in groups.items()]
    print_rows(title, ["", *headings], rows)


def _print_worst(report: SurveyReport, mode: str, ratios: Ratios) -> None:
    """Print the products with the least ratios."""
    headings = ["m x n x k", "kind", "ratio", "peer", "ms", "peer's ms"]
    modes = dict(report.results)
    rows = []
    for case in sorted(ratios, key=ratios.__getitem__)[:WORST]:
        ours, *peers = modes[case][mode]
        found = [(p, ratio.median) for p in peers if (ratio := ours.ratio_to(p))]
        peer, _ = min((x for x in found if x[0].contender not in EXTRA), key=lambda x: x[1])
        rows.append(
            [
                *(case.label, case.group, f"{ratios[case]:.2f}"),
                *(peer.contender, _milliseconds(ours), _milliseconds(peer)),
            ]
        )
    print_rows(f"{TITLES[mode]}: the {len(rows)} worst", headings, rows, 2)


def _print_regrets(report: SurveyReport, regrets: Ratios) -> None:
    modes = dict(report.results)
    rows = []
    for case in sorted(regrets, key=regrets.__getitem__, reverse=True)[:WORST]:
        by_name = {outcome.contender: outcome for outcome in modes[case][HOST]}
        times = (_milliseconds(by_name[name]) for name in (ROUTED, "NumPy", "clgemm"))
        rows.append([case.label, case.group, f"{regrets[case]:.2f}", *times])
    headings = ["m x n x k", "kind", "regret", "matmul, ms", "host, ms", "device, ms"]
    print_rows(f"matmul of NumPy arrays: the {len(rows)} worst", headings, rows, 2)


def _milliseconds(outcome: Outcome) -> str:
    return f"{outcome.time_s.median * 1e3:.3g}"


# Small products take a second for all contenders. `SPIN_TIMES` has the idle threads sleep by then.
SETTINGS = Settings(rounds=5, turn_s=0.02, budget_s=10.0, pause_s=0.05)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a survey."""
    parser.add_argument(
        "--survey",
        type=positive,
        metavar="N",
        help="measure N random products instead. Prints ratios by work, kind and layout, and the "
        "worst products. Also the regret of matmul's choice of the side",
    )
    parser.add_argument(
        "--seed",
        type=whole,
        metavar="S",
        default=0,
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
    """Return the bounds that ``--sides`` and ``--work`` give.

    Raises
    ------
    ValueError
        If they are no ranges.
    """
    return Bounds(args.sides or Bounds().sides, args.work or Bounds().work)


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
    """Return the contenders whose regret is measured, if NumPy is among the peers."""
    return [*EXTRA] if "NumPy" in peers else []


def contenders(peers: Sequence[str]) -> dict[str, list[str]]:
    """Return who competes with NumPy arrays and with device arrays, where there is a peer.

    Raises
    ------
    RequestError
        If there is no peer at all.
    """
    if not peers:
        raise RequestError("none of the peers is here: a survey has nothing to compare with")
    found = against(peers)
    found[HOST] += routed(peers)
    return {mode: names for mode, names in found.items() if len(names) > 1}
