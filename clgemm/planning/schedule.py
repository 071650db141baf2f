"""The schedule of a product that several devices share: which one makes which tiles. Pure.

Guided self-scheduling: devices draw tiles as they become free. Where each draw costs something,
the first draws are large and the last ones small. A device that is much slower than the others
draws nothing that it would finish last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from clgemm.planning.tiles import Box, TileGrid

__all__ = ["WAIT", "Draw", "Drawer", "Schedule"]

# Of a device's share of what is left, the part that it draws.
PORTION = 0.5
# A draw takes all of the share if what it costs is more than this part of the share's time.
COSTLY = 0.1
NEWER = 0.5  # the weight of the newest draw in a device's rate


class Draw(NamedTuple):
    """Tiles that a device has drawn: neighbours in one band."""

    band: int
    first: int
    stop: int


# Nothing to draw now, but a tile may come back from a device that fails.
WAIT = Draw(-1, 0, 0)


@dataclass
class Drawer:
    """A device as the schedule sees it.

    Attributes
    ----------
    rate : float or None
        Multiply-adds a second; None if it is not known yet. The first draw does not tell it, since
        it may have waited for kernels to be built.
    setup_s : float
        Seconds that each draw costs, whatever its size. At 0, tiles are drawn one by one.
    """

    rate: float | None = None
    setup_s: float = 0.0
    is_out: bool = False
    held: Draw | None = None
    begun_s: float = 0.0
    draws: int = 0


@dataclass
class Schedule:
    """The tiles that nobody has made yet, and who is making which.

    Not safe for threads by itself: callers hold a lock. Times come from the caller's clock.
    """

    grid: TileGrid
    drawers: Sequence[Drawer]
    # Runs of tiles that are free, by band: first and stop.
    _free: list[list[tuple[int, int]]] = field(init=False)
    _free_work: int = field(init=False)

    def __post_init__(self) -> None:
        self._free = [[(0, len(band))] for band in self.grid.bands]
        self._free_work = sum(self.grid.work(tile) for band in self.grid.bands for tile in band)

    @property
    def is_over(self) -> bool:
        """Whether every tile is made."""
        return not any(self._free) and all(d.held is None for d in self.drawers)

    def box(self, draw: Draw) -> Box:
        """Return the block of C that a draw is."""
        return self.grid.joined(*draw) if self.grid.joins else self.grid.bands[0][draw.first]

    def draw(self, who: int, now_s: float) -> Draw | None:
        """Return the next tiles for a device; `WAIT` to ask again later; None if it is to end."""
        drawer = self.drawers[who]
        if drawer.is_out or self.is_over:
            return None
        if not any(self._free) or self._ends_last(who, now_s):
            return WAIT
        band = self._band(who)
        is_home = band == self._home(who)
        runs = self._free[band]
        first, stop = runs.pop(0 if is_home else -1)
        count = min(self._count(who, band, first, now_s), stop - first)
        if is_home:
            drawn, left = Draw(band, first, first + count), (first + count, stop)
        else:
            drawn, left = Draw(band, stop - count, stop), (first, stop - count)
        if left[0] < left[1]:
            runs.insert(0 if is_home else len(runs), left)
        drawer.held, drawer.begun_s = drawn, now_s
        self._free_work -= self._work(drawn)
        return drawn

    def finished(self, who: int, now_s: float) -> None:
        """Note that a device has made what it drew, and how fast."""
        drawer = self.drawers[who]
        assert drawer.held is not None
        rate = self._work(drawer.held) / max(now_s - drawer.begun_s, 1e-9)
        if drawer.rate is not None:
            drawer.rate += NEWER * (rate - drawer.rate)
        elif drawer.draws:
            drawer.rate = rate
        drawer.draws += 1
        drawer.held = None

    def failed(self, who: int) -> None:
        """Take a device out; what it drew is free again."""
        drawer = self.drawers[who]
        if drawer.held is not None:
            band, first, stop = drawer.held
            self._free[band].append((first, stop))
            self._free_work += self._work(drawer.held)
        drawer.held, drawer.is_out = None, True

    def _work(self, draw: Draw) -> int:
        return self.grid.work(self.box(draw))

    def _home(self, who: int) -> int:
        return who * len(self._free) // len(self.drawers)

    def _band(self, who: int) -> int:
        """Return the band to draw from: the device's own, or the one with the most free tiles."""
        home = self._home(who)
        if self._free[home]:
            return home
        free = [sum(stop - first for first, stop in runs) for runs in self._free]
        return free.index(max(free))

    def _left(self, who: int, now_s: float) -> float:
        """Return the work that is free, or that others are making and have not made yet."""
        left = float(self._free_work)
        for other, d in enumerate(self.drawers):
            if other != who and d.held is not None and d.rate is not None:
                left += max(0.0, self._work(d.held) - (now_s - d.begun_s) * d.rate)
        return left

    def _count(self, who: int, band: int, first: int, now_s: float) -> int:
        """Return how many tiles a device draws."""
        drawer = self.drawers[who]
        if drawer.rate is None or not drawer.setup_s or not self.grid.joins:
            return 1
        here = [d for d in self.drawers if not d.is_out]
        rates = sum(drawer.rate if d.rate is None else d.rate for d in here)
        share = self._left(who, now_s) * drawer.rate / rates
        tiles = share / self._work(Draw(band, first, first + 1))
        if drawer.setup_s > COSTLY * share / drawer.rate:
            return max(1, round(tiles))
        return max(1, int(PORTION * tiles))

    def _ends_last(self, who: int, now_s: float) -> bool:
        """Tell whether the others make all that is left before this device makes one tile.

        Never of the fastest, so that somebody draws.
        """
        drawer = self.drawers[who]
        others = [d for d in self.drawers if d is not drawer and not d.is_out]
        rates = [d.rate for d in others if d.rate is not None]
        if drawer.rate is None or not rates or drawer.rate >= max(rates):
            return False
        band = self._band(who)
        first = self._free[band][0][0]
        one = self._work(Draw(band, first, first + 1)) / drawer.rate + drawer.setup_s
        return one > self._left(who, now_s) / sum(rates) + min(d.setup_s for d in others)
