"""Parsing of np.matmul's arguments into a product of two batches of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from clgemm.core.layout import broadcast_batch
from clgemm.runtime import results
from clgemm.runtime.contraction import batched
from clgemm.runtime.operands import overlap, rearranged, updatable
from clgemm.side.decision import Sizes

__all__ = ["FLOAT32", "Request", "is_float32", "parse_matmul"]

FLOAT32 = np.dtype(np.float32)
KEYWORDS = {"axes", "casting", "dtype", "order", "out", "subok"}
# Another subclass may define products of its own.
ARRAYS = np.ndarray, np.memmap

Axes = tuple[int, int]


class Request(NamedTuple):
    """A valid product of float32 arrays.

    Attributes
    ----------
    rows, columns : ndarray, shapes (..., m, k) and (..., k, n)
        The operands, of any dtype that NumPy converts to float32 in this call.
    out : ndarray or None
        The argument `out`.
    shape : tuple of int
        The shape of the result.
    order : {"C", "F"}
        The memory order of a new array for the result.
    strides : tuple of int or None
        Strides that give the order of the new array's axes, if it is neither C nor F.
    axes : tuple of int or None
        The axes of the result for rows and for columns; None where an operand is a vector.
    """

    rows: Any
    columns: Any
    out: Any
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    strides: tuple[int, ...] | None
    axes: tuple[int | None, int | None]

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of the batch."""
        return broadcast_batch(self.rows.shape[:-2], self.columns.shape[:-2])

    @property
    def sizes(self) -> Sizes:
        """m, n, k and the number of matrices."""
        rows, columns = self.rows, self.columns
        return rows.shape[-2], columns.shape[-1], rows.shape[-1], math.prod(self.batch)

    @property
    def is_direct(self) -> bool:
        """Whether the device may write to `out`, and NumPy again if the device fails."""
        out = self.out
        return updatable(out) and not overlap(out, self.rows) and not overlap(out, self.columns)

    def allocated(self) -> Any:
        """Return a new array for the result, with NumPy's memory layout."""
        if self.strides is None:
            return results.empty(self.shape, self.order)
        like = np.lib.stride_tricks.as_strided(np.empty(1, np.float32), self.shape, self.strides)
        return np.empty_like(like)  # takes the order of the strides and reads no element

    def matrices(self, result: Any) -> Any:
        """Return a view of the result, or of an array of its shape, as a batch of matrices."""
        last = [axis for axis in self.axes if axis is not None]
        batch = [axis for axis in range(result.ndim) if axis not in last]
        return rearranged(result, [*batch, *self.axes])


def is_float32(x: Any) -> bool:
    """Tell whether an array is of float32; an array that was pickled has a dtype of its own."""
    return x.dtype is FLOAT32 or x.dtype == FLOAT32


def parse_matmul(
    arguments: Sequence[Any], keywords: Mapping[str, Any], copy: Callable[..., Any]
) -> Request | None:
    """Return the product that a call of np.matmul asks for.

    Parameters
    ----------
    copy : callable
        A copy of NumPy's matmul, used to find the memory layout of a batch.

    Returns
    -------
    Request or None
        None if the product is not of float32, or if NumPy would raise an error.
    """
    if not 2 <= len(arguments) <= 3:
        return None
    out = keywords.get("out")
    if (
        len(arguments) == 2
        and keywords.keys() <= {"out"}
        and _are_plain(arguments[0], arguments[1], out)
    ):
        a, b = arguments
        return Request(a, b, out, (a.shape[0], b.shape[1]), "C", None, (0, 1))
    if len(arguments) == 3:
        if "out" in keywords:
            return None
        out = arguments[2]
    if isinstance(out, tuple) and len(out) == 1:
        out = out[0]
    a, b = arguments[:2]
    if keywords.keys() - KEYWORDS or not _is_float32(a, b, out, keywords):
        return None
    a, b = np.asarray(a), np.asarray(b)
    axes: Axes | None = None
    if keywords.get("axes") is not None:
        chosen = _axes(keywords["axes"], a, b)
        if chosen is None:
            return None
        a, b = (np.moveaxis(x, pair, (-2, -1)) for x, pair in zip((a, b), chosen, strict=False))
        axes = chosen[2]
    return _request(a, b, out, axes, keywords.get("order", "K"), copy)


