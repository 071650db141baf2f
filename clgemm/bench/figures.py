"""Medians, spreads and ratios of what was timed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from clgemm.bench.cases import Case
from clgemm.terminal import json_number

__all__ = ["SKIPPED", "Outcome", "Spread", "ratios", "spread"]

SKIPPED = "skipped: "  # how the failure of what was left out begins


class Spread(NamedTuple):
    """The median of several figures, and the least and the greatest of them."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the range of figures.

    Raises
    ------
    ValueError
        If there are none.
    """
    if not values:
        raise ValueError("there are no figures to take a median of")
    return Spread(median(values), min(values), max(values))


def ratios(ours_s: Sequence[float], theirs_s: Sequence[float]) -> list[float]:
    """Return how many times faster we were, round by round.

    A ratio within a round is of neighbours in time: a machine that slows down for some rounds
    slows both.

    Parameters
    ----------
    ours_s, theirs_s : sequences of float
        Seconds per call, one figure a round.

    Raises
    ------
    ValueError
        If the rounds differ in number.
    """
    return [theirs / ours for ours, theirs in zip(ours_s, theirs_s, strict=True)]


@dataclass
class Outcome:
    """What one contender did with one case.

    Attributes
    ----------
    contender : str
        ``"clgemm"``, ``"NumPy"`` and so on.
    rounds_s : list of float
        Seconds per call: the median of each turn.
    error : float
        ||C - C_ref|| / ||C_ref||, Frobenius norms, against float64.
    worst : float
        The largest |C - C_ref| of an element, in units of what rounding can cause there at most.
    failure : str
        Why there is no figure; empty where there is one.
    """

    contender: str
    case: Case
    rounds_s: list[float] = field(default_factory=list)
    error: float = float("nan")
    worst: float = float("nan")
    failure: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was timed and right."""
        # Not "worst > 1": a NaN is no right result either.
        return not self.failure and bool(self.rounds_s) and self.worst <= 1

    @property
    def trouble(self) -> str:
        """What keeps its time from being reported as speed; empty where nothing does."""
        if self.failure or self.ok:
            return self.failure
        if not self.rounds_s:
            return "was not timed"
        return f"WRONG: an element's error is {self.worst:.3g} times what rounding explains"

    @property
    def skipped(self) -> bool:
        """Whether it was left out, for want of time or because the library has no such product."""
        return self.failure.startswith(SKIPPED)

    @property
    def verdict(self) -> str:
        """One word for a table's cell; empty where there is a figure."""
        if self.ok:
            return ""
        if self.skipped:
            return "skipped"
        return "failed" if self.failure or not self.rounds_s else "WRONG"

    @property
    def time_s(self) -> Spread:
        """Seconds per call, over the rounds."""
        return spread(self.rounds_s)

    @property
    def gflops(self) -> float:
        """Billions of operations per second at the median; 0 unless it was right."""
        return self.case.flops / self.time_s.median / 1e9 if self.ok else 0.0

    def ratio_to(self, peer: Outcome) -> Spread | None:
        """Return how many times faster this was than a peer; None unless both were right."""
        return spread(ratios(self.rounds_s, peer.rounds_s)) if self.ok and peer.ok else None

    def as_dict(self, peak_gflops: float) -> dict[str, Any]:
        """Return everything about it, for JSON."""
        timed = {"time_s": self.time_s._asdict()} if self.ok else {}
        return {
            "contender": self.contender,
            "correct": self.ok,
            **timed,
            "rounds_s": self.rounds_s,
            "gflops": self.gflops or None,
            "of_peak": self.gflops / peak_gflops if self.ok and peak_gflops else None,
            "error": json_number(self.error),
            "worst": json_number(self.worst),
            "failure": self.trouble,
        }
