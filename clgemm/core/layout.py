"""Shapes and strides of batches of matrices, as plain numbers.

This module never touches an operand's memory. Strides count elements, not bytes: kernels take them
in that unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    "FLOAT_BYTES",
    "Layout",
    "Level",
    "batch_levels",
    "broadcast_batch",
    "dense_layout",
    "folded",
    "memory_order",
    "merged",
]


FLOAT_BYTES = 4


class Layout(NamedTuple):
    """The layout of a batch of matrices, whose ``shape`` is (*batch, rows, columns).

    Attributes
    ----------
    shape, strides : tuple of int, same length of at least 2
        Strides are in elements and may be negative or zero.
    alignment_bytes : int
        A power of two that divides the address of the first element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    alignment_bytes: int = 4

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch's shape, () for a single matrix."""
        return self.shape[:-2]

    @property
    def rows(self) -> int:
        """Rows of each matrix."""
        return self.shape[-2]

    @property
    def columns(self) -> int:
        """Columns of each matrix."""
        return self.shape[-1]

    @property
    def row_stride(self) -> int:
        """Elements from one row to the next."""
        return self.strides[-2]

    @property
    def column_stride(self) -> int:
        """Elements from one column to the next."""
        return self.strides[-1]

    @property
    def extent(self) -> tuple[int, int]:
        """Lowest and highest element in memory, relative to the first; the batch is not empty."""
        first = last = 0
        for count, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                first += (count - 1) * stride
            else:
                last += (count - 1) * stride
        return first, last

    @property
    def may_overlap_itself(self) -> bool:
        """Whether two elements may share memory; False only if the strides exclude it."""
        reach = 0  # the farthest element along all dimensions with smaller strides
        dimensions = ((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1)
        for stride, count in sorted(dimensions):
            if stride <= reach:
                return True
            reach += stride * (count - 1)
        return False

    def transposed(self) -> Layout:
        """Transpose each matrix of the batch by exchanging strides, without a copy."""
        return self._replace(
            shape=(*self.batch, self.columns, self.rows),
            strides=(*self.strides[:-2], self.column_stride, self.row_stride),
        )

    def broadcast(self, batch: tuple[int, ...]) -> Layout:
        """Repeat the matrices to the batch shape ``batch``, with strides of zero."""
        missing = len(batch) - len(self.batch)
        padded = ((1,) * missing + self.batch, (0,) * missing + self.strides[:-2])
        strides = tuple(
            stride if count == wanted else 0
            for count, stride, wanted in zip(*padded, batch, strict=True)
        )
        return self._replace(
            shape=(*batch, self.rows, self.columns),
            strides=strides + self.strides[-2:],
        )


def broadcast_batch(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that two batch shapes broadcast to, by NumPy's rules.

    Raises
    ------
    ValueError
        If they do not broadcast.
    """
    if not (a or b):
        return ()
    ndim = max(len(a), len(b))
    padded = ((1,) * (ndim - len(a)) + a, (1,) * (ndim - len(b)) + b)
    if any(x != y and 1 not in (x, y) for x, y in zip(*padded, strict=True)):
        raise ValueError(f"the batch shapes {a} and {b} do not broadcast together")
    return tuple(y if x == 1 else x for x, y in zip(*padded, strict=True))


@dataclass(frozen=True)
class Level:
    """One loop over a batch: ``count`` steps, of ``strides[i]`` elements in operand i."""

    count: int
    strides: tuple[int, ...]


def batch_levels(*layouts: Layout) -> tuple[Level, ...]:
    """Return the fewest nested loops over batches of the same shape, outermost first.

    Neighbouring dimensions become one loop if every operand can walk both with one stride.
    """
    levels: list[Level] = []
    for axis, count in enumerate(layouts[0].batch):
        if count == 1:
            continue
        level = Level(count, tuple(layout.strides[axis] for layout in layouts))
        if levels and levels[-1].strides == tuple(count * s for s in level.strides):
            level = Level(levels.pop().count * count, level.strides)
        levels.append(level)
    return tuple(levels)


def folded(a: Layout, b: Layout, c: Layout) -> tuple[Layout, Layout, Layout]:
    """Turn a batch of products that share one B into one taller product, if the strides allow it.

    A batch of m x k matrices times one k x n matrix is a single product with more rows. It packs
    and reads B once.
    """

    def joins(x: Layout) -> bool:
        return x.strides[-3] == x.rows * x.row_stride

    def joined(x: Layout, rows: int) -> Layout:
        shape = (*x.shape[:-3], rows, x.columns)
        return x._replace(shape=shape, strides=x.strides[:-3] + x.strides[-2:])

    while c.batch:
        count = c.batch[-1]
        if count > 1 and not (b.strides[-3] == 0 and joins(a) and joins(c)):
            break
        a, b, c = joined(a, count * a.rows), joined(b, b.rows), joined(c, count * c.rows)
    return a, b, c


def merged(shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """Return the one stride that walks all these axes, last axis fastest, or None."""
    total, step = 1, None
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count == 1:
            continue
        if step is None:
            step = stride
        elif stride != total * step:
            return None
        total *= count
    return 1 if step is None else step


def memory_order(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return an array's axes from the outermost in memory to the innermost."""
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


@lru_cache(maxsize=1024)
def dense_layout(shape: tuple[int, ...], axes: tuple[int, ...], alignment_bytes: int) -> Layout:
    """Return the layout of a dense array whose axes, from the outermost in memory, are `axes`."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= shape[axis]
    return Layout(shape, tuple(strides), alignment_bytes)
