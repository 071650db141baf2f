"""What a run yields, what it multiplies and how its result is judged. Pure NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from clgemm.ladder.rung import Rung, Shape

__all__ = ["Problem", "Result", "measure"]

ROUNDOFF = 2.0**-24
REPEAT = 10
PATIENCE_NS = 2_000_000_000  # slow devices repeat less often, but no less than three times

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Result:
    """One rung, checked and timed.

    Attributes
    ----------
    rung : Rung
        With the parameters that it ran with.
    shape : Shape
        The product's sizes.
    toolchain : str
        ``"OpenCL"`` or ``"CUDA"``.
    time_ns : int
        Median, over warm runs, of the kernels' time by the device's clock.
    relative_error : float
        The largest of |C - C_ref| / (|A| |B|), against float64.
    error_bound : float
        What rounding in float32 can cause at most.
    support_share : float
        Share of the time in kernels that do not multiply.
    note : str
        What the rung did without on this device.
    """

    rung: Rung
    shape: Shape
    toolchain: str
    time_ns: int
    relative_error: float
    error_bound: float
    support_share: float
    note: str

    @property
    def gflops(self) -> float:
        """Billions of operations per second, padding not counted."""
        return self.shape.flops / self.time_ns

    @property
    def correct(self) -> bool:
        """Whether the error is one that rounding explains."""
        return self.relative_error <= self.error_bound


class Problem:
    """Random operands of a product, and its result in float64.

    Attributes
    ----------
    a, b : float32 arrays, shapes (m, k) and (k, n), Fortran-ordered
        Uniform between -1 and 1.
    """

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.shape = shape
        self.a = _uniform(rng, shape.m, shape.k)
        self.b = _uniform(rng, shape.k, shape.n)

    @cached_property
    def _expected(self) -> npt.NDArray[np.float64]:
        return self.a.astype(np.float64) @ self.b.astype(np.float64)

    @cached_property
    def _magnitude(self) -> npt.NDArray[np.float64]:
        return np.abs(self.a).astype(np.float64) @ np.abs(self.b).astype(np.float64)

    def relative_error(self, c: npt.NDArray[Any]) -> float:
        """Return the largest error of an element, relative to |A| |B|; NaN if any is NaN."""
        return float(np.max(np.abs(c - self._expected) / self._magnitude))

    @property
    def error_bound(self) -> float:
        """The forward error bound gamma(k) = k u / (1 - k u) [1]_.

        References
        ----------
        .. [1] N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1.
        """
        return self.shape.k * ROUNDOFF / (1 - self.shape.k * ROUNDOFF)


def _uniform(rng: np.random.Generator, rows: int, columns: int) -> Matrix:
    values = rng.random((columns, rows), np.float32)
    values *= 2
    values -= 1
    return values.T


def measure(once: Callable[[], Sequence[int]], repeat: int | None) -> tuple[int, list[float]]:
    """Time a run of several kernels, warm.

    Parameters
    ----------
    once : callable
        Runs them and returns the nanoseconds of each.
    repeat : int, optional
        How often; ten times by default, and fewer where that takes long.

    Returns
    -------
    time_ns : int
        The median of their sums.
    shares : list of float
        Each kernel's share of the time.
    """
    once()  # the first run pays for what is made at the first use
    runs: list[Sequence[int]] = []
    spent = 0
    while len(runs) < (repeat or REPEAT):
        runs.append(once())
        spent += sum(runs[-1])
        if not repeat and len(runs) >= 3 and spent > PATIENCE_NS:
            break
    # A clock too coarse for a small product reads zero.
    time_ns = max(1, round(median(sum(run) for run in runs)))
    totals = [sum(times) for times in zip(*runs, strict=True)]
    return time_ns, [total / max(1, sum(totals)) for total in totals]
