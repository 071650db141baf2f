"""Products with few rows or columns: which those are, and what their kernels share. Pure."""

from __future__ import annotations

from typing import NamedTuple

from clgemm.core.layout import Layout
from clgemm.core.steps import LONGEST_SUM, Side, ceil_div, round_up

__all__ = [
    "LEAST_WORK",
    "MOST_ROWS",
    "MOST_ROWS_ON_CPU",
    "SMALLEST_SLICE",
    "FewRows",
    "few_rows",
    "fits_few_rows",
    "slice_of_k",
]

MOST_ROWS, MOST_ROWS_ON_CPU = 8, 64
LEAST_WORK = 4096  # multiply-adds: more are worth dividing among work-groups
SMALLEST_SLICE = 256  # of k, which is cut where C is too small to occupy every compute unit


class FewRows(NamedTuple):
    """A product with the shorter side as rows.

    Attributes
    ----------
    slot_a, slot_b : "a" or "b"
        The operands that serve as its A and B; exchanged if it is the transposed product.
    """

    a: Layout
    b: Layout
    c: Layout
    slot_a: Side
    slot_b: Side


def few_rows(a: Layout, b: Layout, c: Layout) -> FewRows:
    """Return a product, or its transpose, so that C has no more rows than columns."""
    if c.rows <= c.columns:
        return FewRows(a, b, c, "a", "b")
    return FewRows(b.transposed(), a.transposed(), c.transposed(), "b", "a")


def fits_few_rows(a: Layout, b: Layout, c: Layout, most: int = MOST_ROWS) -> bool:
    """Tell whether C has few rows or columns and the large operand is contiguous along one axis.

    Parameters
    ----------
    most : int
        Rows or columns that are few.
    """
    _, b, c, _, _ = few_rows(a, b, c)
    return c.rows <= most and 1 in (b.column_stride, b.row_stride)


def slice_of_k(k: int, wanted: int, width: int) -> int:
    """Return the depth of a slice if `wanted` slices of k are best."""
    cuts = max(1, min(wanted, k // SMALLEST_SLICE), ceil_div(k, LONGEST_SUM))
    return round_up(ceil_div(k, cuts), width)  # vectors may lie along k: no slice cuts one
