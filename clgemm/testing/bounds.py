"""The error that a float32 matrix product may have, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from clgemm.core.precision import chosen_precision

__all__ = ["UNIT_ROUNDOFF", "error_bound", "finite", "gamma", "underflow", "widened"]

UNIT_ROUNDOFF = 2.0**-24
SMALLEST_NORMAL = 2.0**-126
# Products of two float32 numbers from here on are multiples of 2**-125 once they are rounded. So
# are their sums: none of them is below the normal range.
LEAST_PRODUCT = 2.0**-102
PIECE = 64  # of k, for "fast"
# More roundings than k for each precision: docs/precision.md.
ROUNDINGS = {"strict": 2, "float32": 64, "fast": 128}

Array = npt.NDArray[Any]


def gamma(n: int) -> float:
    """Return Higham's bound on `n` roundings: n u / (1 - n u), u = 2**-24.

    References
    ----------
    .. [1] N. J. Higham, Accuracy and Stability of Numerical Algorithms, chapter 3.
    """
    return n * UNIT_ROUNDOFF / (1 - n * UNIT_ROUNDOFF)


def widened(array: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return an array, of NumPy or on the device, as float64 on the host."""
    on_host = array.get() if hasattr(array, "get") and not isinstance(array, np.ndarray) else array
    return np.asarray(on_host).astype(np.float64)


def finite(array: Array) -> Array:
    """Return the array with 0 in the place of NaN and infinities."""
    return np.where(np.isfinite(array), array, 0.0)


def error_bound(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    precision: str | None = None,
) -> npt.NDArray[np.float64]:
    """Return the error that each element of ``alpha A B + beta C`` may have.

    With u = 2**-24 and gamma(n) = n u / (1 - n u), the bound is

    - gamma(k + 2) (|alpha| |A| |B| + |beta| |C|) for ``"strict"``. Any order of float32 operations
      keeps it.
    - gamma(k + 64) times the same for ``"float32"``.
    - The bound of `clgemm.precision` for C as a whole for ``"fast"``.

    Where operands are so small that products or sums may leave float32's normal range, the bound
    also has what is lost there, 2**-126 for each operation. NaN and infinities count as 0.

    Parameters
    ----------
    a : array_like, shape (..., m, k)
        op(A), transposed already.
    b : array_like, shape (..., k, n)
        op(B), transposed already. Batches broadcast as in `numpy.matmul`.
    alpha, beta : float, optional
    c : array_like, shape (..., m, n), optional
        C before the product. It does not count if `beta` is 0.
    precision : {"strict", "float32", "fast"}, optional
        By default the precision that clgemm's products have here.

    Returns
    -------
    float64 ndarray, shape (..., m, n)

    Raises
    ------
    ValueError
        If the shapes disagree, or `precision` is none of the three.

    Examples
    --------
    >>> bound = error_bound(a, b, precision="strict")
    >>> assert (abs(result - exact) <= bound).all()
    """
    mode = chosen_precision(precision)
    x, y = (abs(finite(widened(operand))) for operand in (a, b))
    terms = abs(alpha) * (_by_pieces(x, y) if mode == "fast" else x @ y)
    if beta and c is not None:
        terms = terms + abs(beta) * abs(finite(widened(c)))
    if not alpha:
        x, y = x * 0, y * 0
    bound: npt.NDArray[np.float64] = gamma(x.shape[-1] + ROUNDINGS[mode]) * terms
    return bound + underflow(x, y, alpha, beta, None if c is None else widened(c))


def _by_pieces(x: Array, y: Array) -> Array:
    """Return the sum over pieces t of k of 64 max |A[i, t]| max |B[t, j]|."""
    k = x.shape[-1]
    total = np.zeros((x[..., :0] @ y[..., :0, :]).shape)
    for start in range(0, k, PIECE):
        rows = x[..., start : start + PIECE].max(-1, keepdims=True)
        columns = y[..., start : start + PIECE, :].max(-2, keepdims=True)
        total = total + PIECE * rows * columns
    return total


def underflow(x: Array, y: Array, alpha: float, beta: float, c: Array | None) -> Array:
    """Return what elements of ``alpha |A| |B| + beta |C|`` may lose below the normal range.

    Parameters
    ----------
    x, y : float64 ndarray
        |A| and |B|, finite.
    c : float64 ndarray or None
        C.
    """
    k = x.shape[-1]
    if not k:
        small = np.zeros((x @ y).shape, bool)
    else:
        rows = np.where(x > 0, x, np.inf).min(-1, keepdims=True)
        columns = np.where(y > 0, y, np.inf).min(-2, keepdims=True)
        scale = min(1.0, abs(alpha)) if alpha else 1.0
        small = rows * columns * scale < LEAST_PRODUCT
    if beta and c is not None:
        scaled = abs(finite(c)) * min(1.0, abs(beta))
        small = small | ((scaled > 0) & (scaled < LEAST_PRODUCT))
    return np.where(small, (k + 2) * max(1.0, abs(alpha)) * SMALLEST_NORMAL, 0.0)
