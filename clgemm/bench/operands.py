"""Random operands, the float64 reference and the check of a result, all by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clgemm.bench.cases import Case

__all__ = ["COLUMNS_IN_FRONT", "judge", "operands", "reference", "stored", "viewed"]

ROUNDOFF = 2.0**-24
COLUMNS_IN_FRONT = 5  # columns of the stored matrix before the first one of a sliced operand
BLOCK = 1 << 22  # elements that are compared at a time, so that float64 copies stay small

Array = npt.NDArray[Any]


def operands(case: Case) -> tuple[Array, Array]:
    """Return A and B of a case: float32, uniform between -1 and 1, the same in each process.

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
    a = _uniform(rng, stack, case.m, case.k, case.layout_a)
    return a, _uniform(rng, () if case.shared_b else stack, case.k, case.n, case.layout_b)


def _uniform(
    rng: np.random.Generator, stack: tuple[int, ...], rows: int, columns: int, layout: str
) -> Array:
    shape = {
        "N": (rows, columns),
        "T": (columns, rows),
        "S": (2 * rows, columns + COLUMNS_IN_FRONT),
        "D": (2 * rows, 2 * columns),
    }[layout]
    values = rng.random((*stack, *shape), np.float32)
    values *= 2
    values -= 1
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


def judge(case: Case, c: Array, expected: Array) -> tuple[float, float]:
    """Return the relative error of a result, and the error of its worst element.

    This uses no BLAS, whose threads would spin afterwards.

    Parameters
    ----------
    c : float32 array, shape of `expected`
        The result.
    expected : float64 array
        The array of `reference`.

    Returns
    -------
    error : float
        ||C - C_ref|| / ||C_ref|| in Frobenius norms.
    worst : float
        The largest |C - C_ref| / (gamma(k) ||a_i|| ||b_j||), where gamma(k) = k u / (1 - k u). The
        norms of A's row and B's column bound |A||B| from above. An element above 1 has more than
        rounding errors [1]_. NaN if an element is NaN.

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
    gamma = case.k * ROUNDOFF / (1 - case.k * ROUNDOFF)
    rows = gamma * np.sqrt(np.einsum("...ij,...ij->...i", a, a, dtype=np.float64))
    columns = np.sqrt(np.einsum("...ij,...ij->...j", b, b, dtype=np.float64))
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
            difference /= row[block, None] * column
            worst = float(np.maximum(worst, difference.max()))
    return float(np.sqrt(error / norm)), worst
