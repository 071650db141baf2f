"""The expected time of adding up the partial products of split-k. Pure."""

from __future__ import annotations

from clgemm.core.costs import Costs

__all__ = ["reduce_us"]


def reduce_us(elements: int, slices: int, costs: Costs) -> float:
    """Return the expected time of a launch that adds up `slices` of so many elements."""
    read, written = elements * slices / costs.reduce_elements, elements / costs.reduced_elements
    return costs.reduce_us + read + written
