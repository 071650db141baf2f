"""How long NumPy's `matmul` takes for a batch, whose matrices it makes one after the other."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LoopTimes"]


class LoopTimes(NamedTuple):
    """The microseconds that it takes for each matrix of a batch.

    Attributes
    ----------
    call, multiply_add : float
        Of BLAS's call, and of a multiply-add.
    a, b, c : float
        Of an element of each matrix.
    """

    call: float
    multiply_add: float
    a: float
    b: float
    c: float

    def of(self, m: int, n: int, k: int) -> float:
        """Return the time of a matrix."""
        elements = self.a * m * k + self.b * n * k + self.c * m * n
        return self.call + self.multiply_add * m * n * k + elements
