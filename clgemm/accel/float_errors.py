"""Floating-point errors of products, which NumPy reports: overflow and invalid operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "NO_ERRORS",
    "FloatErrors",
    "Reports",
    "cannot_overflow",
    "errors_of",
    "raise_again",
    "reports",
]

LARGE = np.full((1, 1), 3e38, np.float32)
INFINITE, ZERO = np.full((1, 1), np.inf, np.float32), np.zeros((1, 1), np.float32)
# Below the square of the largest float32 number, even if sums of squares in float32 lose some.
BOUND = 1e70


class FloatErrors(NamedTuple):
    """The floating-point errors of a product, named as in `numpy.errstate`."""

    overflow: bool
    invalid: bool


class Reports(NamedTuple):
    """What NumPy reports at present.

    Attributes
    ----------
    errors : bool
        Overflow or invalid operations, which show in a finished product.
    underflow : bool
        Underflow, which does not.
    """

    errors: bool
    underflow: bool


NO_ERRORS = FloatErrors(overflow=False, invalid=False)


def reports() -> Reports:
    """Return what NumPy reports."""
    heeded = np.geterr()
    return Reports(
        errors=not heeded["over"] == heeded["invalid"] == "ignore",
        underflow=heeded["under"] != "ignore",
    )


def errors_of(c: Any, a: Any, b: Any) -> FloatErrors:
    """Return the floating-point errors of the device's product.

    They are looked for if somebody watches: see `clgemm.runtime.finite`.

    Parameters
    ----------
    c : ndarray, shape (..., m, n)
        The product.
    a, b : ndarray, shapes (..., m, k) and (..., k, n)
        The operands. Their batches broadcast to that of `c`.
    """
    from clgemm.hardware.choice import chosen
    from clgemm.runtime.finite import is_finite, watch

    seen = watch()
    if seen is None or not c.size or seen.elements == c.size:
        return NO_ERRORS
    if a.size + b.size < c.size and c.dtype == np.float32 and cannot_overflow(a, b):
        return NO_ERRORS
    return NO_ERRORS if is_finite(c, chosen()[0]) else _float_errors(a, b, c)


def cannot_overflow(a: Any, b: Any) -> bool:
    """Return whether no sum of products of rows and columns can overflow, by the operands' norms.

    False also if an element is not finite, and for some operands where no sum overflows.
    """
    # By the Cauchy-Schwarz inequality.
    squares = (float(np.einsum("i,i->", x, x)) for x in (a.ravel("K"), b.ravel("K")))
    return math.prod(squares) < BOUND


def raise_again(errors: FloatErrors, host: Callable[..., Any]) -> None:
    """Have NumPy make the floating-point errors of a product again, so that it reports them."""
    if errors.overflow:
        host(LARGE, LARGE)
    if errors.invalid:
        host(INFINITE, ZERO)


def _float_errors(a: Any, b: Any, c: Any) -> FloatErrors:
    """Return the errors, by elements of c that their rows and columns cannot give without one.

    Finite numbers give Inf or NaN only by an overflow. Numbers give NaN only by an invalid
    operation.
    """
    finite = np.isfinite(a).all(-1)[..., :, None] & np.isfinite(b).all(-2)[..., None, :]
    numbers = ~np.isnan(a).any(-1)[..., :, None] & ~np.isnan(b).any(-2)[..., None, :]
    return FloatErrors(
        overflow=bool((finite & ~np.isfinite(c)).any()),
        invalid=bool((numbers & np.isnan(c)).any()),
    )
