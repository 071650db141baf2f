"""What is tried of tensor cores: errors on data of narrow and of wide range; fine sums. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from clgemm.core.shapes import Shape

__all__ = ["adds_coarsely", "inexact"]

Array = npt.NDArray[Any]

# 64 u, with u = 2**-24: far above the errors of right results, far below those of wrong ones.
ALLOWED = 64 * 2.0**-24
NARROW_RANGE, WIDE_RANGE = 0.0, 5.0  # deviations of the exponents, in natural logarithms


def inexact(multiply: Callable[[Array, Array], Array], shape: Shape, is_guarded: bool) -> str:
    """Return what is wrong with products of a shape, "" if nothing is.

    Parameters
    ----------
    multiply : callable
        Takes and returns matrices of float32.
    is_guarded : bool
        Whether data of any range are to be multiplied right. They then have an infinity and a tiny
        element.
    """
    m, n, k, _ = shape
    for spread in (NARROW_RANGE, WIDE_RANGE) if is_guarded else (NARROW_RANGE,):
        rng = np.random.default_rng(0)
        a, b = (
            rng.standard_normal(sizes) * np.exp(spread * rng.standard_normal(sizes))
            for sizes in ((m, k), (k, n))
        )
        if is_guarded:
            a[3, 5], b[7, n // 3] = 1e-36, np.inf
        a, b = a.astype(np.float32), b.astype(np.float32)
        c = multiply(a, b)
        with np.errstate(invalid="ignore"):  # infinities
            exact = a.astype(np.float64) @ b
            sizes = np.abs(a.astype(np.float64)) @ np.abs(b)
            errors = np.abs(c - exact)
        finite = np.isfinite(exact)
        where = f"at {shape.label}, spread {spread:g}"
        if not np.array_equal(finite, np.isfinite(c)):
            return f"other elements than those of IEEE arithmetic are not finite {where}"
        error = float(np.max(errors[finite] / sizes[finite], initial=0.0))
        if not error <= ALLOWED:
            return f"an element's error is {error:.2g} of its bound's sum {where}"
    return ""


def adds_coarsely(multiply: Callable[[Array, Array], Array], tf32: bool = False) -> str:
    """Return what is wrong if products of 2**-25 do not count beside one of 1; "" if they do.

    The error bounds for short k take for granted that they do.

    Parameters
    ----------
    multiply : callable
        Takes and returns matrices of float32.
    tf32 : bool, optional
        Whether other rows of A need the range of TF32.
    """
    depth = 8 if tf32 else 16  # what is added in one step
    a, b = np.full((128, depth), 2.0**-12), np.full((depth, 128), 2.0**-13)
    a[:, 0], b[0] = 1, 1
    if tf32:
        a[64:, 1::2] = 2.0**-30
    exact = 1 + (depth - 1) * 2.0**-25
    c = multiply(a.astype(np.float32), b.astype(np.float32))[:64].astype(np.float64)
    is_fine = bool((np.abs(c - exact) < 2.0**-23).all())
    return "" if is_fine else f"small products are lost beside large ones ({tf32=})"
