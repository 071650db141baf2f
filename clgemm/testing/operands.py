"""Arrays in any memory layout, inside larger arrays whose other elements are guards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ArrayLayout", "Operand", "outside_unchanged"]

FLOAT_BYTES = 4
Array = npt.NDArray[Any]


@dataclass
class Operand:
    """A view into a larger array whose other elements are guards.

    Attributes
    ----------
    base : float32 ndarray
        The larger array, contiguous by rows.
    view : float32 ndarray
        The matrix or batch: a view of `base`.
    before : float32 ndarray
        A copy of `base` as it was at first.
    values : float32 ndarray
        A copy of `view` as it was at first.
    """

    base: Array
    view: Array
    before: Array
    values: Array

    @classmethod
    def of(cls, base: Array, view: Array) -> Operand:
        """Return the operand of a base and a view of it, as they are now."""
        return cls(base, view, base.copy(), np.array(view))

    @property
    def storage(self) -> Array:
        """The memory from the first element of the view on, as BLAS takes it: shape (elements,)."""
        return self.base.reshape(-1)[_first(self.base, self.view) :]

    def leading(self, order: str) -> int:
        """Return the leading dimension of a 2-D view in elements, at least 1.

        Parameters
        ----------
        order : {"F", "C"}
            Whether it is the distance from a column to the next, or from a row to the next.
        """
        outer = 1 if order == "F" else 0
        distance = self.view.strides[outer] // FLOAT_BYTES if self.view.size else 1
        return int(max(1, distance, self.view.shape[1 - outer]))

    def untouched(self) -> bool:
        """Tell whether the base is bit for bit what it was."""
        return np.array_equal(self.base.view(np.int32), self.before.view(np.int32))

    def untouched_outside(self, view: Array) -> bool:
        """Tell whether nothing changed but the elements of one view of the base."""
        return outside_unchanged(self.base, self.before, view)

    def __repr__(self) -> str:
        """Return shape, strides in elements, offset, and the values if they are few."""
        strides = tuple(stride // FLOAT_BYTES for stride in self.view.strides)
        text = "x".join(map(str, self.view.shape))
        place = f"{text}, strides {strides}, first element {_first(self.base, self.view)}"
        few = np.array2string(self.values, threshold=16, edgeitems=2, separator=", ")
        return f"<{place}: {' '.join(few.split())}>"


def _first(base: Array, view: Array) -> int:
    addresses = (x.__array_interface__["data"][0] for x in (view, base))
    at, begin = addresses
    return int(at - begin) // FLOAT_BYTES


def outside_unchanged(base: Array, before: Array, view: Array) -> bool:
    """Tell whether a base is bit for bit what it was, but for the elements of one view."""
    changed = base.view(np.int32) != before.view(np.int32)
    inside = np.zeros(base.size, bool)
    offsets = np.full(view.shape, _first(base, view), np.int64)
    for axis, stride in enumerate(view.strides):
        steps = np.arange(view.shape[axis]) * (stride // FLOAT_BYTES)
        offsets += steps.reshape([-1 if i == axis else 1 for i in range(view.ndim)])
    inside[offsets.ravel()] = True
    return not (changed.ravel() & ~inside).any()


@dataclass(frozen=True)
class ArrayLayout:
    """How an array lies inside a larger one.

    Attributes
    ----------
    axes : tuple of int
        The axes from the outermost in memory to the innermost: (0, 1) for rows, (1, 0) for columns.
    steps : tuple of int
        For each axis: 1 for neighbouring elements, 2 for every other one, a negative number for
        reversed order, 0 for one slice that is repeated.
    before, after : tuple of int
        For each axis: guard elements before the first element and after the last one. They make
        offsets and leading dimensions.
    """

    axes: tuple[int, ...]
    steps: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def place(self, values: npt.ArrayLike, guard: float = np.nan) -> Operand:
        """Return the values in this layout.

        Parameters
        ----------
        values : array_like
            Of as many dimensions as the layout. Where a step is 0, the first slice is repeated.
        guard : float, optional
            The value of all other elements of the larger array.
        """
        content = np.asarray(values, np.float32)
        shape = content.shape
        counts = [min(n, 1) if s == 0 else n for n, s in zip(shape, self.steps, strict=True)]
        spans = [
            max(0, (n - 1) * max(1, abs(s)) + 1) for n, s in zip(counts, self.steps, strict=True)
        ]
        lengths = [b + span + a for b, span, a in zip(self.before, spans, self.after, strict=True)]
        base = np.full([lengths[axis] for axis in self.axes], guard, np.float32)
        ordered = base.transpose(np.argsort(self.axes))
        window = tuple(
            slice(b, b + span, max(1, abs(s)))
            for b, span, s in zip(self.before, spans, self.steps, strict=True)
        )
        view = ordered[window][tuple(slice(None, None, -1 if s < 0 else 1) for s in self.steps)]
        view[...] = content[tuple(slice(0, count) for count in counts)]
        if 0 in self.steps:
            view = np.broadcast_to(view, shape)
        return Operand.of(base, view)

    def __repr__(self) -> str:
        """Return what differs from an array of its own, contiguous by rows."""
        zeros, ones = (0,) * len(self.axes), (1,) * len(self.axes)
        parts = [f"axes={self.axes}"] if self.axes != tuple(range(len(self.axes))) else []
        parts += [f"steps={self.steps}"] if self.steps != ones else []
        parts += [f"before={self.before}"] if self.before != zeros else []
        parts += [f"after={self.after}"] if self.after != zeros else []
        return f"ArrayLayout({', '.join(parts) or 'contiguous'})"
