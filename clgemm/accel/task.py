"""A product as a task for a device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pyopencl as cl

from clgemm.accel.arguments import FLOAT32
from clgemm.accel.semantics import FloatErrors
from clgemm.contraction import Sizes
from clgemm.hardware.device import Device
from clgemm.planning.crossovers import Work
from clgemm.runtime import staying
from clgemm.runtime.turns import Product

__all__ = ["Task", "compared", "task_of"]

CALL_US = 110  # what a product takes longer than one of `clgemm.matmul`, right after another one


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
    compare : callable or None
        Returns both sides' times, or None if the choice does not depend on other products.
    """

    work: Work
    on_device: Callable[[Device, cl.CommandQueue | None], tuple[Any, FloatErrors]]
    in_place: bool
    usable: bool = True
    size_bytes: int = 0
    sent: float = 1.0
    compare: Callable[[], Product | None] | None = None


def task_of(
    work: Work,
    a: Any,
    b: Any,
    choice: tuple[Sizes, float, dict[str, Any]],
    on_device: Callable[[Device, cl.CommandQueue | None], tuple[Any, FloatErrors]],
    in_place: bool = False,
    usable: bool = True,
) -> Task:
    """Return the task of a product.

    Parameters
    ----------
    a, b : ndarray
        The operands.
    choice : tuple
        As `clgemm.contraction.matmul_sizes` returns it.
    on_device, in_place, usable : object
        As for `Task`.
    """
    _, sent, how = choice
    size_bytes = FLOAT32.itemsize * (a.size + b.size + work.m * work.n * work.matrices)
    compare = functools.partial(compared, work, a, b, sent, how)
    return Task(work, on_device, in_place, usable, size_bytes, sent, compare)


def compared(work: Work, a: Any, b: Any, sent: float, how: dict[str, Any]) -> Product | None:
    """Return both sides' times of a product of accelerated NumPy.

    Parameters
    ----------
    a, b, sent, how : object
        As for `clgemm.runtime.staying.compared`. None if that returns none.
    """
    is_hosts, product = staying.compared(a, b, work[:4], sent, **how)
    if product is None:
        return None
    host_us, device_us = product.host_us, product.device_us + CALL_US
    if work.symmetric:  # NumPy makes half of it
        host_us /= 2
    is_hosts = is_hosts or host_us <= device_us
    return product._replace(is_hosts=is_hosts, host_us=host_us, device_us=device_us)
