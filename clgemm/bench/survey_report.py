"""The results of a survey: ratios and regrets, their tables and their JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from clgemm.bench.cases import DATA, Case
from clgemm.bench.contenders import DEVICE, HOST, ROUTED
from clgemm.bench.figures import Outcome
from clgemm.bench.report import SCHEMA, Report
from clgemm.bench.survey import Summary, groupings, range_text, regret, regret_of_choice, summary
from clgemm.terminal import Side, print_table

__all__ = ["BEST", "SurveyReport", "as_json", "print_survey"]

BEST = "best peer"
WORST = 20  # products that are listed by themselves
TITLES = {HOST: "NumPy arrays", DEVICE: "device arrays"}
Ratios = dict[Case, float]


@dataclass
class SurveyReport(Report):
    """All measurements of a survey.

    Attributes
    ----------
    survey : dict
        ``count``, ``seed``, ``sides``, ``work``, ``data``, ``precision``.
    plans : dict of Case to dict of str to dict
        What clgemm runs for each product and mode: `clgemm.bench.plans.described`.
    """

    survey: dict[str, Any] = field(default_factory=dict)
    plans: dict[Case, dict[str, dict[str, Any]]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether each of clgemm's products is right or was skipped, on either side."""
        routed = [
            outcome for each in self._outcomes(HOST) for outcome in each if _is_routed(outcome)
        ]
        return super().ok and all(outcome.ok or outcome.skipped for outcome in routed)

    def _outcomes(self, mode: str) -> list[list[Outcome]]:
        return [modes[mode] for _, modes in self.results if mode in modes]

    def ratios(self, mode: str) -> dict[str, Ratios]:
        """Return by peer how many times faster clgemm was, where both are right.

        The `BEST` peer of a product is the one to which clgemm's ratio is the least. It comes first
        and is left out if there is one peer only.
        """
        found: dict[str, Ratios] = {}
        for ours, *peers in self._outcomes(mode):
            for peer in peers:
                if not _is_routed(peer) and (ratio := ours.ratio_to(peer)):
                    found.setdefault(peer.contender, {})[ours.case] = ratio.median
        if len(found) < 2:
            return found
        best: Ratios = {}
        for by_case in found.values():
            for case, value in by_case.items():
                best[case] = min(value, best.get(case, value))
        return {BEST: best, **found}

    def regrets(self) -> Ratios:
        """Return the regret of `clgemm.matmul` from NumPy arrays, where it was measured."""
        return self._regrets(regret)

    def regrets_of_choice(self) -> Ratios:
        """Return what of it is due to the choice: see `clgemm.bench.survey.regret_of_choice`."""
        return self._regrets(regret_of_choice)

    def _regrets(self, of: Callable[[Outcome, Outcome, Outcome], float | None]) -> Ratios:
        found = {}
        for outcomes in self._outcomes(HOST):
            by_name = {outcome.contender: outcome for outcome in outcomes}
            if {ROUTED, "NumPy"} <= set(by_name):
                value = of(by_name[ROUTED], by_name["NumPy"], by_name["clgemm"])
                if value is not None:
                    found[outcomes[0].case] = value
        return found


def _is_routed(outcome: Outcome) -> bool:
    return outcome.contender == ROUTED


def summaries(ratios: Ratios) -> dict[str, dict[str, Summary]]:
    """Return the statistics of all products and of each group of `groupings`."""
    return {
        name: {title: summary([ratios[case] for case in cases]) for title, cases in groups.items()}
        for name, groups in groupings(ratios).items()
    }


def as_json(report: SurveyReport) -> str:
    """Return all measurements as JSON, a product in each line."""
    head = {
        "schema": SCHEMA,
        **report.machine,
        "survey": report.survey,
        "summary": {
            mode: {peer: _summaries_as_dict(ratios) for peer, ratios in report.ratios(mode).items()}
            for mode in TITLES
        },
        "regret": _summaries_as_dict(report.regrets()),
        "regret_of_choice": _summaries_as_dict(report.regrets_of_choice()),
        "notes": report.notes,
    }
    text = json.dumps(head, indent=1, allow_nan=False).removesuffix("\n}")
    cases = ",\n".join(json.dumps(each, allow_nan=False) for each in _cases(report))
    return f'{text},\n "cases": [\n{cases}\n]}}'


def _summaries_as_dict(ratios: Ratios) -> dict[str, Any]:
    return {
        name: {title: {k: _short(x) for k, x in asdict(each).items()} for title, each in by.items()}
        for name, by in summaries(ratios).items()
    }


