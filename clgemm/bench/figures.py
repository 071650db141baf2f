"""Medians, spreads and ratios of the measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from clgemm.bench.cases import Case
from clgemm.terminal import json_number

__all__ = ["SKIPPED", "Outcome", "Spread", "ratios", "spread"]

SKIPPED = "skipped: "  # the beginning of `failure` for a case that was skipped


class Spread(NamedTuple):
    """The median, the least and the greatest of several figures."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the range of figures.

    Raises
    ------
    ValueError
        If there are no figures.
    """
    if not values:
        raise ValueError("there are no figures to take a median of")
    return Spread(median(values), min(values), max(values))


def ratios(ours_s: Sequence[float], theirs_s: Sequence[float]) -> list[float]:
    """Return for each round how many times faster clgemm was than a peer.

    The two times of a round are measured one right after the other. If the machine is slow in a
    round, both are slow.

    Parameters
    ----------
    ours_s, theirs_s : sequences of float
        Seconds per call, one figure for each round.

    Raises
    ------
    ValueError
        If the rounds differ in number.
    """
    return [theirs / ours for ours, theirs in zip(ours_s, theirs_s, strict=True)]


@dataclass
class Outcome:
    """The times and the errors of one contender for one case.

    Attributes
    ----------
    contender : str
        ``"clgemm"``, ``"NumPy"`` and so on.
    rounds_s : list of float
        Seconds per call: the median of each turn.
    error : float
        ||C - C_ref|| / ||C_ref|| in Frobenius norms, where C_ref is computed in float64.
    worst : float
        The largest |C - C_ref| of an element, divided by the bound on its rounding error.
    failure : str
        Why there is no figure; empty if there is one.
    side : str
        The side that a contender has chosen, if it chooses: ``"host"`` or ``"device"``.
    """

    contender: str
    case: Case
    rounds_s: list[float] = field(default_factory=list)
    error: float = float("nan")
    worst: float = float("nan")
    failure: str = ""
    side: str = ""

    @property
    def ok(self) -> bool:
        """Whether the product was timed and is right."""
        # For a NaN this is False, as it should be; "not worst > 1" would be True.
        return not self.failure and bool(self.rounds_s) and self.worst <= 1

    @property
    def trouble(self) -> str:
        """Why no speed is reported; empty if one is."""
        if self.failure or self.ok:
            return self.failure
        if not self.rounds_s:
            return "was not timed"
        return f"WRONG: an element's error is {self.worst:.3g} times the bound of rounding errors"

    @property
    def skipped(self) -> bool:
        """Whether it was skipped, for lack of time or because the library has no such product."""
        return self.failure.startswith(SKIPPED)

    @property
    def verdict(self) -> str:
        """One word for a table's cell; empty if there is a figure."""
        if self.ok:
            return ""
        if self.skipped:
            return "skipped"
        return "failed" if self.failure or not self.rounds_s else "WRONG"

    @property
    def time_s(self) -> Spread:
        """The median and the range of the rounds' seconds per call."""
        return spread(self.rounds_s)

    @property
    def gflops(self) -> float:
        """Billions of operations per second at the median; 0 unless the product is right."""
        return self.case.flops / self.time_s.median / 1e9 if self.ok else 0.0

    def ratio_to(self, peer: Outcome) -> Spread | None:
        """Return how many times faster this was than a peer; None unless both are right."""
        return spread(ratios(self.rounds_s, peer.rounds_s)) if self.ok and peer.ok else None

    def as_dict(self, peak_gflops: float) -> dict[str, Any]:
        """Return all figures, for JSON."""
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
