"""The launches of kernels that read both operands where they lie, whatever their strides. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from clgemm.core.config import KernelConfig
from clgemm.core.layout import Layout, batch_levels
from clgemm.core.steps import (
    LAST_GROUP,
    LONGEST_SUM,
    Element,
    Slot,
    Step,
    batch_of,
    ceil_div,
    operand_in_place,
    slices,
)

__all__ = ["steps_in_place"]


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
