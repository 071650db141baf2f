"""A product as a task for a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyopencl as cl

from clgemm.accel.semantics import FloatErrors
from clgemm.hardware.device import Device
from clgemm.planning.crossovers import Work

__all__ = ["Task"]


class Task(NamedTuple):
    """A product that a device can make.

    Attributes
    ----------
    on_device : callable
        Returns the product and its floating-point errors. It takes a device, and the queue where
        the product is made; None for all chosen devices.
    in_place : bool
        Whether it writes to the caller's memory.
    usable : bool
        Whether that memory fits, and NumPy can write to it again if the device fails.
    size_bytes : int
        Of its operands and result.
    sent : float
        The share of them that a device with memory of its own does not hold yet.
    """

    work: Work
    on_device: Callable[[Device, cl.CommandQueue | None], tuple[Any, FloatErrors]]
    in_place: bool
    usable: bool = True
    size_bytes: int = 0
    sent: float = 1.0
