"""The launches of the direct family. Pure."""

from __future__ import annotations

from clgemm.core.layout import Layout
from clgemm.core.steps import Plan
from clgemm.kernels.common.in_place import steps_in_place
from clgemm.kernels.direct.config import DirectConfig

__all__ = ["make_direct_plan"]


def make_direct_plan(a: Layout, b: Layout, c: Layout, config: DirectConfig) -> Plan:
    """Return the launches of ``C = alpha A B + beta C``; k may be 0."""
    tile = config.items_m * config.work_m, config.items_n * config.width
    return Plan(tuple(steps_in_place(a, b, c, config, tile)))