def _short(value: float) -> float:
    """Return a figure with four digits, so that the file is short."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


def _cases(report: SurveyReport) -> Iterator[dict[str, Any]]:
    regrets = {"regret": report.regrets(), "regret_of_choice": report.regrets_of_choice()}
    for case, modes in report.results:
        entry: dict[str, Any] = {"label": case.label, **case.as_dict(), "work": case.work}
        for mode, outcomes in modes.items():
            plan = report.plans.get(case, {}).get(mode)
            entry[mode] = {"plan": plan} | {
                outcome.contender: {
                    "time_s": _short(outcome.time_s.median) if outcome.ok else None,
                    "ratio": _ratio(outcomes[0], outcome),
                }
                | ({"failure": outcome.trouble} if outcome.trouble else {})
                | ({"side": outcome.side} if outcome.side else {})
                for outcome in outcomes
            }
        yield entry | {
            name: _short(found[case]) for name, found in regrets.items() if case in found
        }


def _ratio(ours: Outcome, peer: Outcome) -> float | None:
    ratio = None if peer is ours else ours.ratio_to(peer)
    return _short(ratio.median) if ratio else None


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
        of_choice = report.regrets_of_choice()
        _print_summaries(
            "of it, the choice: the chosen side's time over the better side's", of_choice, True
        )
        _print_regrets(report, regrets, of_choice)
    for trouble, labels in _troubles(report).items():
        shown = "; ".join(labels[:WORST]) + ("; ..." if len(labels) > WORST else "")
        print(f"{len(labels)} products ({shown}): {trouble}")
    print(*report.notes, sep="\n")


def _head(report: SurveyReport) -> Iterator[str]:
    machine, survey = report.machine, report.survey
    device = machine["device"]
    yield f"{device['name']} ({device['kind']}), {device['platform']}, driver {device['driver']}"
    yield f"clgemm {machine['clgemm']}, {device['compute_units']} compute units; " + "; ".join(
        f"{name} {about}" for name, about in machine["peers"].items()
    )
    threads = f"host BLAS with {machine['threads']} threads"
    yield f"{machine['date']}, Python {machine['python']}, {threads}"
    yield (
        f"survey of {survey['count']} random products, seed {survey['seed']}: "
        f"sides {range_text(survey['sides'], ' to ')}, "
        f"multiply-adds {range_text(survey['work'], ' to ')}, "
        f"precision {survey['precision']}, {survey['data']} data ({DATA[survey['data']]})"
    )
    yield "a ratio above 1: clgemm is faster; the median of the rounds' ratios"


def _print_summaries(title: str, ratios: Ratios, is_regret: bool = False) -> None:
    headings = ["", "products", "mean", "5 %", "50 %", "95 %", "greatest" if is_regret else "least"]
    rows = []
    for name, groups in summaries(ratios).items():
        if name != "all":
            rows.append([name, *[""] * (len(headings) - 1)])
        for label, each in groups.items():
            figures = each.mean, each.low, each.median, each.high
            extreme = each.greatest if is_regret else each.least
            cells = [str(each.count), *(f"{value:.2f}" for value in (*figures, extreme))]
            rows.append([label if name == "all" else f"  {label}", *cells])
    _print(title, headings, rows, 1)


def _print_peers(title: str, ratios: dict[str, Ratios]) -> None:
    """Print the geometric mean and the 5th percentile of each peer's ratios."""
    by_peer = {peer: summaries(by_case) for peer, by_case in ratios.items()}
    every = {case: 1.0 for by_case in ratios.values() for case in by_case}
    rows = []
    for name, groups in groupings(every).items():
        if name != "all":
            rows.append([name, *[""] * len(ratios)])
        for label in groups:
            found = [by_peer[peer][name].get(label) for peer in ratios]
            cells = [f"{each.mean:.2f} ({each.low:.2f})" if each else "" for each in found]
            rows.append([label if name == "all" else f"  {label}", *cells])
    _print(title, ["", *ratios], rows, 1)


def _print_worst(report: SurveyReport, mode: str, ratios: Ratios) -> None:
    """Print the products with the least ratios, with plan and family."""
    headings = ["m x n x k", "kind", "family", "ratio", "peer", "ms", "peer's ms", "launches"]
    modes = dict(report.results)
    rows = []
    for case in sorted(ratios, key=ratios.__getitem__)[:WORST]:
        ours, *peers = modes[case][mode]
        peer = min(
            (p for p in peers if not _is_routed(p) and _ratio(ours, p) is not None),
            key=lambda p: _ratio(ours, p) or 0.0,
        )
        plan = report.plans.get(case, {}).get(mode, {})
        rows.append(
            [
                *(case.label, case.group, plan.get("family", ""), f"{ratios[case]:.2f}"),
                *(peer.contender, _milliseconds(ours), _milliseconds(peer)),
                f"{plan.get('launches', '')}; {plan.get('config', '')}",
            ]
        )
    _print(f"{TITLES[mode]}: the {len(rows)} worst", headings, rows, 3)


def _print_regrets(report: SurveyReport, regrets: Ratios, of_choice: Ratios) -> None:
    modes = dict(report.results)
    rows = []
    for case in sorted(regrets, key=regrets.__getitem__, reverse=True)[:WORST]:
        by_name = {outcome.contender: outcome for outcome in modes[case][HOST]}
        times = (_milliseconds(by_name[name]) for name in (ROUTED, "NumPy", "clgemm"))
        figures = f"{regrets[case]:.2f}", f"{of_choice[case]:.2f}", *times
        rows.append([case.label, case.group, by_name[ROUTED].side, *figures])
    of = ["regret", "of it, the choice", "matmul, ms", "host, ms", "device, ms"]
    headings = ["m x n x k", "kind", "side", *of]
    _print(f"matmul of NumPy arrays: the {len(rows)} worst", headings, rows, 3)


def _milliseconds(outcome: Outcome) -> str:
    return f"{outcome.time_s.median * 1e3:.3g}"


def _troubles(report: SurveyReport) -> dict[str, list[str]]:
    """Return what has no figure: the labels by contender and reason."""
    found: dict[str, list[str]] = {}
    for case, modes in report.results:
        for outcomes in modes.values():
            for outcome in outcomes:
                if outcome.trouble:
                    text = f"{outcome.contender}: {outcome.trouble}"
                    found.setdefault(text, []).append(case.label)
    return found


def _print(title: str, headings: list[str], rows: list[list[str]], left: int) -> None:
    sides: tuple[Side, Side] = ("left", "right")
    justify = [
        sides[left <= i < len(headings) - (headings[-1] == "launches")]
        for i in range(len(headings))
    ]
    print_table(title, headings, justify, rows)
    print()
