"""How long NumPy's `matmul` takes for a batch, whose matrices it makes one after the other."""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = ["LARGEST", "BatchKind", "LoopTimes"]

LARGEST = 2**18  # elements of a matrix for which the times of loops were measured


class BatchKind(enum.Enum):
    """What the matrices of a batch have in common.

    Attributes
    ----------
    OWN_B
        Each has its own B.
    ONE_B
        All have the same B.
    FOLDED
        The same, and the rows of all A follow one another: it can be made as one product.
    """

    OWN_B = 0
    ONE_B = 1
    FOLDED = 2


class LoopTimes(NamedTuple):
    """The microseconds that it takes for each matrix of a batch.

    Attributes
    ----------
    call, multiply_add : float
        Of BLAS's call, and of a multiply-add.
    a, b, one_b, c : float
        Of an element of each matrix; `one_b` if all have the same B.
    """

    call: float
    multiply_add: float
    a: float
    b: float
    one_b: float
    c: float

    def of(self, m: int, n: int, k: int, kind: BatchKind) -> float:
        """Return the time of a matrix."""
        of_b = self.b if kind is BatchKind.OWN_B else self.one_b
        elements = self.a * m * k + of_b * n * k + self.c * m * n
        return self.call + self.multiply_add * m * n * k + elements
