"""The steps that `dot`, `inner` and `tensordot` share, and how NumPy makes such products."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clgemm.core.layout import broadcast_batch, merged
from clgemm.runtime.operands import (
    AnyArray,
    allocated,
    is_device,
    layout_of,
    rearranged,
    updatable,
    view,
)

if TYPE_CHECKING:
    import pyopencl as cl

    from clgemm.runtime.execute import BoundCall
    from clgemm.runtime.transfer.at_once import AtOnceCall

__all__ = [
    "as_batches",
    "as_matrix_of",
    "as_products",
    "axes_of",
    "batched",
    "contracted",
    "dot_kind",
    "fits_dot",
    "is_scaling",
    "is_scattered",
    "matmul_kind",
    "require_out",
    "summed_axes",
    "unwrapped",
    "without",
]


def without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return a shape without one axis. The only axis of a vector is also its last but one."""
    axis = max(len(shape) + axis, 0)
    return shape[:axis] + shape[axis + 1 :]


def fits_dot(out: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether NumPy's dot would accept `out` and return it.

    It is False without dimensions, because NumPy returns a scalar then from version 2.5 on.
    """
    return (
        type(out) in (np.ndarray, np.memmap)
        and out.ndim > 0
        and out.shape == shape
        and out.dtype == np.float32
        and out.flags.c_contiguous
        and updatable(out)
    )


def is_scaling(x: AnyArray, y: AnyArray) -> bool:
    """Tell whether NumPy's dot scales by a single number, which may make negative zeros."""
    return bool(x.size == 1 or y.size == 1)


def require_out(out: AnyArray | None, shape: tuple[int, ...]) -> None:
    """Raise ValueError if a device array cannot take a result of this shape."""
    if out is not None and (out.shape != shape or out.dtype != np.float32):
        raise ValueError(f"out is {out.dtype} of shape {out.shape}, the result float32 of {shape}")
    if out is not None and not updatable(out):
        raise ValueError(f"elements of out overlap: shape {out.shape}, strides {out.strides}")


def as_batches(x: AnyArray, y: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return both operands as batches of matrices: a vector x is a row, a vector y a column."""
    return (
        x if x.ndim > 1 else rearranged(x, (None, 0)),
        y if y.ndim > 1 else rearranged(y, (0, None)),
    )


class Batches(NamedTuple):
    """The operands of `numpy.matmul` as batches of matrices, and where their products go.

    Attributes
    ----------
    batch, shape : tuple of int
        The shape of the batch, and that of the result.
    axes : list of int or None
        The axes of the result in the order of the batch, rows and columns; None where a vector has
        none.
    """

    rows: AnyArray
    columns: AnyArray
    batch: tuple[int, ...]
    shape: tuple[int, ...]
    axes: list[int | None]


def batched(x: AnyArray, y: AnyArray) -> Batches:
    """Return the operands of `numpy.matmul`, neither a scalar, as batches of matrices.

    Raises
    ------
    ValueError
        If the batches do not broadcast.
    """
    rows, columns = as_batches(x, y)
    batch = broadcast_batch(rows.shape[:-2], columns.shape[:-2])
    shape = batch + rows.shape[-2:-1] * (x.ndim > 1) + columns.shape[-1:] * (y.ndim > 1)
    row_axis = len(batch) if x.ndim > 1 else None
    column_axis = len(shape) - 1 if y.ndim > 1 else None
    return Batches(rows, columns, batch, shape, [*range(len(batch)), row_axis, column_axis])


def contracted(
    x: AnyArray,
    y: AnyArray,
    shape: tuple[int, ...],
    out: AnyArray | None,
    queue: cl.CommandQueue | None,
    precision: str | None = None,
) -> tuple[AnyArray, BoundCall | AtOnceCall | None]:
    """Return dot(x, y) and its bound plan, if one plan made it. No operand is copied.

    Parameters
    ----------
    x, y : float32 array, shapes (..., k) and (..., k, n) or (k,)
        Neither is a scalar.
    shape : tuple of int
        The shape of the result.
    out : float32 array, optional
        The array for the result. No two of its elements may overlap. The default is a new array.
    precision : str, optional
        As for `multiply`.
    """
    from clgemm.runtime.launch import multiply

    result = allocated(x, shape, "C", queue) if out is None else out
    rows, columns, _ = as_products(x, y, shape)
    matrices = rearranged(result, axes_of(x, y, shape))
    return result, multiply(1.0, rows, columns, 0.0, matrices, queue=queue, precision=precision)


def axes_of(x: AnyArray, y: AnyArray, shape: tuple[int, ...]) -> list[int | None]:
    """Return the axes of dot(x, y) in the order of its products: batch, rows, columns."""
    batch_x, batch_y = max(x.ndim - 2, 0), max(y.ndim - 2, 0)
    row_axis = batch_x if x.ndim > 1 else None
    column_axis = len(shape) - 1 if y.ndim > 1 else None
    first_y = x.ndim - 1
    batch = [*range(batch_x), *range(first_y, first_y + batch_y)]
    return [*batch, row_axis, column_axis]


def unwrapped(result: AnyArray, out: Any) -> Any:
    """Return a result as NumPy does: a host array without dimensions becomes a scalar."""
    # Other arrays are not indexed: that would give a view, which does not own its memory.
    if out is None and isinstance(result, np.ndarray) and not result.ndim:
        return result[()]
    return result


def summed_axes(x: AnyArray, y: AnyArray, axes: Any) -> tuple[list[int], list[int]] | None:
    """Return the summed axes of both operands; None if NumPy must raise an error.

    Raises
    ------
    IndexError, ValueError
        If the axes are wrong and the operands are device arrays.
    """
    try:
        first, second = axes
    except TypeError:
        count = operator.index(axes)
        first, second = range(x.ndim - count, x.ndim), range(count)
    both = []
    for z, chosen in ((x, first), (y, second)):
        chosen = list(chosen) if np.iterable(chosen) else [chosen]
        both.append([axis + z.ndim if axis < 0 else axis for axis in chosen])
    one, other = both
    exist = all(0 <= i < z.ndim for z, axes_of in ((x, one), (y, other)) for i in axes_of)
    if not exist and is_device(x):
        raise IndexError(f"axes={axes!r} are not all axes of shapes {x.shape} and {y.shape}")
    valid = (
        exist
        and len(one) == len(other)
        and len(set(one)) == len(one)
        and len(set(other)) == len(other)
        and all(x.shape[i] == y.shape[j] for i, j in zip(one, other, strict=True))
    )
    if not valid and is_device(x):
        raise ValueError(f"axes={axes!r} do not pair equal axes of shapes {x.shape} and {y.shape}")
    return (one, other) if valid else None


def as_matrix_of(x: AnyArray, split: int) -> AnyArray:
    """Return an array as a matrix whose rows are its first `split` axes; a view if possible."""
    shape = math.prod(x.shape[:split]), math.prod(x.shape[split:])
    if not is_device(x):
        return x.reshape(shape)
    strides = layout_of(x).strides
    rows = merged(x.shape[:split], strides[:split])
    columns = merged(x.shape[split:], strides[split:])
    if rows is None or columns is None:
        from clgemm.runtime.launch import duplicate

        return view(duplicate(x, "C", x.queue), shape, (shape[1], 1))
    return view(x, shape, (rows, columns))


def as_products(
    x: AnyArray, y: AnyArray, shape: tuple[int, ...]
) -> tuple[AnyArray, AnyArray, tuple[int, ...]]:
    """Return the operands of dot(x, y) as batches of matrices, and the shape of their product.

    x is a batch I of m x k matrices, y a batch J of k x n. The axes of the result are I, m, J, n:
    it is a batch I x J of m x n matrices.

    Parameters
    ----------
    shape : tuple of int
        The shape of dot(x, y).
    """
    batch_x, batch_y = max(x.ndim - 2, 0), max(y.ndim - 2, 0)
    rows, columns = as_batches(x, y)
    m, n = rows.shape[-2], columns.shape[-1]
    rows = rearranged(rows, [*range(batch_x), *[None] * batch_y, batch_x, batch_x + 1])
    first_y = x.ndim - 1
    return rows, columns, (*shape[:batch_x], *shape[first_y : first_y + batch_y], m, n)


def is_scattered(x: AnyArray) -> bool:
    """Tell whether no axis of a matrix has neighbours in memory: NumPy copies it for its BLAS."""
    return x.ndim > 1 and 1 not in x.shape[-2:] and x.itemsize not in x.strides[-2:]


def matmul_kind(rows: AnyArray, columns: AnyArray, matrices: int) -> str:
    """Return how `numpy.matmul` computes a batch of products.

    ``"loop"``: without its BLAS, for a column times a row, or a vector times a scattered matrix.
    ``"copied"``: scattered operands are copied first. ``"batch"``: one matrix after the other.
    """
    m, n, k = rows.shape[-2], columns.shape[-1], rows.shape[-1]
    are_scattered = is_scattered(rows) or is_scattered(columns)
    if k == 1 < min(m, n) or (1 in (m, n) and are_scattered):
        return "loop"
    if are_scattered:
        return "copied"
    return "batch" if matrices > 1 else "blas"


def dot_kind(x: AnyArray, y: AnyArray) -> str:
    """Return how `numpy.dot` computes a product; ``"elements"``: one sum after the other."""
    if max(x.ndim, y.ndim) > 2:
        return "elements"
    return "copied" if is_scattered(x) or is_scattered(y) else "blas"
