"""Random operands, the float64 reference and the check of a result, all by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clgemm.bench.cases import Case

__all__ = [
    "COLUMNS_IN_FRONT",
    "judge",
    "operands",
    "reference",
    "stored",
    "stored_shape",
    "viewed",
]

ROUNDOFF = 2.0**-24
LEAST_NORMAL = 2.0**-126  # below it, float32 has fewer digits, and some devices have zero
SIGMA = 4.0  # of the logarithms of wide data
# What the modes promise for an element: an error of gamma(k + this). docs/precision.md
LONGER_SUM = {"strict": 2, "float32": 64, "fast": 128}
PIECE = 64  # elements of a row whose largest one bounds the errors of the mode "fast"
COLUMNS_IN_FRONT = 5  # columns of the stored matrix before the first one of a sliced operand
BLOCK = 1 << 22  # elements that are compared at a time, so that float64 copies stay small

Array = npt.NDArray[Any]


def operands(case: Case) -> tuple[Array, Array]:
    """Return A and B of a case: float32 of the case's distribution, the same in each process.

    Returns
    -------
    a : shape (m, k) or (batch, m, k)
    b : shape (k, n), or (batch, k, n) unless the batch shares it
    """
    rng = np.random.default_rng(0)
    a, b = stored(case, rng)
    return viewed(a, case.layout_a), viewed(b, case.layout_b)


def stored(case: Case, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the C-contiguous arrays that A and B are views of."""
    stack = (case.batch,) if case.batch > 1 else ()
    a = _random(rng, case.data, (*stack, *stored_shape(case.m, case.k, case.layout_a)))
    if case.shared_b:
        stack = ()
    return a, _random(rng, case.data, (*stack, *stored_shape(case.k, case.n, case.layout_b)))


def stored_shape(rows: int, columns: int, layout: str) -> tuple[int, int]:
    """Return rows and columns of the stored matrix that an operand is a view of."""
    return {
        "N": (rows, columns),
        "T": (columns, rows),
        "S": (2 * rows, columns + COLUMNS_IN_FRONT),
        "D": (2 * rows, 2 * columns),
    }[layout]


def _random(rng: np.random.Generator, data: str, shape: tuple[int, ...]) -> Array:
    if data == "uniform":
        values = rng.random(shape, np.float32)
        values *= 2
        values -= 1
        return values
    values = rng.standard_normal(shape, np.float32)
    if data == "wide":
        values *= np.exp(np.float32(SIGMA) * rng.standard_normal(shape, np.float32))
    return values


def viewed(array: Any, layout: str) -> Any:
    """Return the operand as a view of its stored array, NumPy's or pyopencl's."""
    if layout == "N":
        return array
    if layout == "T":
        # pyopencl's arrays have no method swapaxes.
        return array.transpose((*range(array.ndim - 2), array.ndim - 1, array.ndim - 2))
    window = {
        "S": (slice(None, None, 2), slice(COLUMNS_IN_FRONT, None)),
        "D": (slice(None, None, 2), slice(None, None, 2)),
    }[layout]
    return array[(slice(None),) * (array.ndim - 2) + window]


def reference(case: Case) -> npt.NDArray[np.float64]:
    """Return A B in float64, shape (m, n) or (batch, m, n)."""
    a, b = operands(case)
    c: npt.NDArray[np.float64] = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return c


def judge(case: Case, c: Array, expected: Array, precision: str = "strict") -> tuple[float, float]:
    """Return the relative error of a result, and the error of its worst element.

    This uses no BLAS, whose threads would spin afterwards.

    Parameters
    ----------
    c : float32 array, shape of `expected`
        The result.
    expected : float64 array
        The array of `reference`.
    precision : {"strict", "float32", "fast"}, optional
        The mode that computed the result, whose promise is checked (docs/precision.md).

    Returns
    -------
    error : float
        ||C - C_ref|| / ||C_ref|| in Frobenius norms.
    worst : float
        The largest |C - C_ref| / (gamma(k + 2) ||a_i|| ||b_j||), where gamma(k) = k u / (1 - k u).
        The norms of A's row and B's column bound |A||B| from above. An element above 1 has more
        than rounding errors [1]_. NaN if an element is NaN. Other modes have a longer sum than
        k + 2. The mode ``"fast"`` has the largest element of each piece of 64 in place of all.

    Raises
    ------
    ValueError
        If the shapes differ.

    References
    ----------
    .. [1] N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1.
    """
    if c.shape != expected.shape:
        raise ValueError(
            f"the result's shape is {c.shape}, but the reference's is {expected.shape}"
        )
    a, b = operands(case)
    length = case.k + LONGER_SUM[precision]
    gamma = length * ROUNDOFF / (1 - length * ROUNDOFF)
    norms = _norms_of_pieces if precision == "fast" else _norms
    rows, columns = gamma * norms(a), norms(b.swapaxes(-1, -2))
    shape = (-1, case.m, case.n)
    rows = rows.reshape(-1, case.m)
    columns = np.broadcast_to(columns.reshape(-1, case.n), (len(rows), case.n))
    worst, error, norm = 0.0, 0.0, 0.0
    height = max(1, BLOCK // case.n)
    for each, wanted, row, column in zip(
        c.reshape(shape), expected.reshape(shape), rows, columns, strict=True
    ):
        for begin in range(0, case.m, height):
            block = slice(begin, begin + height)
            target = np.asarray(wanted[block])
            difference = np.abs(each[block] - target)
            error += float(np.square(difference).sum())
            norm += float(np.square(target).sum())
            # np.maximum returns NaN if either is NaN; Python's max may not.
            difference /= row[block, None] * column + case.k * LEAST_NORMAL
            worst = float(np.maximum(worst, difference.max()))
    return float(np.sqrt(error / norm)), worst


def _norms(x: Array) -> Array:
    """Return the Euclidean norm of each row."""
    squares: Array = np.einsum("...ij,...ij->...i", x, x, dtype=np.float64)
    return np.sqrt(squares)


def _norms_of_pieces(x: Array) -> Array:
    """Return the norm of each row after each piece of 64 elements is filled with its largest."""
    largest = np.maximum.reduceat(np.abs(x), range(0, x.shape[-1], PIECE), axis=-1)
    norms: Array = np.sqrt(PIECE) * _norms(largest)
    return norms
