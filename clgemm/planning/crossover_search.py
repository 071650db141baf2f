"""The search for a crossover: which product both sides try next, and what the trials have shown.

It assumes that the device wins every product above the crossover. It climbs from the least product
until the device wins, and then bisects. At the end it tries the result once more, and the largest
product, so that one disturbed trial does not decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["HOST_SECONDS", "Search", "Times", "largest_side"]

CLIMB = 4  # the factor by which the work grows until the device wins
RESOLUTION = 1.5  # the crossover is known to this factor
HOST_SECONDS = 0.05  # the host's time for the largest product, about
Times = tuple[float, float]  # the host's and the device's seconds for one product


@dataclass
class Search:
    """The search for the crossover of one kind of product. Pure: others multiply and time.

    Attributes
    ----------
    size : callable
        The multiply-adds of the kind's product with a given side. They grow with the side.
    least, most : int
        The smallest and the largest side to try.
    lost : int
        The largest side that the host has won; 0 if none.
    won : int or None
        The smallest side above `lost` that the device has won; None if none.
    """

    size: Callable[[int], int]
    least: int
    most: int
    lost: int = 0
    _wins: dict[int, int] = field(default_factory=dict)  # sides above `lost`: how often won
    _times: dict[int, Times] = field(default_factory=dict)
    _has_tried_largest: bool = False
    _has_ended: bool = False

    @property
    def won(self) -> int | None:
        return min(self._wins, default=None)

    @property
    def crossover(self) -> int | None:
        """The least work that the device is known to win; None if it has won none."""
        return None if self.won is None else self.size(self.won)

    def next(self) -> int | None:
        """Return the side of the next product to try; None if the search has ended."""
        won = self.won
        if self._has_ended:
            return None
        if won is None:
            if not self._times:
                return self.least
            largest = self._largest()
            if not self._is_far(self.lost, largest):
                return None
            higher = largest_side(self.size, CLIMB * self.size(self.lost))
            return max(higher, self.lost + 1) if self._is_far(higher, largest) else largest
        if self.lost and self._is_far(self.lost, won) and won - self.lost > 1:
            middle = math.isqrt(self.size(self.lost) * self.size(won))
            return min(max(largest_side(self.size, middle), self.lost + 1), won - 1)
        if self._wins[won] < 2:
            return won
        largest = self._largest()
        if not self._has_tried_largest and self._is_far(max(self._wins), largest):
            return largest
        return None

    def record(self, side: int, device_wins: bool, times: Times) -> None:
        """Record the result of a trial, and the seconds of one product on each side."""
        self._times[side] = times
        if device_wins:
            self._has_tried_largest |= bool(self._wins) and side > max(self._wins)
            self._wins[side] = self._wins.get(side, 0) + 1
        else:
            self.lost = max(self.lost, side)
            self._wins = {other: n for other, n in self._wins.items() if other > side}

    def end(self) -> None:
        """End the search with what is known."""
        self._has_ended = True

    def expected(self, side: int) -> Times:
        """Return about the longest that a product may take on each side; zeros if unknown."""
        larger = [tried for tried in self._times if tried >= side]
        if larger:
            return self._times[min(larger)]
        if not self._times:
            return 0.0, 0.0
        tried = max(self._times)
        host, device = self._times[tried]
        ratio = self.size(side) / self.size(tried)
        return host * ratio, device * ratio

    def _is_far(self, side: int, larger: int) -> bool:
        return self.size(larger) > RESOLUTION * self.size(side)

    def _largest(self) -> int:
        """Return the largest side to try, by the host's best rate so far."""
        rate = max(self.size(tried) / max(host, 1e-9) for tried, (host, _) in self._times.items())
        size = max(self.size(max(self._times)), int(rate * HOST_SECONDS))
        return min(self.most, largest_side(self.size, size))


def largest_side(size: Callable[[int], int], limit: int) -> int:
    """Return the largest side for which `size` is at most `limit`; at least 1."""
    side = 1
    while size(2 * side) <= limit:
        side *= 2
    step = side
    while step := step // 2:
        if size(side + step) <= limit:
            side += step
    return side
