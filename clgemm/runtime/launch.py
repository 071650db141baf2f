"""One product from checked operands: make its problem, plan it, bind the plan, execute it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pyopencl as cl
import pyopencl.array

from clgemm.core.precision import chosen_precision
from clgemm.core.problem import Problem
from clgemm.hardware.choice import get_device
from clgemm.hardware.device import Device, of_queue
from clgemm.planning.planner import copy_plan_of
from clgemm.planning.selection import transfer_config
from clgemm.planning.windows import windows
from clgemm.runtime.execute import BoundCall, bind, execute
from clgemm.runtime.memory import place
from clgemm.runtime.operands import (
    ITEM_BYTES,
    AnyArray,
    HostArray,
    allocated,
    problem_of,
)
from clgemm.runtime.transfer.pipeline import TiledProduct, multiply_through
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import workspace

__all__ = ["duplicate", "multiply"]

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
) -> BoundCall | None:
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
        As resolved by `chosen_precision`; if left out, it is resolved here.

    Returns
    -------
    BoundCall or None
        What repeats the product, if one bound plan was all that it took.
    """
    if precision is None:
        precision = chosen_precision()
    if 0 in c.shape:
        return None
    if alpha == 0 or a.shape[-1] == 0:
        if beta == 1:
            return None
        alpha = 0.0  # and so A and B are not read
    on_host = isinstance(c, np.ndarray)
    if on_host and queue is None:
        device = get_device()
        queue = device.queue
    else:
        assert queue is not None
        device = of_queue(queue)
    if not alpha:
        precision = None
    problem, overlaps = problem_of(a, b, c, precision)
    if any(overlaps):  # an operand that the result would overwrite is read from a copy
        order: Literal["C", "K"] = "K" if on_host else "C"
        a, b = (
            duplicate(x, order, queue) if copied else x
            for x, copied in zip((a, b), overlaps, strict=True)
        )
        problem, _ = problem_of(a, b, c, precision)
    bound: BoundCall | None
    if on_host:
        bound = _multiply_on_host(problem, alpha, a, b, beta, c, device, queue, wait_for)
    else:
        bound = bind(problem, device, workspace(queue))
        execute(bound, alpha, a, b, beta, c, wait_for)
    return bound if alpha and not any(overlaps) else None


def _multiply_on_host(
    problem: Problem,
    alpha: float,
    a: HostArray,
    b: HostArray,
    beta: float,
    c: HostArray,
    device: Device,
    queue: cl.CommandQueue,
    wait_for: Events,
) -> BoundCall | None:
    space = workspace(queue)
    if (config := transfer_config(device)) is not None:
        # Nobody knows how long a user's events take.
        is_slow = device.kind == "CPU" and (bool(wait_for) or _is_long(problem, device))
        product = TiledProduct(alpha, beta, problem.precision, device, space, wait_for, is_slow)
        multiply_through(staging(device, config), product, a, b, c)
        return None
    bound: BoundCall | None = None
    z = c
    for part, x, y, scale, z in _parts(problem, a, b, beta, c, device.limits.allocation_bytes):
        bound = bind(part, device, space)._replace(
            starts=(-part.a.extent[0], -part.b.extent[0], -part.c.extent[0]),
            is_long=_is_long(part, device),
        )
        execute(bound, alpha, x, y, scale, z, wait_for)
    return bound if z is c else None


def _parts(
    problem: Problem, a: HostArray, b: HostArray, beta: float, c: HostArray, allocation_bytes: int
) -> Iterator[tuple[Problem, HostArray, HostArray, float, HostArray]]:
    """Yield a product in parts, each operand of which fits into one buffer: mostly one part."""
    most, layouts = allocation_bytes // ITEM_BYTES, problem[:3]
    if all(last - first < most for first, last in (layout.extent for layout in layouts)):
        yield problem, a, b, beta, c
        return
    a, b = (x[(None,) * (c.ndim - x.ndim)] for x in (a, b))
    for window in windows(*layouts, most, read=problem.precision is not None):
        x, y, z = a[window.a], b[window.b], c[window.c]
        part, _ = problem_of(x, y, z, problem.precision)
        yield part, x, y, beta if window.first else 1.0, z


def _is_long(problem: Problem, device: Device) -> bool:
    """Tell whether a product takes so long that signals should be answered before it is over."""
    a, b, c, _ = problem
    results, operands = math.prod(c.shape), math.prod(a.shape) + math.prod(b.shape)
    work = max(results * a.columns, TRAFFIC_WORK * (results + operands))
    limits = device.limits
    return work >= (LONG_WORK * limits.compute_units if limits.vector_width > 1 else LONG_IF_SLOW)


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
