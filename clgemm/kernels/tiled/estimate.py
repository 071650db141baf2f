"""The expected time of tiles on a device's compute units, and the best split-k. Pure.

The model is for devices that spread work-items over lanes. docs/family_costs.py fits its constants,
which are `clgemm.core.costs.Costs`.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from clgemm.core.config import FLOAT_BYTES, Limits
from clgemm.core.costs import Costs, joined
from clgemm.core.steps import ceil_div, round_up
from clgemm.kernels.split_k.plan import reduce_us

__all__ = ["TiledEstimate", "Tiles", "is_fused", "launch_us", "side_by_side", "tiled_estimate"]

# How many work-groups run side by side on a compute unit.
REGISTERS = 65536  # of a compute unit
OTHER_REGISTERS = 64  # of a work-item, besides its accumulators
REGISTERS_PER_SUM = 1.25
MOST_ITEMS = 2048  # of a compute unit
LOCAL_BYTES = 228 * 1024  # of a compute unit
GROUP_LOCAL_BYTES = 1024  # of a work-group, which the driver takes
LANES = 32
OVERLAP = 1.8  # as in `joined`: arithmetic, latency and memory traffic
MOST_FUSED_SLICES = 32  # with more, one work-group would add up what a whole device could
MOST_SUMS = 64  # accumulators of a work-item: with more, no registers are left to add up
SMALLEST_SLICE = 128  # of k
MOST_GROUPS = 16  # work-groups per compute unit where another launch adds up
MOST_FUSED_GROUPS = 6  # the same with fused split-k
# The numbers of slices that are compared: all small ones, then steps of a quarter.
SLICES = (*range(1, 9), *(round(8 * 1.25**i) for i in range(1, 28)))


# `Costs.unaligned_store` is for work-items of so many columns. A piece of a cache line is written
# alone.
MODELLED_WORK_N = 4
PIECE_FLOATS = 8
MODELLED_SUMS = 32  # `Costs.few_lanes` is for work-items of so many accumulators


class Tiles(NamedTuple):
    """What the model takes of a config: see `TiledConfig` and `TiledVariant`."""

    tile_m: int
    tile_n: int
    tile_k: int
    work_m: int
    work_n: int
    parts: int
    buffers: int
    items: int
    local_memory_bytes: int
    asynchronous: bool
    registers: int
    percent: int
    run: int  # columns of C that neighbours store
    load_a: int
    load_b: int
    transpose_a: bool
    transpose_b: bool
    aligned: bool = True  # C is stored by aligned vectors
    against_rows: bool = False  # the columns of C are no neighbours in memory


@functools.lru_cache(maxsize=256)
def side_by_side(tiles: Tiles) -> int:
    """Return the work-groups that run on a compute unit at the same time."""
    each = tiles.registers or tiles.work_m * tiles.work_n * REGISTERS_PER_SUM + OTHER_REGISTERS
    by_local_memory = LOCAL_BYTES // (tiles.local_memory_bytes + GROUP_LOCAL_BYTES)
    by_registers = int(REGISTERS / (tiles.items * each))
    return max(1, min(by_registers, MOST_ITEMS // tiles.items, by_local_memory))


class TiledEstimate(NamedTuple):
    """The slices of k, the expected time, and whether split-k is fused."""

    slices: int
    time: float
    fused_split_k: bool = False


def launch_us(
    tiles: Tiles, m: int, n: int, k: int, matrices: int, slices: int, fused: bool, limits: Limits
) -> float:
    """Return how long the launch that multiplies is expected to keep the device busy."""
    costs, units = limits.costs, limits.compute_units
    slice_k = round_up(ceil_div(k, slices), tiles.tile_k)
    slices = ceil_div(k, slice_k)
    depth = min(k, slice_k)
    groups = matrices * slices * ceil_div(m, tiles.tile_m) * ceil_div(n, tiles.tile_n)
    rounds: float = ceil_div(groups, units)  # work-groups of the busiest compute unit
    most_together = side_by_side(tiles)
    steps = ceil_div(depth, tiles.tile_k)
    area = tiles.tile_m * tiles.tile_n
    moving = tiles.tile_m * _load_cost(tiles, tiles.load_a, tiles.transpose_a, costs)
    moving += tiles.tile_n * _load_cost(tiles, tiles.load_b, tiles.transpose_b, costs)
    # Copies are made beside the arithmetic; loads take registers and instructions of it.
    work = joined(OVERLAP, area, 4 * moving) if tiles.asynchronous else area + 4 * moving
    # Each group takes longer where few run at the same time, as in the last wave. A work-item with
    # more accumulators has more to do meanwhile.
    waves = math.ceil(rounds / most_together)
    lanes = tiles.items * math.sqrt(tiles.work_m * tiles.work_n / MODELLED_SUMS)
    few = costs.few_lanes * 8 * LANES / lanes
    if waves > 1:
        # A compute unit that ends early takes as many of the last groups as it can. Two groups of
        # equal depth that share one end at the same time.
        share = costs.tail if most_together > 2 else 1.0
        rounds += share * (waves * most_together - rounds)
    each = steps * tiles.tile_k * work + costs.tile_end * area  # multiply-adds of a work-group
    arithmetic = (rounds + few * waves) * each / costs.multiply_adds
    step_us = costs.one_buffer_step_us if tiles.buffers == 1 else costs.step_us
    if min(tiles.load_a, tiles.load_b) < 4:
        step_us = costs.narrow_load_step_us
    if tiles.asynchronous:
        step_us = costs.copied_step_us
    latency = waves * (steps * step_us + costs.part_us * (tiles.parts - 1))
    cached = FLOAT_BYTES * groups * depth * (tiles.tile_m + tiles.tile_n) / costs.cache_bytes
    read, written = matrices * (m * k + k * n), matrices * m * n * (1 if fused else slices)
    stored = costs.aligned_store_bytes if tiles.aligned else costs.store_bytes
    memory = FLOAT_BYTES * (read + stored * written) / costs.memory_bytes
    time = joined(OVERLAP, arithmetic, latency, cached, memory)
    if not tiles.aligned:
        # Neighbours write `work_n` floats apart: the wider, the more pieces of cache lines.
        pieces = area * min(tiles.work_n, PIECE_FLOATS) / MODELLED_WORK_N
        if tiles.against_rows:
            pieces *= costs.against_rows
        else:
            pieces *= 1 + costs.scattered * max(0.0, LANES / tiles.run - 1)
        time += rounds * pieces * costs.unaligned_store / most_together / costs.multiply_adds
    if fused:
        sums = tiles.work_m * tiles.work_n
        time += costs.fused_us + costs.fused_slice_us * slices * sums / MODELLED_SUMS
    return time * tiles.percent / 100


def _load_cost(tiles: Tiles, load: int, transposed: bool, costs: Costs) -> float:
    """Return the multiply-adds that take as long as a row or column of a tile takes to load."""
    if not tiles.asynchronous:
        factor = costs.one_buffer if tiles.buffers == 1 else 1.0
        if load < 4:
            factor *= costs.narrow_load
        return costs.vector_load * factor / load + costs.transposed * transposed
    factor = costs.copied if load == 4 else costs.copied_narrow
    return costs.vector_load * (costs.copied_transposed if transposed else factor) / load


def is_fused(tiles: Tiles, slices: int, limits: Limits) -> bool:
    """Tell whether the launch that multiplies so many slices of k also adds them up."""
    return (
        limits.fused_split_k
        and 1 < slices <= MOST_FUSED_SLICES
        and side_by_side(tiles) > 1
        and tiles.work_m * tiles.work_n <= MOST_SUMS
    )


@functools.lru_cache(maxsize=4096)
def tiled_estimate(
    tiles: Tiles, m: int, n: int, k: int, matrices: int, limits: Limits
) -> TiledEstimate:
    """Return the best number of slices of k for a shape, and the expected time in microseconds."""
    groups = matrices * ceil_div(m, tiles.tile_m) * ceil_div(n, tiles.tile_n)

    def time(slices: int) -> float:
        fused = is_fused(tiles, slices, limits)
        taken = launch_us(tiles, m, n, k, matrices, slices, fused, limits)
        if slices > 1 and not fused:
            taken += limits.costs.host_more_us + reduce_us(matrices * m * n, slices, limits.costs)
        return taken

    deepest, units = k // SMALLEST_SLICE, limits.compute_units
    most = max(1, min(deepest, MOST_GROUPS * units // groups))
    most_fused = min(deepest, MOST_FUSED_GROUPS * units // groups)
    tried = [s for s in SLICES if s <= most or (s <= most_fused and is_fused(tiles, s, limits))]
    best = min({*tried, most}, key=time)
    return TiledEstimate(best, time(best), is_fused(tiles, best, limits))
