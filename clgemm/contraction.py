"""The steps that `dot`, `inner` and `tensordot` share, and how NumPy makes such products."""

from __future__ import annotations

import math
import operator
from typing import Any, TypeAlias

import numpy as np
import pyopencl as cl

from clgemm.core.layout import merged
from clgemm.planning import selection
from clgemm.planning.host_times import BatchKind
from clgemm.runtime import staying
from clgemm.runtime.execute import BoundCall
from clgemm.runtime.launch import duplicate, multiply
from clgemm.runtime.operands import (
    AnyArray,
    allocated,
    is_device,
    layout_of,
    rearranged,
    updatable,
    view,
)
from clgemm.runtime.regions import sent_share
from clgemm.runtime.transfer.at_once import AtOnceCall

__all__ = [
    "Sizes",
    "as_batches",
    "as_matrix_of",
    "batch_kind",
    "contracted",
    "dot_sizes",
    "fits_dot",
    "is_loop",
    "matmul_sizes",
    "require_out",
    "stays_on_host",
    "summed_axes",
    "unwrapped",
    "without",
]

# m, n, k and the number of matrices.
Sizes: TypeAlias = tuple[int, int, int, int]
# Of an element of the result, and of a multiply-add where the summed axes are dense or are not.
# From 300 random products on two cores of an AMD EPYC (Zen 5), NumPy 2.4 (2026-11-26).
ELEMENT_US, DENSE_US, STRIDED_US = 6e-3, 7e-5, 2.5e-4


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
    result = allocated(x, shape, "C", queue) if out is None else out
    # x is a batch I of m x k matrices, y a batch J of k x n. The axes of the result are I, m, J, n:
    # it is a batch I x J of m x n matrices.
    batch_x, batch_y = max(x.ndim - 2, 0), max(y.ndim - 2, 0)
    rows, columns = as_batches(x, y)
    rows = rearranged(rows, [*range(batch_x), *[None] * batch_y, batch_x, batch_x + 1])
    row_axis = batch_x if x.ndim > 1 else None
    column_axis = len(shape) - 1 if y.ndim > 1 else None
    first_y = x.ndim - 1
    batch = [*range(batch_x), *range(first_y, first_y + batch_y)]
    axes: list[int | None] = [*batch, row_axis, column_axis]
    matrices = rearranged(result, axes)
    return result, multiply(1.0, rows, columns, 0.0, matrices, queue=queue, precision=precision)


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
        return view(duplicate(x, "C", x.queue), shape, (shape[1], 1))
    return view(x, shape, (rows, columns))


def is_loop(a: Any, b: Any) -> bool:
    """Tell whether `numpy.matmul` makes a product without BLAS, and takes long for it.

    That is a column times a row, or a vector times a large matrix without neighbours in memory.
    """
    if min(a.ndim, b.ndim) < 2:
        return False
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    if min(m, n) > 1:
        return bool(k == 1)
    matrix = a if n == 1 else b
    is_large = matrix.size >= selection.LEAST_SCATTERED
    return is_large and a.ndim == b.ndim == 2 and staying.is_scattered(matrix)


def batch_kind(a: Any, b: Any) -> BatchKind:
    """Return what the matrices of a batch have in common."""
    if a.ndim < 3 or math.prod(b.shape[:-2]) != 1:
        return BatchKind.OWN_B
    is_folded = merged(a.shape[:-1], a.strides[:-1]) is not None
    return BatchKind.FOLDED if is_folded else BatchKind.ONE_B


def element_us(x: AnyArray, y: AnyArray) -> float:
    """Return the microseconds that `numpy.dot` takes for an element of its result; 0 with BLAS.

    With more than two axes, it sums one element after the other.
    """
    if max(x.ndim, y.ndim) < 3:
        return 0.0
    is_dense = x.strides[-1] == y.strides[-2 if y.ndim > 1 else -1] == x.itemsize
    return float(ELEMENT_US + x.shape[-1] * (DENSE_US if is_dense else STRIDED_US))


def matmul_sizes(
    rows: AnyArray, columns: AnyArray, batch: tuple[int, ...], is_new: bool
) -> tuple[Sizes, float, dict[str, Any]]:
    """Return what the choice of the side of a matmul of batches of matrices depends on.

    Parameters
    ----------
    batch : tuple of int
        The shape of the batch, of which the operands may have parts.
    is_new : bool
        Whether the result is a new array.

    Returns
    -------
    sizes, sent, how
        As for `clgemm.runtime.staying.compared`.
    """
    m, k, n = rows.shape[-2], rows.shape[-1], columns.shape[-1]
    matrices = math.prod(batch)
    how = {"by_loop": is_loop(rows, columns), "is_new": is_new, "kind": batch_kind(rows, columns)}
    return (m, n, k, matrices), sent_share(rows, columns, matrices * m * n), how


def dot_sizes(x: AnyArray, y: AnyArray, is_new: bool) -> tuple[Sizes, float, dict[str, Any]]:
    """Return what the choice of the side of dot(x, y) depends on, as `matmul_sizes` does."""
    m, n = math.prod(x.shape[:-1]), math.prod(without(y.shape, -2))
    how = {"is_new": is_new, "element_us": element_us(x, y)}
    return (m, n, x.shape[-1], 1), sent_share(x, y, m * n), how


def stays_on_host(function: str | None, x: AnyArray, y: AnyArray, is_new: bool) -> bool:
    """Tell whether the host multiplies dot(x, y) faster; a function's name is for `staying`."""
    sizes, sent, how = dot_sizes(x, y, is_new)
    return staying.host_is_faster(function, x, y, sizes, sent, **how)
