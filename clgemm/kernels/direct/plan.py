"""The launches of the direct family. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from clgemm.core.layout import Layout, batch_levels
from clgemm.core.steps import (
    LAST_GROUP,
    Element,
    Plan,
    Slot,
    Step,
    batch_of,
    ceil_div,
    operand_in_place,
    slices,
)
from clgemm.kernels.direct.config import DirectConfig

__all__ = ["make_direct_plan"]


def make_direct_plan(a: Layout, b: Layout, c: Layout, config: DirectConfig) -> Plan:
    """Return the launches of ``C = alpha A B + beta C``; k may be 0."""
    return Plan(tuple(_steps(a, b, c, config)))


def _steps(a: Layout, b: Layout, c: Layout, config: DirectConfig) -> Iterator[Step]:
    m, n, k = c.rows, c.columns, a.columns
    tile_m, tile_n = config.items_m * config.work_m, config.items_n * config.width
    groups = ceil_div(m, tile_m) * ceil_div(n, tile_n)
    slot_a: Slot = "a" if k else "c"  # the argument must be a buffer, even if it is not read
    slot_b: Slot = "b" if k else "c"
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // groups, 3):
        batch = batch_of(levels, 3)
        first_a, first_b = Element(slot_a, offsets[0]), Element(slot_b, offsets[1])
        first_c, (strides_a, strides_b, strides_c) = Element("c", offsets[2]), batch.strides
        yield Step(
            config,
            groups * batch.matrices,
            {
                "m": m,
                "n": n,
                "k": k,
                "counts": batch.counts,
                "alpha": "alpha",
                "beta": "beta",
                **operand_in_place("a", slot_a, first_a, a, strides=strides_a),
                **operand_in_place("b", slot_b, first_b, b, strides=strides_b),
                **operand_in_place("c", "c", first_c, c, strides=strides_c),
            },
        )
