"""The error that a float32 matrix product may have, and assertions that name what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from clgemm.core.settings import chosen_precision

UNIT_ROUNDOFF = 2.0**-24
SMALLEST_NORMAL = 2.0**-126
LARGEST = float(np.finfo(np.float32).max)
SHOWN = 12  # elements of a row or column in a message
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


def on_host(array: Any) -> Array:
    """Return an array, of NumPy or on the device, as one of NumPy."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


def widened(array: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return an array, of NumPy or on the device, as float64 on the host."""
    return on_host(array).astype(np.float64)


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
    return bound + _underflow(x, y, alpha, beta, None if c is None else widened(c))


def _by_pieces(x: Array, y: Array) -> Array:
    """Return the sum over pieces t of k of 64 max |A[i, t]| max |B[t, j]|."""
    k = x.shape[-1]
    total = np.zeros((x[..., :0] @ y[..., :0, :]).shape)
    for start in range(0, k, PIECE):
        rows = x[..., start : start + PIECE].max(-1, keepdims=True)
        columns = y[..., start : start + PIECE, :].max(-2, keepdims=True)
        total = total + PIECE * rows * columns
    return total


def _underflow(x: Array, y: Array, alpha: float, beta: float, c: Array | None) -> Array:
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


def assert_product(
    result: Any,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    trans_a: int = 0,
    trans_b: int = 0,
    precision: str | None = None,
) -> None:
    """Assert that ``result`` is ``alpha op(A) op(B) + beta C`` within the bound of the precision.

    The exact product is computed in float64. NaN and infinities must stand where IEEE arithmetic
    puts them, except in the precision ``"fast"``. Elements whose sums may overflow float32 are
    not compared.

    Parameters
    ----------
    result : array or pyopencl.array.Array, shape (..., m, n)
    a : array_like, shape (..., m, k), or (..., k, m) if `trans_a`
    b : array_like, shape (..., k, n), or (..., n, k) if `trans_b`
        Batches broadcast as in `numpy.matmul`. `a`, `b` and `c` are as they were before the
        product: pass copies if the function writes to one of them.
    alpha, beta : float, optional
    c : array_like, shape (..., m, n), optional
    trans_a, trans_b : int or bool, optional
        Whether op(A) and op(B) are the transposes.
    precision : {"strict", "float32", "fast"}, optional
        Whose bound counts, as in `error_bound`.

    Raises
    ------
    AssertionError
        The message names the worst element, its error in units of the bound, and the operands'
        row and column.
    ValueError
        If the operands' shapes disagree, or `precision` is none of the three.

    Examples
    --------
    >>> assert_product(my_sgemm(2.0, a, b.T, trans_b=1), a, b.T, alpha=2.0, trans_b=1)
    """
    _, message = compared(
        result, a, b, alpha, beta, c, trans_a=trans_a, trans_b=trans_b, precision=precision
    )
    if message:
        raise AssertionError(message)


def assert_exact_product(result: Any, a: npt.ArrayLike, b: npt.ArrayLike) -> None:
    """Assert that ``result`` is ``A B`` bit for bit, in integers or booleans.

    Integers wrap around modulo 2^N, in the dtype of the result. Booleans are ors of ands.

    Parameters
    ----------
    result : array or pyopencl.array.Array, shape (..., m, n)
    a, b : array_like, shapes (..., m, k) and (..., k, n)
        Integers or booleans. Batches broadcast as in `numpy.matmul`.

    Raises
    ------
    AssertionError
        The message names the shape or dtype that differs, or the number of wrong elements and the
        first one with its row and column.
    TypeError
        If an operand has another dtype.

    Examples
    --------
    >>> counts = np.arange(6, dtype=np.int32).reshape(2, 3)
    >>> assert_exact_product(my_matmul(counts, counts.T), counts, counts.T)
    """
    x, y, found = map(on_host, (a, b, result))
    for name, each in (("a", x), ("b", y)):
        if each.dtype.kind not in "biu":
            raise TypeError(f"{name} has dtype {each.dtype}: only integers and booleans are exact")
    if found.dtype.kind not in "biu":
        raise AssertionError(f"the result has dtype {found.dtype}, no integers or booleans")
    exact = np.matmul(x, y, dtype=found.dtype, casting="unsafe")
    if found.shape != exact.shape:
        raise AssertionError(f"the result has shape {found.shape}, not {exact.shape}")
    wrong = np.argwhere(found != exact)
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        raise AssertionError(
            f"{len(wrong)} of {exact.size} elements are wrong, the first at {at}: {found[at]} in "
            f"place of {exact[at]} ({x.dtype} {x.shape} by {y.dtype} {y.shape} in {found.dtype})"
        )


def compared(
    result: Any,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: npt.ArrayLike | None = None,
    *,
    trans_a: int = 0,
    trans_b: int = 0,
    precision: str | None = None,
) -> tuple[float, str]:
    """Return the largest error in units of the bound, and what is wrong, "" if nothing is.

    The parameters are those of `assert_product`. Where a shape or dtype is wrong, the error is
    infinite.
    """
    mode = chosen_precision(precision)
    x, y = widened(a), widened(b)
    x, y = (x.swapaxes(-1, -2) if trans_a else x), (y.swapaxes(-1, -2) if trans_b else y)
    z = None if c is None or not beta else widened(c)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = alpha * (x @ y) if alpha else np.zeros((x @ y).shape)
        if z is not None:
            exact = exact + beta * z
    found = widened(result)
    about = (
        f"alpha op(A) op(B) + beta C of m={x.shape[-2]}, n={y.shape[-1]}, k={x.shape[-1]}, "
        f"alpha={alpha:g}, beta={beta:g}, precision={mode!r}"
    )
    if found.shape != exact.shape:
        return np.inf, f"{about}: the result has shape {found.shape}, not {exact.shape}"
    dtype = getattr(result, "dtype", np.asarray(result).dtype)
    if dtype != np.float32:
        return np.inf, f"{about}: the result has dtype {dtype}, not float32"
    if not exact.size:
        return 0.0, ""
    bound = error_bound(x, y, alpha, beta, z, precision=mode)
    units = _units(found, exact, bound)
    # What is promised: sums that stay in range, and IEEE's special values.
    terms = abs(finite(x)) @ abs(finite(y)) * (max(1.0, abs(alpha)) if alpha else 0.0)
    if z is not None:
        terms = terms + abs(beta) * abs(finite(z))
    units[~(terms <= LARGEST / 2)] = 0.0
    if mode == "fast":
        units[~np.isfinite(exact)] = 0.0
    worst = float(units.max())
    return worst, _message(about, (x, y, z), found, exact, bound, units) if worst > 1 else ""


def _units(found: Array, exact: Array, bound: Array) -> Array:
    """Return the error of each element in units of its bound; infinity where both differ in kind.

    NaN must be NaN, and an infinity that infinity. Where the bound is 0, so must the error be.
    """
    both = np.isfinite(found) & np.isfinite(exact)
    error = np.abs(np.where(both, found, 0.0) - np.where(both, exact, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        units = np.where(error == 0, 0.0, error / bound)
    same = (np.isnan(found) & np.isnan(exact)) | (found == exact)
    return np.where(both, units, np.where(same, 0.0, np.inf))


def _message(
    about: str,
    operands: tuple[Array, Array, Array | None],
    found: Array,
    exact: Array,
    bound: Array,
    units: Array,
) -> str:
    """Return what an error says: the worst element, its error, its row and column."""
    a, b, c = operands
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(units)), units.shape))
    (i, j), place = at[-2:], ", ".join(map(str, at))
    of_a, of_b = (np.broadcast_to(x, (*exact.shape[:-2], *x.shape[-2:]))[at[:-2]] for x in (a, b))
    lines = [
        about,
        f"{int((units > 1).sum())} of {exact.size} elements are wrong",
        f"the worst: C[{place}] is {found[at]:.9g} instead of {exact[at]:.9g}",
        f"its error is {units[at]:.4g} times the bound of {bound[at]:.3g}",
        f"row {i} of op(A): {_text(of_a[i])}",
        f"column {j} of op(B): {_text(of_b[:, j])}",
    ]
    if c is not None:
        lines.append(f"C[{place}] before: {np.broadcast_to(c, exact.shape)[at]:.9g}")
    return "\n".join(lines)


def _text(row: Array) -> str:
    return np.array2string(
        row.astype(np.float32), threshold=SHOWN, edgeitems=SHOWN // 3, max_line_width=10**6
    )


def assert_bitwise_repeatable(
    function: Callable[..., Any], *args: Any, repeats: int = 3, **kwargs: Any
) -> Any:
    """Assert that a function returns the same bits each time it is called.

    Parameters
    ----------
    function : callable
        It returns an array, of NumPy or on the device, or a tuple or list of them.
    *args, **kwargs
        What it is called with. Writeable NumPy arrays among them are put back before each call,
        so that the function may write to them.
    repeats : int, optional
        How often it is called, at least 2.

    Returns
    -------
    object
        What the first call returned: a copy, if it was an array.

    Raises
    ------
    AssertionError
        The message names the first element that differs, and both values.
    ValueError
        If `repeats` is less than 2.

    Examples
    --------
    >>> c = assert_bitwise_repeatable(clgemm.matmul, a, b, repeats=5)
    """
    if repeats < 2:
        raise ValueError(f"repeats={repeats} is less than 2: there is nothing to compare")
    arrays = [
        x
        for x in (*args, *kwargs.values())
        if isinstance(x, np.ndarray) and x.flags.writeable and x.dtype != object
    ]
    saved = [x.copy() for x in arrays]
    first: Any = None
    expected: list[Array] = []
    for number in range(repeats):
        for array, content in zip(arrays, saved, strict=True):
            array[...] = content
        returned = function(*args, **kwargs)
        each = returned if isinstance(returned, tuple | list) else (returned,)
        results = [np.array(on_host(x), copy=True) for x in each]
        if number == 0:
            expected = results
            first = results[0] if isinstance(returned, np.ndarray) else returned
            continue
        if len(results) != len(expected):
            raise AssertionError(
                f"call {number + 1} returned {len(results)} arrays, call 1 {len(expected)}"
            )
        for one, other in zip(expected, results, strict=True):
            _require_same_bits(one, other, number + 1)
    return first


def _require_same_bits(one: Array, other: Array, call: int) -> None:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        raise AssertionError(
            f"call {call} returned {other.dtype} {other.shape}, call 1 {one.dtype} {one.shape}"
        )
    size = one.dtype.itemsize
    bits = [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (one, other)]
    differ = (bits[0] != bits[1]).reshape(-1, size).any(axis=1) if one.size else np.zeros(0, bool)
    if differ.any():
        first = int(np.argmax(differ))
        at = tuple(int(i) for i in np.unravel_index(first, one.shape))
        raise AssertionError(
            f"call {call} returned other bits than call 1 in {int(differ.sum())} of {one.size} "
            f"elements; the first is {at}: {other[at]!r} instead of {one[at]!r}"
        )
