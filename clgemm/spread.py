"""How tiles in local memory spread over a device's compute units: expected times, slices of k.

Pure. The model is for devices that run work-items in lanes; its constants were fitted to an H200.
"""

from __future__ import annotations

from typing import NamedTuple

from clgemm.config import Limits, LocalConfig

__all__ = ["Spread", "spread"]

# Times are in multiply-adds of one compute unit that does nothing else (an H200's: 265 000 in a
# microsecond). To each come loads from local memory, fewer of them for larger blocks of registers.
LOAD_COST = 2.1
# What a step over k waits for, in elements of C; and a work-group's beginning and end, in steps.
WAITING = 1000
GROUP_STEPS = 70
# Of cutting k: the launch that adds up; for all compute units together, each element that it writes
# and each that it reads, which others have written.
CUT_COST, WRITE_COST, READ_COST = 1.2e6, 330.0, 20.0
SMALLEST_SLICE = 128
MOST_GROUPS = 8  # for each compute unit, where k is cut


class Spread(NamedTuple):
    """Slices of k, and the time expected."""

    slices: int
    time: float


def spread(config: LocalConfig, m: int, n: int, k: int, matrices: int, limits: Limits) -> Spread:
    """Return into how many slices k is best cut for products of one shape, and their time."""
    units = limits.compute_units
    tiles = matrices * -(-m // config.tile_m) * -(-n // config.tile_n)
    loads = LOAD_COST * (1 / config.work_m + 1 / config.work_n)
    area = config.tile_m * config.tile_n

    def time(slices: int) -> float:
        rounds = -(-tiles * slices // units)
        depth = -(-k // slices)
        taken = depth * (rounds * area + WAITING) * (1 + loads) + rounds * area * GROUP_STEPS
        if slices > 1:
            elements = matrices * m * n
            taken += CUT_COST + elements * (WRITE_COST + READ_COST * slices) / units
        return taken

    most = max(1, min(k // SMALLEST_SLICE, MOST_GROUPS * units // tiles))
    best = min(range(1, most + 1), key=time)
    return Spread(best, time(best))
