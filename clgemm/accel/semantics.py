"""What NumPy's products do besides multiplying: symmetric results, and floating-point errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["NO_ERRORS", "FloatErrors", "heeds_underflow", "is_by_own_transpose", "mirror", "settle"]

BLOCK = 256  # rows and columns that are mirrored at a time


class FloatErrors(NamedTuple):
    """What went wrong in a product, in the words of `numpy.errstate`."""

    overflow: bool
    invalid: bool


NO_ERRORS = FloatErrors(overflow=False, invalid=False)


def is_by_own_transpose(a: Any, b: Any) -> bool:
    """Tell whether b is the transpose of a, the same memory: then NumPy's a @ b is symmetric."""
    return bool(
        a.ndim == b.ndim > 1
        and a.shape == b.shape[:-2] + b.shape[:-3:-1]
        and a.strides == b.strides[:-2] + b.strides[:-3:-1]
        and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    )


def heeds_underflow() -> bool:
    """Tell whether underflow is to be reported, of which a finished product shows no trace."""
    return np.geterr()["under"] != "ignore"


def settle(
    symmetric: bool,
    c: Any,
    operands: Callable[[], tuple[Any, Any]],
    host: Callable[[Any, Any], Any],
) -> FloatErrors:
    """Give the device's product what NumPy's has, and say what went wrong in it.

    Parameters
    ----------
    symmetric : bool
        The result is made symmetric bit for bit.
    c : ndarray, shape (..., m, n)
        The product.
    operands : callable
        Returns a and b, of shapes (..., m, k) and (..., k, n), if it comes to that.
    host : callable
        NumPy's product on the host.
    """
    if symmetric:
        mirror(c)
    heeded = np.geterr()
    if heeded["over"] == heeded["invalid"] == "ignore" or not c.size:
        return NO_ERRORS
    with np.errstate(all="ignore"):
        # Sums of rows, at the speed of all cores' memory: not finite if any element is not (or if
        # they are too large themselves, and then it takes a closer look).
        if np.isfinite(host(c, np.ones(c.shape[-1], np.float32))).all():
            return NO_ERRORS
        return _float_errors(*operands(), c)


def _float_errors(a: Any, b: Any, c: Any) -> FloatErrors:
    """Tell the errors by what finite numbers, and numbers, cannot make without one."""
    finite = np.isfinite(a).all(-1)[..., :, None] & np.isfinite(b).all(-2)[..., None, :]
    numbers = ~np.isnan(a).any(-1)[..., :, None] & ~np.isnan(b).any(-2)[..., None, :]
    return FloatErrors(
        overflow=bool((finite & ~np.isfinite(c)).any()),
        invalid=bool((numbers & np.isnan(c)).any()),
    )


def mirror(c: Any) -> None:
    """Copy what is above the diagonals of a stack of square matrices to below."""
    n = c.shape[-1]
    flipped = c.swapaxes(-1, -2)
    for i in range(0, n, BLOCK):
        rows = slice(i, i + BLOCK)
        for j in range(0, i, BLOCK):
            columns = slice(j, j + BLOCK)
            c[..., rows, columns] = flipped[..., rows, columns]
        corner = c[..., rows, rows]
        below = np.tri(corner.shape[-1], k=-1, dtype=np.bool_)
        np.copyto(corner, flipped[..., rows, rows].copy(), where=below)
