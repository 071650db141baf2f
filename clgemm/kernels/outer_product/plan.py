"""The launches of the outer_product family. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from clgemm.core.config import FLOAT_BYTES, Limits, variant_of
from clgemm.core.layout import Layout
from clgemm.core.steps import Plan, ceil_div
from clgemm.kernels.common.in_place import steps_in_place
from clgemm.kernels.outer_product.config import (
    DEPTHS,
    MOST_REGISTERS,
    OuterProductConfig,
    OuterProductVariant,
)

__all__ = ["begins_aligned", "make_outer_plan"]

# With fewer work-groups per compute unit than this, tiles have fewer rows.
LEAST_GROUPS = 4
# Up to this `depth`, work-items load so few elements of B that half the rows are enough for them.
SHALLOW = 4
# From this `depth` on, they load so many that they have twice the rows, and work-groups may be
# fewer. On an H100 9001 x 9003 x 16 takes 154 us so, and 166 with as many rows as for `depth` 8.
DEEP, LEAST_DEEP_GROUPS = 16, 3
# Floats that a memory writes as a whole: 32 bytes.
BLOCK = 8


def make_outer_plan(
    a: Layout, b: Layout, c: Layout, config: OuterProductConfig, limits: Limits
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C``; k is at most the last of `DEPTHS`."""
    fit = fitted(config, a, c, limits)
    return Plan(tuple(steps_in_place(a, b, c, fit, fit.tile, fit.align - 1)))


def fitted(config: OuterProductConfig, a: Layout, c: Layout, limits: Limits) -> OuterProductVariant:
    """Return a config for this k, with tiles that leave no compute unit without work."""
    depth = next(depth for depth in DEPTHS if depth >= a.columns)
    work_n = min(config.work_n, MOST_REGISTERS // depth)
    while work_n > 1 and config.items_n * (work_n // 2) >= c.columns:
        work_n //= 2
    work_m, least_groups = config.work_m, LEAST_GROUPS
    if depth <= SHALLOW:
        work_m = max(1, work_m // 2)
    elif depth >= DEEP:
        work_m, least_groups = 2 * work_m, LEAST_DEEP_GROUPS
    fit = variant_of(
        OuterProductVariant, replace(config, work_m=work_m, work_n=work_n), depth=depth
    )

    def is_too_high(fit: OuterProductVariant) -> bool:
        tile_m, tile_n = fit.tile
        groups = ceil_div(c.rows, tile_m) * ceil_div(c.columns, tile_n) * math.prod(c.batch)
        fits = fit.local_memory_bytes <= limits.local_memory_bytes
        return groups < least_groups * limits.compute_units or not fits

    while fit.work_m > 1 and is_too_high(fit):
        fit = replace(fit, work_m=fit.work_m // 2)
    return replace(fit, align=block_of(fit, c))


def block_of(config: OuterProductConfig, c: Layout) -> int:
    """Return how many floats of C neighbours should write as a whole; 1 where rows begin aligned.

    All rows of a work-item must have the same place within blocks.
    """
    divides = config.items_m * c.row_stride % BLOCK == 0
    return BLOCK if c.column_stride == 1 and divides and not begins_aligned(c) else 1


def begins_aligned(c: Layout) -> bool:
    """Tell whether all rows of C begin where a block does."""
    strides = (*c.strides[:-2], c.row_stride)
    is_aligned = all(stride % BLOCK == 0 for stride in strides)
    return is_aligned and c.alignment_bytes % (FLOAT_BYTES * BLOCK) == 0
