"""Random operands for verification: data, layouts and scalars from a seeded generator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyopencl.array as cl_array

from clgemm.core.shapes import Shape
from clgemm.hardware.device import Device
from clgemm.kernels.common.family import Family
from clgemm.testing.data import DATA, made, plant_special
from clgemm.testing.operands import ArrayLayout, Operand

__all__ = ["GUARD", "Operands", "data_for", "layout_like", "on_device", "operands_for"]

GUARD = 12345.0
SCALARS = ((1.0, 0.0), (2.0, -1.0), (-1.0, 0.0), (1.0, 2.0), (0.5, 1.0))
# "fast" has no guard against data of wide range.
FAST = ("ones", "integers", "normal", "full mantissa", "cancelling", "outlier", "half limits")

Array = npt.NDArray[Any]


class Operands(NamedTuple):
    """One product: A, B and C where they lie, and what they are scaled by."""

    a: Operand
    b: Operand
    c: Operand
    alpha: float
    beta: float
    data: str


def data_for(precision: str) -> tuple[str, ...]:
    """Return the families of data for which a precision promises anything."""
    return FAST if precision == "fast" else tuple(DATA)


def layout_like(
    rng: np.random.Generator, ndim: int, *, any_strides: bool = True, columns: bool = True
) -> ArrayLayout:
    """Return a random layout.

    Parameters
    ----------
    any_strides : bool, optional
        Whether rows and columns may have gaps between their elements.
    columns : bool, optional
        Whether a matrix may lie column by column.
    """
    axes = list(range(ndim))
    if columns and rng.integers(2):
        axes[-2:] = axes[:-3:-1]
    steps = [1] * ndim
    if any_strides and rng.integers(2):
        steps[-2:] = (int(x) for x in rng.integers(1, 4, 2))
    before, after = (tuple(int(x) for x in rng.integers(0, 4, ndim)) for _ in range(2))
    return ArrayLayout(tuple(axes), tuple(steps), before, after)


def operands_for(
    rng: np.random.Generator,
    family: Family[Any, Any],
    shape: Shape,
    precision: str,
    number: int,
    any_strides: bool = True,
) -> Operands:
    """Return operands that a family takes; the families of data and the scalars take turns."""
    batch = (shape.matrices,) * (shape.matrices > 1)
    names = data_for(precision)
    name = names[number % len(names)]
    alpha, beta = SCALARS[number % len(SCALARS)]

    def placed(size_2d: tuple[int, int], data: str, guard: float, columns: bool = True) -> Operand:
        size = (*batch, *size_2d)
        values = np.full(size, np.nan, np.float32) if data == "NaN" else made(data, rng, size)
        if precision != "fast" and guard != GUARD and rng.integers(8) == 0:
            values = plant_special(values, rng, 1)
        lies = layout_like(
            rng, len(size), any_strides=any_strides and family.takes_any_strides, columns=columns
        )
        return lies.place(values, guard)

    m, n, k, _ = shape
    if rng.integers(2):
        m, n = n, m
    a, b = placed((m, k), name, np.nan), placed((k, n), name, np.nan)
    c = placed((m, n), name if beta else "NaN", GUARD, family.stores_columns)
    return Operands(a, b, c, alpha, beta, name)


def on_device(device: Device, operand: Operand) -> tuple[Any, Any]:
    """Return an operand's copy on a device, and all of its base."""
    base = cl_array.to_device(device.queue, operand.base)
    first = operand.view.__array_interface__["data"][0]
    offset = first - operand.base.__array_interface__["data"][0]
    view = operand.view
    return (
        cl_array.Array(
            device.queue,
            view.shape,
            np.float32,
            strides=view.strides,
            data=base.base_data,
            offset=offset,
        ),
        base,
    )
