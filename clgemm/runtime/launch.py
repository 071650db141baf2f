"""One product from checked operands: make its problem, plan it, bind the plan, execute it."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array

from clgemm.core.precision import chosen_precision
from clgemm.core.problem import Problem
from clgemm.hardware.choice import BrokenDeviceError, chosen, takes_addresses
from clgemm.hardware.device import Device, of_queue
from clgemm.planning.cut import is_cut, parts, takes_seconds
from clgemm.planning.planner import copy_plan_of
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.execute import BoundCall, bind, bind_in_place, execute
from clgemm.runtime.memory import place
from clgemm.runtime.operands import (
    AnyArray,
    HostArray,
    allocated,
    problem_of,
    with_axes,
)
from clgemm.runtime.progress import Meter, begun
from clgemm.runtime.several import sharers
from clgemm.runtime.transfer.at_once import AtOnceCall
from clgemm.runtime.transfer.mirror import mirror
from clgemm.runtime.transfer.pipeline import TiledProduct, multiply_through, multiply_together
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import Workspace, workspace

__all__ = ["duplicate", "multiply"]

log = logging.getLogger(__name__)

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
) -> BoundCall | AtOnceCall | None:
    """Update a batch of matrices on the device: C = alpha A B + beta C.

    Parameters
    ----------
    a, b : float32 array, shapes (..., m, k) and (..., k, n)
        Batches broadcast to that of `c`. They may overlap `c`, which is written last.
    c : float32 array, shape (..., m, n)
        Updated in place: complete on return on the host, enqueued on the device. Not read when
        `beta` is 0. No two of its elements share memory.
    wait_for : sequence of pyopencl.Event
        What a product of device arrays waits for.
    queue : pyopencl.CommandQueue, optional
        Needed for device operands. If left out, host operands go to the chosen device, or to
        several.
    precision : {"strict", "float32", "fast"}, optional
        As resolved by `chosen_precision`; if left out, it is resolved here.

    Returns
    -------
    BoundCall, AtOnceCall or None
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
    if queue is not None:
        return _multiply_on((of_queue(queue),), queue, alpha, a, b, beta, c, wait_for, precision)
    while True:
        devices = chosen()
        try:
            return _multiply_on(
                *(devices, devices[0].queue, alpha, a, b, beta, c, wait_for, precision)
            )
        except BrokenDeviceError:  # nothing was enqueued
            if chosen() == devices:  # the user has named it
                raise


def _multiply_on(
    devices: Sequence[Device],
    queue: cl.CommandQueue,
    alpha: float,
    a: AnyArray,
    b: AnyArray,
    beta: float,
    c: AnyArray,
    wait_for: Events,
    precision: str,
) -> BoundCall | AtOnceCall | None:
    """Update C on the first device, by its queue; host arrays perhaps on all of them."""
    device, on_host = devices[0], isinstance(c, np.ndarray)
    reads = precision if alpha else None
    problem, overlaps = problem_of(a, b, c, reads, beta)
    if any(overlaps):  # an operand that the result would overwrite is read from a copy
        order: Literal["C", "K"] = "K" if on_host else "C"
        a, b = (
            duplicate(x, order, queue) if copied else x
            for x, copied in zip((a, b), overlaps, strict=True)
        )
        copied, _ = problem_of(a, b, c, reads)
        problem = copied._replace(is_symmetric=problem.is_symmetric)
    if not on_host:
        bound = bind(problem, device, workspace(queue))
        execute(bound, alpha, a, b, beta, c, wait_for)
        return bound if alpha and not any(overlaps) else None
    meter = begun(problem.shape.work) if alpha else None
    product = _Product(problem, alpha, a, b, beta, c, meter)
    found = None
    if len(devices) == 1 or not alpha or not _shared(product, devices):
        found = _on_first_that_works(product, devices, queue)
    if meter is not None:
        meter.end()
    return found if alpha and not any(overlaps) else None


class _Product(NamedTuple):
    """C = alpha A B + beta C of host arrays that do not overlap, and who hears of the progress."""

    problem: Problem
    alpha: float
    a: HostArray
    b: HostArray
    beta: float
    c: HostArray
    meter: Meter | None

    def advance(self, work: int) -> None:
        """Take note of multiply-adds that are computed; this may raise to end the call."""
        if self.meter is not None:
            self.meter.advance(work)


