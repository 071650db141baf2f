"""The expected times of products on tensor cores. Pure."""

from __future__ import annotations

from clgemm.core.config import FLOAT_BYTES, Limits
from clgemm.core.steps import ceil_div

__all__ = ["narrow_us", "split_us", "tiles_us"]

STEP = 64  # of k


def tiles_us(tiles: int, k: int, is_wide: bool, limits: Limits) -> float:
    """Return how long tiles of 128 rows keep the device busy."""
    costs = limits.costs
    rounds = tiles / limits.compute_units
    rounds += costs.tensor_tail * (ceil_div(tiles, limits.compute_units) - rounds)
    return (
        rounds * ceil_div(k, STEP) * costs.tensor_step_us * (costs.tensor_wide if is_wide else 1.0)
    )


def split_us(elements: int, is_strided: bool, limits: Limits) -> float:
    """Return how long splitting so many elements of both operands takes."""
    costs = limits.costs
    slower = 1 + costs.tensor_strided * is_strided
    return 2 * FLOAT_BYTES * elements / costs.tensor_pack_bytes * slower


def narrow_us(
    groups: int, columns: int, parts: int, depth: int, slices: int, limits: Limits
) -> float:
    """Return how long work-groups with so many columns and parts keep the device busy."""
    costs = limits.costs
    rounds = ceil_div(groups, limits.compute_units)
    steps = ceil_div(ceil_div(depth, STEP), parts)
    step_us = costs.narrow_step_us + costs.narrow_column_us * columns
    adding = costs.narrow_fused_us + slices * costs.narrow_slice_us if slices > 1 else 0.0
    return rounds * (steps * step_us + costs.narrow_round_us) + adding
