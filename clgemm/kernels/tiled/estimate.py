"""The expected time of tiles on a device's compute units, and the best split-k. Pure.

The model is for devices that spread work-items over lanes.
"""

from __future__ import annotations

from typing import NamedTuple

from clgemm.core.config import Limits
from clgemm.kernels.tiled.config import TiledConfig

__all__ = ["TiledEstimate", "tiled_estimate"]

# Fitted on an H200; the data and the script of the fit were not kept. Times are in multiply-adds of
# one compute unit that does nothing else: 265 000 in a microsecond.
LOAD_COST = 2.1  # multiply-adds: a load from local memory
WAIT_COST = 1000  # elements of C: waiting in a step over k; less if work-items share steps
ONE_BUFFER_FACTOR = 1.5  # of waiting, with a single buffer
READ_ONCE_FACTOR = 2.0  # of waiting, if an operand is read once: from memory, not from caches
GROUP_STEPS = 70  # steps over k: begin and end of a work-group, for each of its `parts`
SHARING_COST = 0.35  # of the time, for shared steps; divided by the work-groups side by side
# The registers of a compute unit limit how many work-groups run on it side by side.
REGISTERS = 65536  # of a compute unit
OTHER_REGISTERS = 64  # of a work-item, besides its accumulators
REGISTERS_PER_SUM = 1.25
# Split-k where another launch adds up.
CUT_COST = 1.2e6  # multiply-adds: the launch that adds up
WRITE_COST = 330.0  # multiply-adds of all compute units together, for each element written
READ_COST = 20.0  # the same for each element read that another work-group has written
# Fused split-k: the last work-group of each tile adds up.
FUSED_COST = 3e5  # multiply-adds
FUSED_SLICE_COST = 4e4  # multiply-adds, for each slice
FUSED_GROUP_STEPS = 45  # steps over k: begin and end of a work-group, partly hidden by others
MOST_FUSED_SLICES = 8  # with more, one work-group would add up what a whole device could
MOST_SUMS = 64  # accumulators of a work-item: with more, no registers are left to add up
SMALLEST_SLICE = 128  # of k
MOST_GROUPS = 4  # work-groups per compute unit where another launch adds up
MOST_FUSED_GROUPS = 6  # the same with fused split-k


class TiledEstimate(NamedTuple):
    """The slices of k, the expected time, and whether split-k is fused."""

    slices: int
    time: float
    fused_split_k: bool = False


def tiled_estimate(
    config: TiledConfig, m: int, n: int, k: int, matrices: int, limits: Limits
) -> TiledEstimate:
    """Return the best number of slices of k for a shape, and the expected time."""
    units = limits.compute_units
    tiles = matrices * -(-m // config.tile_m) * -(-n // config.tile_n)
    loads = LOAD_COST * (1 / config.work_m + 1 / config.work_n)
    area = config.tile_m * config.tile_n
    waiting = WAIT_COST / config.parts * (ONE_BUFFER_FACTOR if config.buffers == 1 else 1)
    if m <= config.tile_m or n <= config.tile_n:
        waiting *= READ_ONCE_FACTOR
    registers = config.items * (config.work_m * config.work_n * REGISTERS_PER_SUM + OTHER_REGISTERS)
    together = max(1, int(REGISTERS / registers))

    def fused_split_k(slices: int) -> bool:
        return (
            limits.fused_split_k
            and 1 < slices <= MOST_FUSED_SLICES
            and together > 1
            and config.work_m * config.work_n <= MOST_SUMS
        )

    def time(slices: int) -> float:
        rounds = -(-tiles * slices // units)
        depth = -(-k // slices)
        group_steps = FUSED_GROUP_STEPS if fused_split_k(slices) else GROUP_STEPS
        taken = (
            depth * (rounds * area + -(-rounds // together) * waiting) * (1 + loads)
            + rounds * area * group_steps * config.parts
        )
        if config.parts > 1 and rounds > 2 * together:
            taken *= 1 + SHARING_COST / together
        if fused_split_k(slices):
            taken += FUSED_COST + FUSED_SLICE_COST * slices
        elif slices > 1:
            elements = matrices * m * n
            taken += CUT_COST + elements * (WRITE_COST + READ_COST * slices) / units
        return taken

    deepest = k // SMALLEST_SLICE
    most = max(1, min(deepest, MOST_GROUPS * units // tiles))
    fused_only = range(most + 1, 1 + min(deepest, MOST_FUSED_GROUPS * units // tiles))
    best = min((*range(1, most + 1), *filter(fused_split_k, fused_only)), key=time)
    return TiledEstimate(best, time(best), fused_split_k(best))
