"""Counts of what was verified: products, elements, failures, and the largest error. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Count", "Tally"]

MOST_MESSAGES = 20


@dataclass
class Count:
    """What was verified of one thing.

    Attributes
    ----------
    worst : float
        The largest error in units of the bound.
    """

    products: int = 0
    elements: int = 0
    failures: int = 0
    worst: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        worst = float(f"{self.worst:.3g}") if math.isfinite(self.worst) else None
        return {
            "products": self.products,
            "elements": self.elements,
            "failures": self.failures,
            "worst": worst,
        }


@dataclass
class Tally:
    """Counts by kernel family and precision, and by part of the contract."""

    families: dict[str, dict[str, Count]] = field(default_factory=dict)
    configs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    contract: dict[str, Count] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def of_family(self, family: str, precision: str) -> Count:
        """Return the count of a family in a precision."""
        return self.families.setdefault(family, {}).setdefault(precision, Count())

    def of_part(self, name: str) -> Count:
        """Return the count of a part of the contract."""
        return self.contract.setdefault(name, Count())

    def add(self, count: Count, where: str, elements: int, worst: float, message: str) -> None:
        """Count a product; a message that is not "" is a failure."""
        count.products += 1
        count.elements += elements
        if message:
            count.failures += 1
            if len(self.messages) < MOST_MESSAGES:
                self.messages.append(f"{where}: {message}")
        else:
            count.worst = max(count.worst, worst)

    @property
    def counts(self) -> list[Count]:
        """All counts."""
        by_family = [count for modes in self.families.values() for count in modes.values()]
        return [*by_family, *self.contract.values()]

    @property
    def failures(self) -> int:
        """Products that were wrong."""
        return sum(count.failures for count in self.counts)

    @property
    def products(self) -> int:
        """Products in all."""
        return sum(count.products for count in self.counts)
