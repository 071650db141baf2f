"""The operands of a run, the check of its result, and its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from clgemm.ladder.rung import FLOAT_BYTES, Rung, Shape

REPEAT = 10
PATIENCE_NS = 2_000_000_000  # after this time the repetitions end, but not before the third

Matrix = npt.NDArray[Any]


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
        The largest |C - C_ref| / (|A| |B|), where C_ref is computed in float64. For integers, the
        largest difference from NumPy's product.
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
        return self.rung.flops(self.shape) / self.time_ns

    @property
    def correct(self) -> bool:
        """Whether the error is within the bound."""
        return self.relative_error <= self.error_bound


class Problem:
    """Random operands of a product, and its result in twice the precision.

    Attributes
    ----------
    a, b : arrays of `dtype`, shapes (m, k) and (k, n), Fortran-ordered
        Uniform between -1 and 1, also their imaginary parts; integers in the dtype's whole range.
    """

    def __init__(self, shape: Shape, dtype: np.dtype[Any] = Rung.dtype) -> None:
        rng = np.random.default_rng(0)
        self.shape, self.dtype = shape, dtype
        self.a = _random(rng, shape.k, shape.m, dtype).T
        self.b = _random(rng, shape.n, shape.k, dtype).T

    @cached_property
    def _expected(self) -> Matrix:
        if self.dtype.kind == "i":
            return integer_product(self.a, self.b)
        wide = np.result_type(self.dtype, np.float64)
        expected: Matrix = self.a.astype(wide) @ self.b.astype(wide)
        return expected

    @cached_property
    def _magnitude(self) -> npt.NDArray[np.float64]:
        return np.abs(self.a).astype(np.float64) @ np.abs(self.b).astype(np.float64)

    def relative_error(self, c: Matrix) -> float:
        """Return the largest error of an element, relative to |A| |B|; NaN if any is NaN.

        That of an integer is its difference from NumPy's result.
        """
        if self.dtype.kind == "i":
            return float(np.max(np.abs(c.astype(np.int64) - self._expected)))
        return float(np.max(np.abs(c - self._expected) / self._magnitude))


def _random(rng: np.random.Generator, rows: int, columns: int, dtype: np.dtype[Any]) -> Matrix:
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        size = rows, columns
        whole: Matrix = rng.integers(limits.min, limits.max, size, dtype, endpoint=True)
        return whole
    parts = dtype.itemsize // FLOAT_BYTES  # a complex number has two
    return (2 * rng.random((rows, parts * columns), np.float32) - 1).view(dtype)


def integer_product(a: Matrix, b: Matrix) -> Matrix:
    """Return ``a @ b`` of int32, which NumPy would compute without its BLAS, from float64.

    The numbers are split after 16 bits. Sums of 2**21 products of such halves are exact in float64.
    """
    low_a, low_b = (np.bitwise_and(x, 0xFFFF).astype(np.float64) for x in (a, b))
    high_a, high_b = (np.right_shift(x, 16).astype(np.float64) for x in (a, b))
    low = (low_a @ low_b).astype(np.int64)
    middle = (low_a @ high_b).astype(np.int64) + (high_a @ low_b).astype(np.int64)
    return (low + (middle << 16)).astype(np.int32)


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
