"""dot(x, y) of stacks of matrices: the result's shape and axes, and one launch for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.runtime.call_cache import Way
from clgemm.runtime.launch import multiply
from clgemm.runtime.operands import AnyArray, allocated, rearranged, updatable

__all__ = ["as_stacks", "contracted", "fits_dot", "unwrapped", "without"]


def without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return a shape without one axis; a vector's only axis is its last but one too."""
    axis = max(len(shape) + axis, 0)
    return shape[:axis] + shape[axis + 1 :]


def fits_dot(out: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether NumPy's dot would accept an output array, and return it.

    From an output array without dimensions it returns a scalar, since NumPy 2.5.
    """
    return (
        type(out) is np.ndarray
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
) -> tuple[AnyArray, Way | None]:
    """Return dot(x, y), all matrices in one launch, nothing copied; and the way to do it again.

    Parameters
    ----------
    x, y : float32 array, shapes (..., k) and (..., k, n) or (k,)
        Neither of them a scalar.
    shape : tuple of int
        Of the result.
    out : float32 array, optional
        Takes the result; a new array if left out. No two of its elements share memory.
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
    way = multiply(1.0, rows, columns, 0.0, rearranged(result, axes), queue=queue)
    return result, way


def unwrapped(result: AnyArray, out: Any) -> Any:
    """Return a result as NumPy does: a host array of no dimensions as a scalar."""
    # Of any other array, indexing would make a view, which does not own its memory.
    if out is None and isinstance(result, np.ndarray) and not result.ndim:
        return result[()]
    return result
