"""How tiles in local memory spread over a device's compute units: expected times, slices of k.

Pure. The model is for devices that run work-items in lanes; its constants were fitted to an H200.
"""

from __future__ import annotations

from typing import NamedTuple

from clgemm.core.config import Limits
from clgemm.kernels.tiled.config import LocalConfig

__all__ = ["LocalSpread", "local_spread"]

# Times are in multiply-adds of one compute unit that does nothing else (an H200's: 265 000 in a
# microsecond). To each come loads from local memory, fewer of them for larger blocks of registers.
LOAD_COST = 2.1
# What a step over k waits for, in elements of C, unless work-items share steps; more with a single
# buffer, and if an operand is read only once, which comes from memory then and not from the caches.
# And a work-group's beginning and end, in steps, for each work-item that shares them.
WAITING, ONE_BUFFER, READ_ONCE = 1000, 1.5, 2.0
GROUP_STEPS = 70
# Where they share steps and few of the work-groups run at once: the whole takes so much more, the
# fewer run side by side.
SHARING_COST = 0.35
# Work-groups run side by side on a compute unit as far as its registers go.
REGISTERS, OTHER_REGISTERS, REGISTERS_PER_SUM = 65536, 64, 1.25
# Of cutting k: the launch that adds up; for all compute units together, each element that it writes
# and each that it reads, which others have written.
CUT_COST, WRITE_COST, READ_COST = 1.2e6, 330.0, 20.0
# If instead the last work-group of each tile adds up: what that takes, what for each slice, and the
# steps of a work-group's beginning and end, which others beside it hide. Of more slices it would be
# one against a whole device, and of more sums no registers would be left.
GATHER_COST, GATHER_SLICE_COST, GATHER_GROUP_STEPS = 3e5, 4e4, 45
MOST_GATHERED, MOST_SUMS = 8, 64
SMALLEST_SLICE = 128
MOST_GROUPS, MOST_GATHERED_GROUPS = 4, 6  # for each compute unit, where k is cut


class LocalSpread(NamedTuple):
    """Slices of k, the time expected, and whether the last work-group of a tile adds slices up."""

    slices: int
    time: float
    gathers: bool = False


def local_spread(
    config: LocalConfig, m: int, n: int, k: int, matrices: int, limits: Limits
) -> LocalSpread:
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

    def gathers(slices: int) -> bool:
        return (
            limits.gathers
            and 1 < slices <= MOST_GATHERED
            and together > 1
            and config.work_m * config.work_n <= MOST_SUMS
        )

    def time(slices: int) -> float:
        rounds = -(-tiles * slices // units)
        depth = -(-k // slices)
        group_steps = GATHER_GROUP_STEPS if gathers(slices) else GROUP_STEPS
        taken = (
            depth * (rounds * area + -(-rounds // together) * waiting) * (1 + loads)
            + rounds * area * group_steps * config.parts
        )
        if config.parts > 1 and rounds > 2 * together:
            taken *= 1 + SHARING_COST / together
        if gathers(slices):
            taken += GATHER_COST + GATHER_SLICE_COST * slices
        elif slices > 1:
            elements = matrices * m * n
            taken += CUT_COST + elements * (WRITE_COST + READ_COST * slices) / units
        return taken

    deepest = k // SMALLEST_SLICE
    most = max(1, min(deepest, MOST_GROUPS * units // tiles))
    gathered = range(most + 1, 1 + min(deepest, MOST_GATHERED_GROUPS * units // tiles))
    best = min((*range(1, most + 1), *filter(gathers, gathered)), key=time)
    return LocalSpread(best, time(best), gathers(best))
