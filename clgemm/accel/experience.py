"""What a program's own products have shown about a kind that has not been measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OnDevice", "OnHost"]

# The device is given up for a kind after so many products in a row that the host would have made
# faster, or after two once they have cost so many seconds. The first ones may compile.
MOST_LOSSES, LOST_SECONDS = 4, 3.0


@dataclass
class OnHost:
    """The products of one kind that the host has made.

    Attributes
    ----------
    seconds : float
        Their time since the last attempt to measure.
    rate : float
        The most multiply-adds a second; 0 before the first product.
    """

    seconds: float = 0.0
    rate: float = 0.0

    def add(self, size: int, seconds: float) -> None:
        """Record a product of `size` multiply-adds."""
        self.seconds += seconds
        self.rate = max(self.rate, size / max(seconds, 1e-9))

    def expected_seconds(self, size: int) -> float:
        """Return the least time that a product of `size` multiply-adds is expected to take.

        It is 0 before the first product.
        """
        return size / self.rate if self.rate else 0.0


@dataclass
class OnDevice:
    """The products of one kind that a device has made, compared with the host's best rate.

    Attributes
    ----------
    losses : int
        The number of products in a row that the host would have made at least as fast.
    lost_seconds : float
        What these have cost.
    """

    losses: int = 0
    lost_seconds: float = 0.0
    is_given_up: bool = False

    def add(self, size: int, seconds: float, host_rate: float) -> None:
        """Record a product of `size` multiply-adds."""
        lost = seconds - size / host_rate
        if lost < 0:
            self.losses, self.lost_seconds = 0, 0.0
            return
        self.losses += 1
        self.lost_seconds += lost
        costly = self.losses > 1 and self.lost_seconds > LOST_SECONDS
        self.is_given_up |= costly or self.losses >= MOST_LOSSES