def _are_plain(a: Any, b: Any, out: Any) -> bool:
    """Tell whether all are float32 matrices of fitting shapes, as most are; `out` may be None."""
    if not (type(a) is type(b) is np.ndarray and a.dtype is b.dtype is FLOAT32):
        return False
    if not (a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0]):
        return False
    return out is None or bool(
        type(out) is np.ndarray
        and out.dtype is FLOAT32
        and out.shape == (a.shape[0], b.shape[1])
        and out.flags.writeable
    )


def _is_float32(a: Any, b: Any, out: Any, keywords: Mapping[str, Any]) -> bool:
    """Tell whether NumPy would multiply in float32, perhaps after converting an operand."""
    if type(a) not in ARRAYS or type(b) not in ARRAYS or type(out) not in (np.ndarray, type(None)):
        return False
    casting, dtype = keywords.get("casting", "same_kind"), keywords.get("dtype")
    try:
        wanted = np.result_type(a.dtype, b.dtype) if dtype is None else np.dtype(dtype)
        return bool(
            wanted == FLOAT32
            and np.can_cast(a.dtype, FLOAT32, casting)
            and np.can_cast(b.dtype, FLOAT32, casting)
            and (out is None or np.can_cast(FLOAT32, out.dtype, casting))
        )
    except (TypeError, ValueError):
        return False


def _axes(axes: Any, a: Any, b: Any) -> tuple[Axes, Axes, Axes] | None:
    """Return the axes of rows and columns in a, b and the result; None if NumPy must check them."""
    if not isinstance(axes, list) or len(axes) != 3 or a.ndim < 2 or b.ndim < 2:
        return None
    result_ndim = max(a.ndim, b.ndim)
    for pair, ndim in zip(axes, (a.ndim, b.ndim, result_ndim), strict=True):
        if not isinstance(pair, tuple) or len(pair) != 2:
            return None
        if not all(type(axis) is int and -ndim <= axis < ndim for axis in pair):
            return None
        if pair[0] % ndim == pair[1] % ndim:
            return None
    first, second, third = axes
    return first, second, (third[0] % result_ndim, third[1] % result_ndim)


def _request(
    a: Any, b: Any, out: Any, axes: Axes | None, order: Any, copy: Callable[..., Any]
) -> Request | None:
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        return None
    try:
        rows, columns, batch, shape, (*_, row_axis, column_axis) = batched(a, b)
    except ValueError:
        return None
    if axes is not None:
        row_axis, column_axis = axes
        rest = iter(batch)
        sizes = {row_axis: rows.shape[-2], column_axis: columns.shape[-1]}
        shape = tuple(sizes[i] if i in sizes else next(rest) for i in range(len(batch) + 2))
    if out is not None and (out.shape != shape or not out.flags.writeable):
        return None
    if not isinstance(order, str) or order not in "KACF" or len(order) != 1:
        return None
    strides = None
    if order == "A":
        order = "F" if a.flags.fnc and b.flags.fnc else "C"
    if axes is not None:
        # NumPy's result is in memory a batch of matrices, wherever its rows and columns are.
        rest = iter(range(len(batch)))
        places = {row_axis: len(batch), column_axis: len(batch) + 1}
        ranks = [places[i] if i in places else next(rest) for i in range(len(shape))]
        strides = tuple(rank + 1 if order == "F" else len(shape) - rank for rank in ranks)
    elif order == "K" and len(batch) > 1 and not (a.flags.carray and b.flags.carray):
        # NumPy's layout of the batch depends on the operands: try it on matrices of one element.
        outer = copy(rows[..., :1, :0], columns[..., :0, :1]).strides[: len(batch)]
        strides = (*outer, *(0,) * (len(shape) - len(batch)))
    known: Literal["C", "F"] = "F" if order == "F" else "C"
    return Request(rows, columns, out, shape, known, strides, (row_axis, column_axis))
