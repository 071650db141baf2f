"""What kernels share that read both operands where they lie: their launches, and few rows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from clgemm.core.config import KernelConfig
from clgemm.core.plan import (
    LAST_GROUP,
    LONGEST_SUM,
    Element,
    Side,
    Slot,
    Step,
    batch_of,
    ceil_div,
    operand_in_place,
    round_up,
    slices,
)
from clgemm.core.problem import Layout, batch_levels

# Of products with few rows or columns.
MOST_ROWS, MOST_ROWS_ON_CPU = 8, 64
LEAST_WORK = 4096  # multiply-adds: more are worth dividing among work-groups
SMALLEST_SLICE = 256  # of k, which is cut where C is too small to occupy every compute unit


def steps_in_place(
    a: Layout,
    b: Layout,
    c: Layout,
    config: KernelConfig,
    tile: tuple[int, int],
    earlier: int = 0,
) -> Iterator[Step]:
    """Yield the launches of ``C = alpha A B + beta C``; k may be 0, and a long one is cut.

    Parameters
    ----------
    tile : (int, int)
        Rows and columns of C per work-group.
    earlier : int, optional
        By how many columns a row of tiles may begin before the first one.
    """
    m, n, k = c.rows, c.columns, a.columns
    groups = ceil_div(m, tile[0]) * ceil_div(n + earlier, tile[1])
    slot_a: Slot = "a" if k else "c"  # the argument must be a buffer, even if it is not read
    slot_b: Slot = "b" if k else "c"
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // groups, 3):
        batch = batch_of(levels, 3)
        first_c, (strides_a, strides_b, strides_c) = Element("c", offsets[2]), batch.strides
        for p in range(0, max(k, 1), LONGEST_SUM):
            first_a = Element(slot_a, offsets[0] + p * a.column_stride)
            first_b = Element(slot_b, offsets[1] + p * b.row_stride)
            yield Step(
                config,
                groups * batch.matrices,
                {
                    "m": m,
                    "n": n,
                    "k": min(k - p, LONGEST_SUM),
                    "counts": batch.counts,
                    "alpha": "alpha",
                    "beta": 1.0 if p else "beta",
                    **operand_in_place("a", slot_a, first_a, a, strides=strides_a),
                    **operand_in_place("b", slot_b, first_b, b, strides=strides_b),
                    **operand_in_place("c", "c", first_c, c, strides=strides_c),
                },
            )


class FewRows(NamedTuple):
    """A product with the shorter side as rows."""

    a: Layout
    b: Layout
    c: Layout
    slot_a: Side  # the operand that serves as its A: "b" if it is the transposed product
    slot_b: Side


def few_rows(a: Layout, b: Layout, c: Layout) -> FewRows:
    """Return a product, or its transpose, so that C has no more rows than columns."""
    if c.rows <= c.columns:
        return FewRows(a, b, c, "a", "b")
    return FewRows(b.transposed(), a.transposed(), c.transposed(), "b", "a")


def fits_few_rows(a: Layout, b: Layout, c: Layout, most: int = MOST_ROWS) -> bool:
    """Return whether C has few rows or columns and the large operand is contiguous along one axis.

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
