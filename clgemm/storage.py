"""BLAS storage with a leading dimension, seen as a matrix."""

from __future__ import annotations

from typing import Literal

from clgemm.runtime.operands import AnyArray, layout_of, view

Order = Literal["F", "C"]


def smallest_leading(rows: int, columns: int, order: Order) -> int:
    """Return the smallest leading dimension of a rows x columns matrix; BLAS demands at least 1."""
    return max(1, rows if order == "F" else columns)


def storage_size(rows: int, columns: int, leading: int, order: Order) -> int:
    """Return the number of elements of a new storage for a rows x columns matrix."""
    return leading * (columns if order == "F" else rows)


def check_leading(name: str, rows: int, columns: int, leading: int, order: Order) -> None:
    """Raise ValueError if a leading dimension is too small for a rows x columns matrix."""
    if leading < smallest_leading(rows, columns, order):
        across = f"{rows} rows" if order == "F" else f"{columns} columns"
        raise ValueError(f"ld{name}={leading} is less than the {across} of {name}")


def window(x: AnyArray, name: str, rows: int, columns: int, leading: int, order: Order) -> AnyArray:
    """Return a view of the rows x columns matrix at the start of a storage.

    Parameters
    ----------
    x : array
        Contiguous of any shape, read in the order of its memory, or one-dimensional of any stride.
    leading : int
        Elements between columns (order "F") or rows (order "C").

    Raises
    ------
    ValueError
        If `leading` is too small, or if `x` is too short or not a storage.
    """
    check_leading(name, rows, columns, leading, order)
    if x.ndim != 1 and not x.flags.forc:
        raise ValueError(
            f"with leading dimensions, {name} must be BLAS storage: contiguous or "
            f"one-dimensional; it has shape {x.shape} and strides {x.strides}"
        )
    inner, outer = (rows, columns) if order == "F" else (columns, rows)
    needed = (outer - 1) * leading + inner if rows and columns else 0
    if x.size < needed:
        raise ValueError(
            f"{name} has {x.size} elements, but {rows} x {columns} with ld{name}={leading} "
            f"needs {needed}"
        )
    step = layout_of(x).strides[0] if x.ndim == 1 else 1
    return view(x, (rows, columns), (step, leading * step)[:: 1 if order == "F" else -1])
