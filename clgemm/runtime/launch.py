"""One product from checked operands: make its problem, plan it, bind the plan, execute it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Literal

import numpy as np
import pyopencl as cl
import pyopencl.array

from clgemm.core.precision import chosen_precision
from clgemm.core.problem import Problem
from clgemm.core.transfer import cuts
from clgemm.hardware.choice import BrokenDeviceError, chosen, takes_addresses
from clgemm.hardware.device import Device, of_queue
from clgemm.planning.long_products import takes_seconds, tile_steps
from clgemm.planning.planner import copy_plan_of
from clgemm.planning.tiles import matrix_blocks
from clgemm.planning.transfers import transfer_config
from clgemm.planning.windows import windows
from clgemm.runtime.execute import BoundCall, bind, bind_in_place, execute
from clgemm.runtime.memory import place
from clgemm.runtime.operands import (
    ITEM_BYTES,
    AnyArray,
    HostArray,
    allocated,
    layout_of,
    problem_of,
    with_axes,
)
from clgemm.runtime.progress import begun
from clgemm.runtime.several.part import Part
from clgemm.runtime.several.spread import spread
from clgemm.runtime.transfer.at_once import AtOnceCall
from clgemm.runtime.transfer.mirror import mirror
from clgemm.runtime.transfer.pipeline import TiledProduct, multiply_through, multiply_together
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
        Needed for device operands. If left out, host operands go to the chosen device, or are
        spread over the chosen devices.
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
    """Update C on devices, of which the first has the queue; the others share host arrays."""
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
    bound: BoundCall | AtOnceCall | None
    if on_host:
        part = Part(alpha, a, b, beta, c, reads)
        makers = _compute_part, _compute_together
        if len(devices) > 1 and spread(problem, part, devices, *makers):
            _make_symmetric(problem, c, devices)
            return None
        meter = begun(problem.shape.work) if alpha else None
        advance = int if meter is None else meter.advance
        bound = _multiply_on_host(problem, part, device, queue, advance)
        if bound is None and transfer_config(device) is None:  # C came in parts
            _make_symmetric(problem, c, devices)
        if meter is not None:
            meter.end()
    else:
        bound = bind(problem, device, workspace(queue))
        execute(bound, alpha, a, b, beta, c, wait_for)
    return bound if alpha and not any(overlaps) else None


def _make_symmetric(problem: Problem, c: HostArray, devices: Sequence[Device]) -> None:
    """Make a result symmetric that is to be, if it may not be."""
    if problem.is_symmetric and not all(device.limits.has_vectors for device in devices):
        config = transfer_config(devices[0])
        mirror(c, None if config is None else staging(devices[0], config))


def _compute_part(
    part: Part, device: Device, tile_rows: int, advance: Callable[[int], object]
) -> None:
    """Make a part of a product that is spread over several devices, on one of them."""
    problem, _ = problem_of(part.a, part.b, part.c, part.precision)
    _multiply_on_host(problem, part, device, device.queue, advance, tile_rows)


def _compute_together(
    part: Part, devices: Sequence[Device], advance: Callable[[int], object]
) -> bool:
    """Make a product on several devices with memory of their own at once, if that is possible."""
    alpha, a, b, beta, c, precision = part
    stagings, products = [], []
    for device in devices:
        config = transfer_config(device)
        assert config is not None
        pool = staging(device, config)
        made = alpha, beta, precision, device, pool.space
        stagings.append(pool)
        products.append(TiledProduct(*made, advance=advance))
    return multiply_together(stagings, products, a, b, c)


def _multiply_on_host(
    problem: Problem,
    part: Part,
    device: Device,
    queue: cl.CommandQueue,
    advance: Callable[[int], object],
    tile_rows: int = 0,
) -> BoundCall | AtOnceCall | None:
    alpha, a, b, beta, c, _ = part
    if (config := transfer_config(device)) is not None:
        pool = staging(device, config)
        is_slow = device.kind == "CPU" and _is_long(problem, device)
        made = alpha, beta, problem.precision, device, pool.space, is_slow
        is_symmetric = problem.is_symmetric and not tile_rows
        product = TiledProduct(*made, tile_rows, is_symmetric, advance)
        return multiply_through(pool, product, a, b, c)
    bound: BoundCall | None = None
    space, z = workspace(queue), c
    for piece, x, y, scale, z in _parts(problem, a, b, beta, c, device):
        bound = bind_in_place(piece, device, space, takes_addresses(device))
        bound = bound._replace(is_long=_is_long(piece, device))
        execute(bound, alpha, x, y, scale, z)
        advance(piece.shape.work)
    # What is repeated by the call cache tells no progress.
    return None if z is not c or takes_seconds(device, problem) else bound


Piece = tuple[Problem, HostArray, HostArray, float, HostArray]


def _parts(
    problem: Problem, a: HostArray, b: HostArray, beta: float, c: HostArray, device: Device
) -> Iterator[Piece]:
    """Yield a product in parts, each operand of which fits into one buffer: mostly one part."""
    most, layouts = device.limits.allocation_bytes // ITEM_BYTES, problem[:3]
    if all(last - first < most for first, last in (layout.extent for layout in layouts)):
        yield from _tiles(problem, a, b, beta, c, device)
        return
    a, b = (with_axes(x, c.ndim) for x in (a, b))
    for window in windows(*layouts, most, read=problem.precision is not None):
        x, y, z = a[window.a], b[window.b], c[window.c]
        part, _ = problem_of(x, y, z, problem.precision)
        yield from _tiles(part, x, y, beta if window.first else 1.0, z, device)


def _tiles(
    problem: Problem, a: HostArray, b: HostArray, beta: float, c: HostArray, device: Device
) -> Iterator[Piece]:
    """Yield a product in tiles of about a second: mostly one."""
    steps = tile_steps(device, problem)
    if steps == c.shape:
        yield problem, a, b, beta, c
        return
    a, b = (with_axes(x, c.ndim) for x in (a, b))
    for box in product(*map(cuts, c.shape, steps)):
        block_a, block_b = matrix_blocks(box, layout_of(a), layout_of(b))
        x, y, z = a[block_a], b[block_b], c[box]
        part, _ = problem_of(x, y, z, problem.precision)
        yield part, x, y, beta, z


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
