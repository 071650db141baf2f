"""Floating-point errors of products, which NumPy reports: overflow and invalid operations."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

Operands: TypeAlias = tuple[Any, Any]

LARGE, INFINITE, ZERO = (np.full((1, 1), x, np.float32) for x in (3e38, np.inf, 0))
# Below the square of the largest float32 number, even if sums of squares in float32 lose some.
BOUND = 1e70


def operands_that_err(c: Any, a: Any, b: Any) -> list[Operands]:
    """Return small operands whose products have the floating-point errors of the device's product.

    NumPy multiplies them, so that it reports the errors. They are looked for if somebody watches:
    see `clgemm.runtime.finite`.

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
        return []
    if a.size + b.size < c.size and c.dtype == np.float32 and cannot_overflow(a, b):
        return []
    if is_finite(c, chosen()[0]):
        return []
    # Finite numbers give Inf or NaN only by an overflow. Numbers give NaN only by an invalid
    # operation.
    finite = np.isfinite(a).all(-1)[..., :, None] & np.isfinite(b).all(-2)[..., None, :]
    numbers = ~np.isnan(a).any(-1)[..., :, None] & ~np.isnan(b).any(-2)[..., None, :]
    overflows, is_invalid = finite & ~np.isfinite(c), numbers & np.isnan(c)
    return [(LARGE, LARGE)] * bool(overflows.any()) + [(INFINITE, ZERO)] * bool(is_invalid.any())


def cannot_overflow(a: Any, b: Any) -> bool:
    """Return whether no sum of products of rows and columns can overflow, by the operands' norms.

    False also if an element is not finite, and for some operands where no sum overflows.
    """
    # By the Cauchy-Schwarz inequality.
    squares = (float(np.einsum("i,i->", x, x)) for x in (a.ravel("K"), b.ravel("K")))
    return math.prod(squares) < BOUND
