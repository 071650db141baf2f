"""Expected times of tiles on a device's compute units, and the split of k.

Pure. The model is for devices that run work-items in lanes.
"""

from __future__ import annotations

from typing import NamedTuple

from clgemm.core.config import Limits
from clgemm.kernels.tiled.config import TiledConfig

__all__ = ["TiledEstimate", "tiled_estimate"]

# Fitted to times on an H200; neither data nor script of the fit was kept.
# Times are in multiply-adds of one compute unit that does nothing else: 265 000 a microsecond.
LOAD_COST = 2.1  # of a load from local memory; larger blocks of registers need fewer
WAITING = 1000  # elements of C: what a step over k waits for, unless work-items share steps
ONE_BUFFER = 1.5  # times as much with a single buffer
READ_ONCE = 2.0  # times as much if an operand is read only once: from memory, not caches
GROUP_STEPS = 70  # steps over k: a work-group's begin and end, for each work-item that shares them
SHARING_COST = 0.35  # of the time: what sharing costs more, over the work-groups side by side
# Work-groups run side by side on a compute unit as far as its registers go.
REGISTERS = 65536  # of a compute unit
OTHER_REGISTERS = 64  # of a work-item, besides its sums
REGISTERS_PER_SUM = 1.25
# Where k is cut and another launch adds up.
CUT_COST = 1.2e6  # multiply-adds: that launch
WRITE_COST = 330.0  # multiply-adds of all compute units together, for each element written
READ_COST = 20.0  # the same for each element read, which others have written
# Where the last work-group of each tile adds up.
GATHER_COST = 3e5  # multiply-adds
GATHER_SLICE_COST = 4e4  # multiply-adds, for each slice
GATHER_GROUP_STEPS = 45  # steps over k: begin and end, which others beside it hide
MOST_GATHERED = 8  # slices: of more it would be one work-group against a whole device
MOST_SUMS = 64  # of a work-item: of more no registers would be left
SMALLEST_SLICE = 128  # of k
MOST_GROUPS = 4  # work-groups for each compute unit, where k is cut and another launch adds up
MOST_GATHERED_GROUPS = 6  # the same where the last work-group adds up


class TiledEstimate(NamedTuple):
    """Slices of k, the time expected, and whether the last work-group of a tile adds slices up."""

    slices: int
    time: float
    fused_split_k: bool = False


def tiled_estimate(
    config: TiledConfig, m: int, n: int, k: int, matrices: int, limits: Limits
) -> TiledEstimate:
    """Return into how many slices k is best cut for products of one shape, and their time."""
    units = limits.compute_units
    tiles = matrices * -(-m // config.tile_m) * -(-n // config.tile_n)
    loads = LOAD_COST * (1 / config.work_m + 1 / config.work_n)
    area = config.tile_m * config.tile_n
    waiting = WAITING / config.parts * (ONE_BUFFER if config.buffers == 1 else 1)
    if m <= config.tile_m or n <= config.tile_n:
        waiting *= READ_ONCE
    registers = config.items * (config.work_m * config.work_n * REGISTERS_PER_SUM + OTHER_REGISTERS)
    together = max(1, int(REGISTERS / registers))

    def fused_split_k(slices: int) -> bool:
        return (
            limits.fused_split_k
            and 1 < slices <= MOST_GATHERED
            and together > 1
            and config.work_m * config.work_n <= MOST_SUMS
        )

    def time(slices: int) -> float:
        rounds = -(-tiles * slices // units)
        depth = -(-k // slices)
        group_steps = GATHER_GROUP_STEPS if fused_split_k(slices) else GROUP_STEPS
        taken = (
            depth * (rounds * area + -(-rounds // together) * waiting) * (1 + loads)
            + rounds * area * group_steps * config.parts
        )
        if config.parts > 1 and rounds > 2 * together:
            taken *= 1 + SHARING_COST / together
        if fused_split_k(slices):
            taken += GATHER_COST + GATHER_SLICE_COST * slices
        elif slices > 1:
            elements = matrices * m * n
            taken += CUT_COST + elements * (WRITE_COST + READ_COST * slices) / units
        return taken

    deepest = k // SMALLEST_SLICE
    most = max(1, min(deepest, MOST_GROUPS * units // tiles))
    slices_out = range(most + 1, 1 + min(deepest, MOST_GATHERED_GROUPS * units // tiles))
    best = min((*range(1, most + 1), *filter(fused_split_k, slices_out)), key=time)
    return TiledEstimate(best, time(best), fused_split_k(best))
