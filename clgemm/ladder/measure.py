"""The operands of a run, the check of its result, and its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from clgemm.ladder.rung import Rung, Shape

REPEAT = 10
PATIENCE_NS = 2_000_000_000  # after this time the repetitions end, but not before the third

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Result:
    """The figures of one rung.

    Attributes
    ----------
    rung : Rung
        The rung with its parameters.
    shape : Shape
        The product's sizes.
    toolchain : str
        ``"OpenCL"`` or ``"CUDA"``.
    time_ns : int
        The kernels' time by the device's clock, as the median of all runs but the first.
    relative_error : float
        The largest |C - C_ref| / (|A| |B|), where C_ref is computed in float64.
    error_bound : float
        The bound on `relative_error` that the rung promises.
    support_share : float
        The fraction of the time in kernels other than ``multiply``.
    note : str
        The features that the rung uses on this device, and those that the device lacks.
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
        """Billions of operations per second, without those of padding."""
        return self.shape.flops / self.time_ns

    @property
    def correct(self) -> bool:
        """Whether the error is within the bound."""
        return self.relative_error <= self.error_bound


class Problem:
    """Random operands of a product, and its result in float64.

    Attributes
    ----------
    a, b : float32 arrays, shapes (m, k) and (k, n), Fortran-ordered
        Uniform between -1 and 1.
    """

    def __init__(self, shape: Shape) -> None:
        rng = np.random.default_rng(0)
        self.shape = shape
        self.a: Matrix = 2 * rng.random((shape.k, shape.m), np.float32).T - 1
        self.b: Matrix = 2 * rng.random((shape.n, shape.k), np.float32).T - 1

    @cached_property
    def _expected(self) -> npt.NDArray[np.float64]:
        return self.a.astype(np.float64) @ self.b.astype(np.float64)

    @cached_property
    def _magnitude(self) -> npt.NDArray[np.float64]:
        return np.abs(self.a).astype(np.float64) @ np.abs(self.b).astype(np.float64)

    def relative_error(self, c: npt.NDArray[Any]) -> float:
        """Return the largest error of an element, relative to |A| |B|; NaN if any is NaN."""
        return float(np.max(np.abs(c - self._expected) / self._magnitude))


class Product(Protocol):
    """A rung built for a device, with the memory of one product."""

    def write(self, name: str, values: Matrix) -> None:
        """Copy a matrix to a buffer in column-major order."""

    def run(self) -> list[int]:
        """Compute the product, wait for it, and return the nanoseconds of each kernel."""

    def read(self, name: str, rows: int, columns: int) -> Matrix:
        """Return the matrix in a buffer."""


def examine(
    product: Product, rung: Rung, problem: Problem, toolchain: str, note: str, repeat: int | None
) -> Result:
    """Check and time a rung.

    Parameters
    ----------
    repeat : int, optional
        The number of timed runs, after a first run that is not timed. The default is ten, or fewer
        but at least three if they take long.
    """
    shape = problem.shape
    product.write("a", problem.a)
    product.write("b", problem.b)
    runs: list[list[int]] = []

    def once() -> int:
        runs.append(product.run())
        return sum(runs[-1])

    time_ns = median_ns(once, repeat)
    kernels = [launch.kernel for launch in rung.launches(shape)]
    support_ns = sum(
        time
        for run in runs[1:]
        for kernel, time in zip(kernels, run, strict=True)
        if kernel != "multiply"
    )
    return Result(
        rung=rung,
        shape=shape,
        toolchain=toolchain,
        time_ns=time_ns,
        relative_error=problem.relative_error(product.read("c", shape.m, shape.n)),
        error_bound=rung.error_bound(shape),
        support_share=support_ns / max(1, sum(map(sum, runs[1:]))),
        note=note,
    )


def expected_seconds(kind: str, n: int, rungs: int, repeat: int | None) -> float:
    """Return about how long rungs take: one second each for the compiler, and the timed runs.

    Parameters
    ----------
    kind : str
        Of the device. The speed of plain kernels is taken to be that of a GPU of the last ten
        years, or of few cores.
    """
    once = 2 * n**3 / (1e12 if kind == "GPU" else 2e9)
    patience = PATIENCE_NS / 1e9
    runs = (repeat or max(3.0, min(REPEAT, patience / once))) + 1
    return rungs * (1 + once * runs)


def median_ns(once: Callable[[], int], repeat: int | None) -> int:
    """Return the median of the nanoseconds that calls of `once` return, without the first call."""
    once()  # the first run compiles and allocates
    times: list[int] = []
    while len(times) < (repeat or REPEAT):
        times.append(once())
        if not repeat and len(times) >= 3 and sum(times) > PATIENCE_NS:
            break
    return max(1, round(median(times)))
