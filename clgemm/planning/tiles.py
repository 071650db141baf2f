"""Products cut into tiles of C: for several devices, and for answers before a long product ends.

Pure. The borders of tiles depend on sizes and devices only, never on time: so the same call gives
the same bits, whichever device makes which tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeAlias

from clgemm.core.costs import joined
from clgemm.core.layout import Layout
from clgemm.core.steps import ceil_div, round_up
from clgemm.core.transfer import cuts

__all__ = [
    "Box",
    "Party",
    "TileGrid",
    "cut",
    "is_faster_spread",
    "matrix_blocks",
    "spread_grid",
]

# A slice for each axis of C.
Box: TypeAlias = tuple[slice, ...]

GRAIN = 128  # sides of tiles are multiples of this: whole tiles of the kernels
LEAST_SIDE = 256  # of a tile, where C has as much: narrower ones are slower on every device
# Tiles for each device. More balance better; each packs or sends its operands anew.
TILES = 12
# Multiply-adds of a tile. With host memory in place, per compute unit: from some milliseconds to
# about half a second. Handing a tile to a device takes 0.1 ms (PoCL 3.0, 2 cores of an EPYC,
# 2026-11). Through transfers: a GPU's time for it is that of sending its operands (not measured).
LEAST_IN_PLACE, MOST_IN_PLACE = 2**27, 2**34
LEAST_THROUGH_TRANSFERS = 2**35
# As in `joined`: multiplying and copying. Measured with 18 products on one and two H100s, on two
# machines of which one copied half as fast (2026-11-25). Two GPUs are chosen for ten of them, which
# they make 1.04 to 2.1 times as fast. One is chosen for three that two would make 1.1 to 1.3 times
# as fast.
OVERLAP = 2.0
LEAST_GAIN = 0.9  # of the time: with less gain, one device makes the product


class Party(NamedTuple):
    """A device as far as the grid depends on it.

    Attributes
    ----------
    compute_units : int
    in_place : bool
        Whether it uses host arrays where they lie.
    is_slow : bool
        Whether the host's processor plays a GPU.
    """

    compute_units: int
    in_place: bool
    is_slow: bool = False

    @property
    def least(self) -> int:
        """The fewest multiply-adds that a tile should have."""
        if not self.in_place:
            return LEAST_THROUGH_TRANSFERS >> 10 * self.is_slow
        return LEAST_IN_PLACE * self.compute_units >> 10 * self.is_slow

    @property
    def most(self) -> float:
        """The most multiply-adds that a tile should have."""
        if not self.in_place:
            return math.inf
        return MOST_IN_PLACE * self.compute_units >> 10 * self.is_slow


@dataclass(frozen=True)
class TileGrid:
    """The tiles of a product.

    Attributes
    ----------
    bands : tuple of tuple of Box
        Tiles by the columns of C. Those of a band need the same block of B.
    joins : bool
        Whether neighbours of a band are one below the other, so that a run of them is a block.
    depth : int
        Multiply-adds for each element of C.
    """

    bands: tuple[tuple[Box, ...], ...]
    joins: bool
    depth: int

    @property
    def rows(self) -> int:
        """Rows of a tile; the last one of a band may have fewer."""
        rows = self.bands[0][0][-2]
        return int(rows.stop - rows.start)

    def work(self, box: Box) -> int:
        """Return the multiply-adds of a tile or of several."""
        return int(self.depth * math.prod(s.stop - s.start for s in box))

    def joined(self, band: int, first: int, stop: int) -> Box:
        """Return the block of a run of neighbours."""
        tiles = self.bands[band]
        *batch, rows, columns = tiles[first]
        return (*batch, slice(rows.start, tiles[stop - 1][-2].stop), columns)


def spread_grid(shape: tuple[int, ...], depth: int, parties: Sequence[Party]) -> TileGrid | None:
    """Return the tiles in which a product is spread; None if one device makes it sooner.

    Parameters
    ----------
    shape : tuple of int
        Of C: (*batch, m, n), with m at least n.
    depth : int
        k, at least 1.
    """
    work = depth * math.prod(shape)
    least = max(party.least for party in parties)
    if work < 2 * len(parties) * least:
        return None
    target = max(least, work / (TILES * len(parties)))
    target = min(target, *(party.most for party in parties))
    steps = cut(shape, depth, target)
    if len(shape) == 2 and not all(party.in_place for party in parties):
        # Each device gets one block of B, if there are as many, and so sends fewer bytes.
        bands = math.isqrt(len(parties))
        columns = _even(shape[1], bands) if shape[1] >= bands * LEAST_SIDE else shape[1]
        rows = max(int(target / (depth * columns)), LEAST_SIDE)
        steps = (min(round_up(rows, GRAIN), shape[0]), columns)
    tiles = [cuts(size, step) for size, step in zip(shape, steps, strict=True)]
    if math.prod(map(len, tiles)) < len(parties):
        return None
    if len(shape) == 2:
        rows_of, columns_of = tiles
        bands_of = tuple(tuple((rows, columns) for rows in rows_of) for columns in columns_of)
        return TileGrid(bands_of, True, depth)
    return TileGrid((tuple(product(*tiles)),), False, depth)


def cut(shape: tuple[int, ...], depth: int, most: float) -> tuple[int, ...]:
    """Return the size of tiles along each axis of C, of so many multiply-adds or a little more.

    Batches are cut by matrix, outer axes first. Matrices are cut only where one of them is too
    large: into blocks that are nearly square, which share most.
    """
    *batch, m, n = shape
    steps, work = list(shape), depth * math.prod(shape)
    for axis, count in enumerate(batch):
        if work <= most:
            return tuple(steps)
        one = work // count
        steps[axis] = _even(count, ceil_div(count, max(1, int(most // one))), grain=1)
        work = one * steps[axis]
    if work > most:
        area = most / depth
        side = max(math.sqrt(area), LEAST_SIDE)
        rows = min(m, side)
        columns = min(n, max(area / rows, LEAST_SIDE))
        rows = min(m, max(area / columns, LEAST_SIDE))
        steps[-2] = _even(m, max(1, math.ceil(m / rows)))
        steps[-1] = _even(n, max(1, math.ceil(n / columns)))
    return tuple(steps)


def matrix_blocks(box: Box, a: Layout, b: Layout) -> tuple[Box, Box]:
    """Return the blocks of A and B that a tile of C needs.

    Parameters
    ----------
    a, b : Layout
        With as many axes as C. Where they repeat one matrix, their axis has length 1 or any.
    """
    *batch, rows, columns = box

    def own(x: Layout) -> list[slice]:
        counts = zip(batch, x.batch, strict=True)
        return [s if count > 1 else slice(0, 1) for s, count in counts]

    whole = slice(0, a.columns)
    return (*own(a), rows, whole), (*own(b), whole, columns)


def _even(size: int, parts: int, grain: int = GRAIN) -> int:
    """Return the size of parts of an axis, in whole grains if it is more than one.

    Up to a quarter less is taken where the last part would be small otherwise: that part may be
    slower, or add up in another order.
    """
    step = ceil_div(size, parts)
    if step <= grain:
        return step
    largest = round_up(step, grain)
    steps = range(largest, largest * 3 // 4, -grain)
    return min(size, max(steps, key=lambda step: (size % step or step) / step))


def is_faster_spread(
    shape: tuple[int, ...],
    depth: int,
    rates: Sequence[float],
    copied: float,
    copies_of_b: int,
) -> bool:
    """Tell whether several devices with memory of their own are expected to beat the fastest.

    The host's processors copy every element to pinned memory, for all devices together, while the
    devices multiply. The longer of both counts, and the other one the more the closer it comes.

    Parameters
    ----------
    shape : tuple of int
        That of C: (*batch, m, n), with m >= n.
    depth : int
        k.
    rates : sequence of float
        Multiply-adds a second of each device.
    copied : float
        Elements that the host copies a second.
    copies_of_b : int
        How often the devices together need B to be copied. A matrix of a batch goes to one device.
    """
    *batch, m, n = shape
    matrices = math.prod(batch)
    work = matrices * m * n * depth
    moved = matrices * (m * depth + depth * n + m * n)
    again = (copies_of_b - 1) * depth * n if matrices == 1 else 0
    alone = joined(OVERLAP, work / max(rates), moved / copied)
    together = joined(OVERLAP, work / sum(rates), (moved + again) / copied)
    return together < LEAST_GAIN * alone
