"""Division of products whose host arrays are larger than a device's largest buffer. Pure.

A device that shares host memory reads an operand in place. The buffer spans the operand from the
lowest element to the highest, which may be more than the device's largest buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clgemm.core.layout import Layout

__all__ = ["Window", "windows"]

GRAIN = 128  # elements: a long axis is divided at a multiple of this, into whole tiles


class Window(NamedTuple):
    """A part of a product.

    Attributes
    ----------
    a, b, c : tuple of slice
        The part of A, B and C, as a slice for each axis.
    first : bool
        Whether it is the first window of its part of C. Later windows add to the result.
    """

    a: tuple[slice, ...]
    b: tuple[slice, ...]
    c: tuple[slice, ...]
    first: bool


def windows(a: Layout, b: Layout, c: Layout, most: int, read: bool = True) -> Iterator[Window]:
    """Yield the parts of ``C = A B``, in the order in which to compute them.

    Parameters
    ----------
    a, b, c : Layout
        Shapes (*batch, m, k), (*batch, k, n) and (*batch, m, n), none empty. A and B may have
        fewer axes of the batch, or be broadcast along them, by NumPy's rules.
    most : int
        The limit for the span of a part of an operand: the number of elements from the lowest to
        the highest, both included. At least 1.
    read : bool
        Whether A and B are read. If not, their spans are not limited.
    """
    batch = c.batch
    a, b = _aligned(a, len(batch)), _aligned(b, len(batch))
    rows, columns, depth = len(batch), len(batch) + 1, len(batch) + 2  # axes of the product
    axes = [
        [*range(rows), rows, depth],
        [*range(rows), depth, columns],
        [*range(rows), rows, columns],
    ]
    layouts = (a, b, c)
    # For each operand, the distance of neighbours along each axis of the product.
    strides = []
    for own, layout in zip(axes, layouts, strict=True):
        apart = [0] * (depth + 1)
        for axis, stride, count in zip(own, layout.strides, layout.shape, strict=True):
            apart[axis] = abs(stride) if count > 1 else 0
        strides.append(apart)
    counted = strides if read else strides[2:]
    whole = [(0, count) for count in (*batch, c.rows, c.columns, a.columns if read else 1)]
    for box in _boxes(whole, counted, most):
        parts = [
            tuple(
                slice(*box[axis]) if count > 1 else slice(0, 1)
                for axis, count in zip(own, layout.shape, strict=True)
            )
            for own, layout in zip(axes, layouts, strict=True)
        ]
        yield Window(parts[0], parts[1], parts[2], box[depth][0] == 0)


def _aligned(x: Layout, batch: int) -> Layout:
    """Return a layout with new axes of length 1 in front, for a batch of `batch` axes."""
    missing = batch - len(x.batch)
    return x._replace(shape=(1,) * missing + x.shape, strides=(0,) * missing + x.strides)


def _boxes(
    box: list[tuple[int, int]], strides: Sequence[Sequence[int]], most: int
) -> Iterator[list[tuple[int, int]]]:
    """Halve a product until it fits, along the longest axis of the operand with the widest span.

    The half with the smaller indices comes first.
    """
    reaches = [
        [stride * (stop - start - 1) for stride, (start, stop) in zip(own, box, strict=True)]
        for own in strides
    ]
    widest = max(reaches, key=sum)
    if sum(widest) < most:
        yield box
        return
    axis = widest.index(max(widest))
    start, stop = box[axis]
    half = -(-(stop - start) // 2)
    if half > GRAIN:
        half = -(-half // GRAIN) * GRAIN
    for part in ((start, start + half), (start + half, stop)):
        yield from _boxes([*box[:axis], part, *box[axis + 1 :]], strides, most)