def _shared(product: _Product, devices: Sequence[Device]) -> bool:
    """Compute a product on several equal devices, and return whether they have.

    If one fails, the product can be computed anew, unless C was updated: then this raises.
    """
    problem, alpha, a, b, beta, c, meter = product
    assert problem.precision is not None
    x, y, z = (*(with_axes(each, c.ndim) for each in (a, b)), c)
    if c.shape[-1] > c.shape[-2]:  # devices share rows: C' = B' A'
        x, y, z = (each.swapaxes(-1, -2) for each in (y, x, z))
    together = sharers(devices, x, y, z, problem.precision)
    if len(together) < 2:
        return False
    stagings, products = [], []
    for device in together:
        config = transfer_config(device)
        assert config is not None
        pool = staging(device, config)
        stagings.append(pool)
        made = alpha, beta, problem.precision, device, pool.space
        products.append(TiledProduct(*made, advance=product.advance))
    try:
        is_computed = multiply_together(stagings, products, x, y, z)
    except cl.Error as error:
        if beta:
            raise
        log.warning("clgemm: one of several GPUs failed, one computes the product: %s", error)
        if meter is not None:
            meter.reach(0)
        return False
    if is_computed and problem.is_symmetric:
        mirror(c, stagings[0])
    return is_computed


def _on_first_that_works(
    product: _Product, devices: Sequence[Device], queue: cl.CommandQueue
) -> BoundCall | AtOnceCall | None:
    """Compute a product on one device; if it fails, and C was not updated, on the next one."""
    device, *others = devices
    try:
        return _multiply_on_host(product, device, queue)
    except cl.Error as error:
        if product.beta or not others:
            raise
        log.warning("clgemm: %s failed, %s goes on: %s", device.label, others[0].label, error)
    return _on_first_that_works(product, others, others[0].queue)


def _multiply_on_host(
    product: _Product, device: Device, queue: cl.CommandQueue
) -> BoundCall | AtOnceCall | None:
    problem, alpha, a, b, beta, c, _ = product
    if (config := transfer_config(device)) is not None:
        pool = staging(device, config)
        is_slow = device.kind == "CPU" and _is_long(problem, device)
        made = alpha, beta, problem.precision, device, pool.space, is_slow
        tiled = TiledProduct(*made, problem.is_symmetric, product.advance)
        return multiply_through(pool, tiled, a, b, c)
    space = workspace(queue)
    if not is_cut(device, problem):
        bound = _compute(product, device, space)
        # What is repeated by the call cache tells no progress.
        return None if takes_seconds(device, problem) else bound
    x, y = (with_axes(each, c.ndim) for each in (a, b))
    for part in parts(device, problem):
        own = x[part.a], y[part.b], c[part.c]
        piece, _ = problem_of(*own, problem.precision)
        scale = beta if part.is_first else 1.0
        _compute(
            product._replace(problem=piece, a=own[0], b=own[1], beta=scale, c=own[2]), device, space
        )
    if problem.is_symmetric:  # parts below the diagonal were left out
        mirror(c, None)
    return None


def _compute(product: _Product, device: Device, space: Workspace) -> BoundCall:
    """Compute a product whose operands the device uses where they lie."""
    problem, alpha, a, b, beta, c, _ = product
    bound = bind_in_place(problem, device, space, takes_addresses(device))
    bound = bound._replace(is_long=_is_long(problem, device))
    execute(bound, alpha, a, b, beta, c)
    product.advance(problem.shape.work)
    return bound


def _is_long(problem: Problem, device: Device) -> bool:
    """Tell whether a product takes so long that signals should be answered before it is over."""
    a, b, c = problem.layouts
    results, operands = math.prod(c.shape), math.prod(a.shape) + math.prod(b.shape)
    work = max(results * a.columns, TRAFFIC_WORK * (results + operands))
    limits = device.limits
    return work >= (LONG_WORK * limits.compute_units if limits.has_vectors else LONG_IF_SLOW)


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
