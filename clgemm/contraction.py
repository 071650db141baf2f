"""Contractions of arrays as matrix products: `dot`, `inner`, `tensordot`."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.core.layout import merged
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

__all__ = [
    "as_matrix_of",
    "as_stacks",
    "contracted",
    "fits_dot",
    "summed_axes",
    "unwrapped",
    "without",
]


def without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return a shape without one axis; a vector's only axis is its last but one too."""
    axis = max(len(shape) + axis, 0)
    return shape[:axis] + shape[axis + 1 :]


def fits_dot(out: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether NumPy's dot would accept an output array, and return it.

    From an output array without dimensions it returns a scalar, since NumPy 2.5.
    """
    return (
        type(out) in (np.ndarray, np.memmap)
        and out.ndim > 0
        and out.shape == shape
        and out.dtype == np.float32
        and out.flags.c_contiguous
        and updatable(out)
    )


def as_stacks(x: AnyArray, y: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return operands of at least two dimensions: a vector is a row of x, a column of y."""
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
) -> tuple[AnyArray, BoundCall | None]:
    """Return dot(x, y), all matrices in one launch, nothing copied; and what repeats it.

    Parameters
    ----------
    x, y : float32 array, shapes (..., k) and (..., k, n) or (k,)
        Neither of them a scalar.
    shape : tuple of int
        Of the result.
    out : float32 array, optional
        Takes the result; a new array if left out. No two of its elements share memory.
    precision : str, optional
        As for `multiply`.
    """
    result = allocated(x, shape, "C", queue) if out is None else out
    # x is a stack I of m x k, y a stack J of k x n: the result's axes are I, m, J, n, and its
    # matrices those of the broadcast stack I x J.
    stack_x, stack_y = max(x.ndim - 2, 0), max(y.ndim - 2, 0)
    rows, columns = as_stacks(x, y)
    rows = rearranged(rows, [*range(stack_x), *[None] * stack_y, stack_x, stack_x + 1])
    row_axis = stack_x if x.ndim > 1 else None
    column_axis = len(shape) - 1 if y.ndim > 1 else None
    first_y = x.ndim - 1
    stacks = [*range(stack_x), *range(first_y, first_y + stack_y)]
    axes: list[int | None] = [*stacks, row_axis, column_axis]
    matrices = rearranged(result, axes)
    return result, multiply(1.0, rows, columns, 0.0, matrices, queue=queue, precision=precision)


def unwrapped(result: AnyArray, out: Any) -> Any:
    """Return a result as NumPy does: a host array of no dimensions as a scalar."""
    # Of any other array, indexing would make a view, which does not own its memory.
    if out is None and isinstance(result, np.ndarray) and not result.ndim:
        return result[()]
    return result


def summed_axes(x: AnyArray, y: AnyArray, axes: Any) -> tuple[list[int], list[int]] | None:
    """Return the summed axes of both, or None where NumPy is to raise its error."""
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
    """Return an array as a matrix, its first `split` axes the rows: a view where strides allow."""
    shape = math.prod(x.shape[:split]), math.prod(x.shape[split:])
    if not is_device(x):
        return x.reshape(shape)
    strides = layout_of(x).strides
    rows = merged(x.shape[:split], strides[:split])
    columns = merged(x.shape[split:], strides[split:])
    if rows is None or columns is None:
        return view(duplicate(x, "C", x.queue), shape, (shape[1], 1))
    return view(x, shape, (rows, columns))
