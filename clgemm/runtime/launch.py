"""From operands to enqueued kernels: place, choose a config, plan, run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array

from clgemm.core import caches
from clgemm.core.layout import Layout
from clgemm.core.precision import chosen_precision
from clgemm.core.problem import Problem
from clgemm.core.steps import Plan
from clgemm.hardware.choice import get_device
from clgemm.hardware.device import Device, of_queue
from clgemm.planning.planner import copy_plan_of, plan_of
from clgemm.planning.selection import transfer_config
from clgemm.planning.windows import windows
from clgemm.runtime.call_cache import Way, forget, starts_of
from clgemm.runtime.operands import (
    ITEM_BYTES,
    AnyArray,
    HostArray,
    Matrix,
    allocated,
    layout_of,
    overlap,
    place,
)
from clgemm.runtime.transfer.pipeline import multiply_through
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import Workspace, workspace

__all__ = ["duplicate", "forget_plans", "multiply"]

Events = Sequence[cl.Event]

# Multiply-adds from which a product takes a tenth of a second or more: per compute unit, and in all
# where the CPU plays a GPU. To read an element takes as long as so many.
LONG_WORK, LONG_IF_SLOW, TRAFFIC_WORK = 2**32, 2**25, 16


def multiply(
    alpha: float,
    a: AnyArray,
    b: AnyArray,
    beta: float,
    c: AnyArray,
    *,
    queue: cl.CommandQueue | None = None,
    wait_for: Events = (),
    precision: str | None = None,
) -> Way | None:
    """Update a stack of matrices on the device: C = alpha A B + beta C.

    Parameters
    ----------
    a, b : float32 array, shapes (..., m, k) and (..., k, n)
        Stacks broadcast to that of `c`. They may overlap `c`, which is written last.
    c : float32 array, shape (..., m, n)
        Updated in place: complete on return on the host, enqueued on the device. Not read when
        `beta` is 0. No two of its elements share memory.
    queue : pyopencl.CommandQueue, optional
        Needed for device operands; the chosen device's own for host operands if left out.
    precision : {"strict", "float32", "fast"}, optional
        As `clgemm.precision`.

    Returns
    -------
    Way or None
        How to make such a product again, if it takes no more than what the way does.
    """
    precision = chosen_precision(precision)
    if 0 in c.shape:
        return None
    if alpha == 0 or a.shape[-1] == 0:
        if beta == 1:
            return None
        alpha = 0.0  # and so A and B are not read
    # An operand that the result would overwrite is read from a copy.
    copied = False
    if isinstance(c, np.ndarray):
        device = get_device() if queue is None else of_queue(queue)
        queue = device.queue if queue is None else queue
        if overlap(a, c):
            a, copied = duplicate(a, "K", None), True
        if overlap(b, c):
            b, copied = duplicate(b, "K", None), True
        way = _multiply_on_host(alpha, a, b, beta, c, precision, device, queue, wait_for)
    else:
        assert queue is not None
        if overlap(a, c):
            a, copied = duplicate(a, "C", queue), True
        if overlap(b, c):
            b, copied = duplicate(b, "C", queue), True
        layouts = layout_of(a), layout_of(b), layout_of(c)
        way = _way(alpha, *layouts, precision, of_queue(queue), workspace(queue))
        way.on_device(alpha, a, b, beta, c, wait_for)
    return way if alpha and not copied else None


def duplicate(
    x: AnyArray, order: Literal["C", "F", "K"], queue: cl.CommandQueue | None
) -> AnyArray:
    """Return a dense copy of an array; of a device array, enqueued and not waited for.

    Parameters
    ----------
    order : {"C", "F", "K"}
        The copy's order; "F" for matrices only, "K" (as it is) for contiguous arrays only.
    """
    if isinstance(x, np.ndarray):
        return np.array(x, order=order)
    assert queue is not None
    if order == "K":
        order = "C" if x.flags.c_contiguous else "F"
    target = allocated(x, x.shape, order, queue)
    if x.size:
        source = place(x).layout if order == "C" else place(x).layout.transposed()
        device = of_queue(queue)
        plan = copy_plan_of(device, source)
        matrices = {"a": place(x), "c": place(target)}
        target.add_event(workspace(queue).run(plan, device, matrices, wait_for=x.events))
    return target


def _multiply_on_host(
    alpha: float,
    a: HostArray,
    b: HostArray,
    beta: float,
    c: HostArray,
    precision: str,
    device: Device,
    queue: cl.CommandQueue,
    wait_for: Events,
) -> Way | None:
    space = workspace(queue)
    if (config := transfer_config(device)) is not None:
        multiply_through(
            staging(device, config),
            space,
            _Product(alpha, beta, precision, device, space, wait_for),
            *(a, b, c),
            read=alpha != 0,
            keep=beta != 0,
            allocation_bytes=device.limits.allocation_bytes,
            # Nobody knows how long a user's events take.
            is_slow=device.kind == "CPU"
            and (bool(wait_for) or _is_long(device, c.size, a.shape[-1], a.size + b.size)),
        )
        return None
    layouts = layout_of(a), layout_of(b), layout_of(c)
    most = device.limits.allocation_bytes // ITEM_BYTES
    if all(last - first < most for first, last in (layout.extent for layout in layouts)):
        return _multiply_in_place(alpha, a, b, beta, c, precision, device, space, wait_for)
    a, b = (x[(None,) * (c.ndim - x.ndim)] for x in (a, b))
    for part in windows(*layouts, most, read=alpha != 0):
        _multiply_in_place(
            *(alpha, a[part.a], b[part.b], beta if part.first else 1.0, c[part.c]),
            *(precision, device, space, wait_for),
        )
    return None


def _multiply_in_place(
    alpha: float,
    a: HostArray,
    b: HostArray,
    beta: float,
    c: HostArray,
    precision: str,
    device: Device,
    space: Workspace,
    wait_for: Events,
) -> Way:
    layouts = layout_of(a), layout_of(b), layout_of(c)
    way = _way(alpha, *layouts, precision, device, space)._replace(
        starts=starts_of(a, b, c), is_long=_is_long(device, c.size, a.shape[-1], a.size + b.size)
    )
    way.on_host(alpha, a, b, beta, c, wait_for)
    return way


def _is_long(device: Device, results: int, depth: int, operands: int) -> bool:
    """Tell whether a product takes so long that signals should be answered before it is over."""
    work = max(results * depth, TRAFFIC_WORK * (results + operands))
    limits = device.limits
    return work >= (LONG_WORK * limits.compute_units if limits.vector_width > 1 else LONG_IF_SLOW)


def _way(
    alpha: float, a: Layout, b: Layout, c: Layout, precision: str, device: Device, space: Workspace
) -> Way:
    plan, swapped = _planned(device, precision if alpha else None, a, b, c)
    return Way(space, space.prepared(plan, device), swapped)


class _Product(NamedTuple):
    """A product that is made tile by tile."""

    alpha: float
    beta: float
    precision: str
    device: Device
    space: Workspace
    wait_for: Events

    def prepare(self, a: Layout, b: Layout, c: Layout) -> None:
        plan, _ = _planned(self.device, self.precision if self.alpha else None, a, b, c)
        self.space.prepared(plan, self.device)

    def enqueue(self, a: Matrix, b: Matrix, c: Matrix, first: bool, wait_for: Events) -> cl.Event:
        layouts = a.layout, b.layout, c.layout
        plan, swapped = _planned(self.device, self.precision if self.alpha else None, *layouts)
        return self.space.run(
            plan,
            self.device,
            {"a": b if swapped else a, "b": a if swapped else b, "c": c},
            self.alpha,
            self.beta if first else 1.0,
            [*self.wait_for, *wait_for],
        )


def _planned(
    device: Device, precision: str | None, a: Layout, b: Layout, c: Layout
) -> tuple[Plan, bool]:
    return plan_of(device, Problem(a, b, c, precision))


def forget_plans() -> None:
    """Choose and plan anew: what was found out since may serve better."""
    forget()
    caches.forget_plans()
