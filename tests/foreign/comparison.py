"""The comparison of two runs of a suite, plain and accelerated, test by test."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

CRASHED = "crashed"  # the process ended, or was killed, during the test
FAILURES = ("failed", CRASHED)
RANKS = ("passed", "skipped", "xfailed", *FAILURES)  # the last of a test's phases in here counts


@dataclass
class Run:
    """One run of a suite.

    Attributes
    ----------
    status : int or None
        pytest's exit status, negative for a signal; None if the run took too long.
    outcomes : dict
        For each test "passed", "skipped", "xfailed", "failed" or "crashed".
    messages : dict
        The errors of the tests that failed.
    products : dict or None
        The counts of float32 products by side; None in a plain run, or one that did not finish.
    """

    status: int | None
    seconds: float
    outcomes: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    products: dict[str, Any] | None = None

    def failures(self) -> set[str]:
        """Return the tests that failed."""
        return {test for test, outcome in self.outcomes.items() if outcome in FAILURES}

    @property
    def ended_well(self) -> bool:
        """Whether pytest finished, with or without failures."""
        return self.status in (0, 1)


def parsed(lines: Iterable[str], status: int | None, seconds: float) -> Run:
    """Return a run from the lines that the plugin `outcomes` wrote."""
    run = Run(status, seconds)
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:  # the process ended while it wrote the line
            continue
        if "started" in line:
            run.outcomes.setdefault(line["started"], CRASHED)
        elif "test" in line:
            test, outcome = line["test"], line["outcome"]
            before = run.outcomes.get(test, CRASHED)
            if before == CRASHED or RANKS.index(outcome) > RANKS.index(before):
                run.outcomes[test] = outcome
            if "message" in line:
                run.messages[test] = line["message"]
        else:
            run.products = line["products"]
    return run


@dataclass
class Comparison:
    """The differences between the two runs of a suite.

    Attributes
    ----------
    both, only_plain, only_accelerated : list of str
        The tests that failed in both runs, or in one only.
    lost : list of str
        Tests of the plain run that the accelerated run did not reach.
    otherwise : dict
        Tests that did not fail but have different outcomes, with both outcomes.
    repeated : dict
        For each test of `only_accelerated` that was run again: "real" or "flaky".
    """

    suite: str
    plain: Run
    accelerated: Run
    both: list[str]
    only_plain: list[str]
    only_accelerated: list[str]
    lost: list[str]
    otherwise: dict[str, tuple[str, str]]
    repeated: dict[str, str] = field(default_factory=dict)

    @property
    def real(self) -> list[str]:
        """The tests that fail only when accelerated, and fail again when repeated."""
        return [t for t in self.only_accelerated if self.repeated.get(t, "real") == "real"]

    @property
    def is_good(self) -> bool:
        """Whether both runs finished, and no test fails only when accelerated."""
        ended = self.plain.ended_well and self.accelerated.ended_well
        return ended and not self.real and not self.lost

    def as_json(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {
            "suite": self.suite,
            "tests": len(self.plain.outcomes),
            "skipped": sum(x == "skipped" for x in self.plain.outcomes.values()),
            "failed_both": self.both,
            "failed_only_plain": self.only_plain,
            "failed_only_accelerated": self.only_accelerated,
            "failed_again": self.repeated,
            "lost": self.lost,
            "ended_otherwise": self.otherwise,
            "products": self.accelerated.products,
            "status": {"plain": self.plain.status, "accelerated": self.accelerated.status},
            "seconds": {
                "plain": round(self.plain.seconds, 1),
                "accelerated": round(self.accelerated.seconds, 1),
            },
            "messages": {t: self.accelerated.messages.get(t, "") for t in self.only_accelerated},
        }


def compare(suite: str, plain: Run, accelerated: Run) -> Comparison:
    """Compare two runs of a suite by the names of their tests."""
    failed, failed_accelerated = plain.failures(), accelerated.failures()
    return Comparison(
        suite,
        plain,
        accelerated,
        both=sorted(failed & failed_accelerated),
        only_plain=sorted(failed - failed_accelerated),
        only_accelerated=sorted(failed_accelerated - failed),
        lost=sorted(plain.outcomes.keys() - accelerated.outcomes.keys()),
        otherwise={
            test: (outcome, accelerated.outcomes[test])
            for test, outcome in sorted(plain.outcomes.items())
            if outcome not in FAILURES
            and accelerated.outcomes.get(test, outcome) not in (outcome, *FAILURES)
        },
    )


COLUMNS = (
    *("suite", "tests", "skipped", "fail both ways", "fail only plain", "flaky"),
    *("**fail only accelerated**", "lost", "products offloaded", "plain s", "accelerated s"),
)


def table(comparisons: Iterable[Comparison]) -> str:
    """Return the table in Markdown, a row for each suite and one for all."""
    rows: list[list[int]] = []
    names: list[str] = []
    for c in comparisons:
        found = c.as_json()
        names.append(c.suite)
        rows.append(
            [
                *(found["tests"], found["skipped"], len(c.both), len(c.only_plain)),
                *(len(c.only_accelerated) - len(c.real), len(c.real), len(c.lost)),
                (c.accelerated.products or {}).get("offloaded", 0),
                *(round(c.plain.seconds), round(c.accelerated.seconds)),
            ]
        )
    names.append("all")
    rows.append([sum(column) for column in zip(*rows, strict=True)] or [0] * (len(COLUMNS) - 1))
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    for name, row in zip(names, rows, strict=True):
        lines.append(f"| {' | '.join([name, *(f'{value:,}' for value in row)])} |")
    return "\n".join(lines)
