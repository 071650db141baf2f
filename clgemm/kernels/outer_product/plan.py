"""The launches of the outer_product family. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from clgemm.core.config import Limits, variant_of
from clgemm.core.layout import Layout
from clgemm.core.steps import Plan, ceil_div
from clgemm.kernels.common.in_place import steps_in_place
from clgemm.kernels.outer_product.config import (
    DEPTHS,
    MOST_REGISTERS,
    OuterProductConfig,
    OuterProductVariant,
)

__all__ = ["make_outer_plan"]

# With fewer work-groups per compute unit than this, tiles have fewer rows.
LEAST_GROUPS = 4


def make_outer_plan(
    a: Layout, b: Layout, c: Layout, config: OuterProductConfig, limits: Limits
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C``; k is at most the last of `DEPTHS`."""
    fit = fitted(config, a, c, limits)
    return Plan(tuple(steps_in_place(a, b, c, fit, fit.tile)))


def fitted(config: OuterProductConfig, a: Layout, c: Layout, limits: Limits) -> OuterProductVariant:
    """Return a config for this k, with tiles that leave no compute unit without work."""
    depth = next(depth for depth in DEPTHS if depth >= a.columns)
    work_n = min(config.work_n, MOST_REGISTERS // depth)
    while work_n > 1 and config.items_n * (work_n // 2) >= c.columns:
        work_n //= 2
    fit = replace(config, work_n=work_n)

    def groups(fit: OuterProductConfig) -> int:
        tile_m, tile_n = fit.tile
        return ceil_div(c.rows, tile_m) * ceil_div(c.columns, tile_n) * math.prod(c.batch)

    while fit.work_m > 1 and groups(fit) < LEAST_GROUPS * limits.compute_units:
        fit = replace(fit, work_m=fit.work_m // 2)
    return variant_of(OuterProductVariant, fit, depth=depth)
