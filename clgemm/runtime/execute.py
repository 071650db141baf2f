"""Execution: gives a bound plan the operands of one call, and enqueues it.

Operands come in three ways: device arrays, host arrays that kernels use where they lie, and
matrices in device memory, which transfers fill.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import pyopencl as cl

from clgemm.core.problem import Problem
from clgemm.hardware.device import Device
from clgemm.runtime.events import EventsOnDemand, own_events
from clgemm.runtime.host_pages import HostPages
from clgemm.runtime.operands import (
    HOST_MEMORY,
    AnyArray,
    DeviceArray,
    HostArray,
    Matrix,
    span_of,
)
from clgemm.runtime.protection import is_protected
from clgemm.runtime.readiness import planned
from clgemm.runtime.waiting import answers_signals, finish, wait
from clgemm.runtime.workspace import BoundPlan, Workspace, workspace

Events: TypeAlias = Sequence[cl.Event]

READ, WRITTEN = cl.mem_flags.READ_ONLY | HOST_MEMORY, cl.mem_flags.READ_WRITE | HOST_MEMORY
# Multiply-adds from which a product takes a tenth of a second or more: per compute unit, and in all
# where the CPU plays a GPU. And those of an integrated GPU, some of which are as slow. To read an
# element takes as long as so many.
LONG_WORK, LONG_IF_SLOW, LONG_ON_GPU, TRAFFIC_WORK = 2**32, 2**25, 2**30, 16


class BoundCall(NamedTuple):
    """A bound plan, and how the operands of calls with one signature go into it.

    Attributes
    ----------
    swapped : bool
        Whether the plan takes A for B and B for A.
    starts : tuple of int
        For each host array a, b and c: at which element of its buffer it begins. The buffer begins
        at the array's lowest element.
    is_long : bool
        Whether a product of host arrays takes so long that signals are answered meanwhile.
    takes_addresses : bool
        Whether its kernels take addresses of host memory in place of buffers.
    by_pages : bool
        Whether buffers over host arrays have the whole pages that these touch, as GPUs need them.
    """

    space: Workspace
    plan: BoundPlan
    swapped: bool
    starts: tuple[int, int, int] = (0, 0, 0)
    is_long: bool = False
    takes_addresses: bool = False
    by_pages: bool = False


class DeviceCall(NamedTuple):
    """A bound plan with the operands of a call, which are device arrays.

    Attributes
    ----------
    buffers : dict of pyopencl.Buffer
        By slot.
    scalars : tuple of float
        alpha, beta, and the first elements of a, b and c in their buffers.
    identity : object
        As for `Workspace.start`.
    """

    space: Workspace
    plan: BoundPlan
    buffers: dict[str, cl.Buffer]
    scalars: tuple[float, ...]
    identity: object

    def enqueue(self, a: DeviceArray, b: DeviceArray, c: DeviceArray, wait_for: Events) -> None:
        """Enqueue the product behind all events of its operands, and record that in c's events."""
        if not wait_for and self._enqueue_again(a.events, b.events, c.events):
            return
        space, plan, buffers, scalars, identity = self
        order = space.order
        on_demand = own_events(c) if order.omits_events else None
        try:
            # What is enqueued comes after all events that were there.
            before = order.before((wait_for, a.events, b.events, c.events))
            if on_demand is not None:
                on_demand.end_with(space.start(plan, buffers, scalars, before, identity))
            else:
                c.events[:] = (space.enqueue(plan, buffers, scalars, before),)
        except BaseException:
            with contextlib.suppress(cl.Error), space.lock:  # steps may be enqueued
                c.events.append(cl.enqueue_marker(space.queue))
            raise

    def _enqueue_again(self, of_a: Events, of_b: Events, of_c: Events) -> bool:
        """Enqueue the product if it can do without events and new arguments, else return False.

        This is the shortest way, for small products that are repeated. The event of the result is
        not made yet: it stands for all commands of the queue, and so for these too.
        """
        order = self.space.order
        commands = order.unmarked()
        if commands is None or type(of_c) is not EventsOnDemand or not of_c.are_of(commands):
            return False
        for events in (of_a, of_b):
            if type(events) is EventsOnDemand:
                if not events.end_in(order):
                    return False
            elif not order.has_passed(events):
                return False
        now = self.space.start_again(self.plan, self.identity)
        if now is not commands and now is not None:
            of_c.end_with(now)
        return now is not None


def settled(
    bound: BoundCall, alpha: float, a: DeviceArray, b: DeviceArray, beta: float, c: DeviceArray
) -> DeviceCall:
    """Return a bound plan with device arrays of the signature that was bound."""
    space, plan, swapped, *_ = bound
    operands = (b, a, c) if swapped else (a, b, c)
    buffers = {
        slot: cast("cl.Buffer", x.base_data) for slot, x in zip("abc", operands, strict=True)
    }
    starts = (x.offset // x.dtype.itemsize for x in operands)
    return DeviceCall(space, plan, buffers, (alpha, beta, *starts), object())


def bind(problem: Problem, device: Device, space: Workspace) -> BoundCall:
    """Plan a problem for a device and bind the plan to a queue; repeated, both are look-ups."""
    found = planned(device, problem)
    return BoundCall(space, space.bind(found.plan, device), found.swapped)


def is_long(problem: Problem, device: Device) -> bool:
    """Return whether a product takes so long that signals are answered before it is complete."""
    a, b, c = problem.layouts
    results, operands = math.prod(c.shape), math.prod(a.shape) + math.prod(b.shape)
    work = max(results * a.columns, TRAFFIC_WORK * (results + operands))
    return work >= least_long_work(device)


def least_long_work(device: Device) -> int:
    """Return the multiply-adds from which a product takes a device a tenth of a second or more."""
    if device.kind == "GPU":
        return LONG_ON_GPU
    limits = device.limits
    return LONG_WORK * limits.compute_units if limits.has_vectors else LONG_IF_SLOW


def bind_in_place(
    problem: Problem, device: Device, space: Workspace, takes_addresses: bool
) -> BoundCall:
    """Plan and bind a product of host arrays, which kernels use where they lie.

    Parameters
    ----------
    takes_addresses : bool
        Whether kernels take addresses: only on a device that `choice.takes_addresses` names.
    """
    starts = -problem.a.extent[0], -problem.b.extent[0], -problem.c.extent[0]
    bound = bind(problem, device, space)
    long, by_pages = is_long(problem, device), device.kind == "GPU"
    return BoundCall(*bound[:3], starts, long, takes_addresses, by_pages)


def bind_alone(
    problem: Problem,
    device: Device,
    alpha: float,
    a: DeviceArray,
    b: DeviceArray,
    beta: float,
    c: DeviceArray,
) -> DeviceCall:
    """Plan a problem and bind the plan to device arrays, for a call that is repeated with them.

    No other call uses its kernels, so that the operands stay set.
    """
    space = workspace(c.queue)
    found = planned(device, problem)
    bound = BoundCall(space, space.bind_alone(found.plan, device), found.swapped)
    return settled_alone(bound, alpha, a, b, beta, c)


def settled_alone(
    bound: BoundCall, alpha: float, a: DeviceArray, b: DeviceArray, beta: float, c: DeviceArray
) -> DeviceCall:
    """Return a plan that `Workspace.bind_alone` has bound with its device arrays set."""
    call = settled(bound, alpha, a, b, beta, c)
    assert call.plan.kernels is not None  # `bind_alone` has set them up
    for launch in call.plan.kernels.launches:
        launch.settle(call.buffers)
    return call


def execute(
    bound: BoundCall,
    alpha: float,
    a: AnyArray,
    b: AnyArray,
    beta: float,
    c: AnyArray,
    wait_for: Events = (),
) -> None:
    """Update C = alpha A B + beta C with operands of the signature that was bound.

    Host arrays are complete on return. Device arrays are enqueued, behind all their events and
    those of `wait_for`, which host arrays do not take.

    Raises
    ------
    NotInPlaceError
        If a GPU cannot use the memory of host arrays in place. Nothing has happened then.
    """
    if isinstance(c, np.ndarray):
        _execute_in_place(bound, alpha, a, b, beta, c)
    else:
        settled(bound, alpha, a, b, beta, c).enqueue(a, b, c, wait_for)


def execute_matrices(
    bound: BoundCall,
    alpha: float,
    a: Matrix,
    b: Matrix,
    beta: float,
    c: Matrix,
    wait_for: Events = (),
) -> cl.Event:
    """Enqueue C = alpha A B + beta C for matrices in device memory; return the last event."""
    space, plan, swapped, *_ = bound
    if swapped:
        a, b = b, a
    buffers = {"a": a.buffer, "b": b.buffer, "c": c.buffer}
    return space.enqueue(plan, buffers, (alpha, beta, a.offset, b.offset, c.offset), wait_for)


def _execute_in_place(
    bound: BoundCall,
    alpha: float,
    a: HostArray,
    b: HostArray,
    beta: float,
    c: HostArray,
) -> None:
    space, plan, swapped, (start_a, start_b, start_c), is_long, takes_addresses, by_pages = bound
    if swapped:
        a, b, start_a, start_b = b, a, start_b, start_a
    arrays, context = {"a": a, "b": b, "c": c}, space.queue.context
    memory: HostMemory | HostPages
    if by_pages and not takes_addresses:
        memory = HostPages(context, {x: arrays[x] for x in arrays if x in plan.plan.operands})
        start_a, start_b, start_c = memory.starts.values()
    else:
        memory = HostMemory(context, arrays, takes_addresses)
    scalars = alpha, beta, start_a, start_b, start_c
    try:
        if is_long and answers_signals():
            space.compute(plan, memory, scalars, functools.partial(wait, memory=memory))
        else:
            space.enqueue(plan, memory, scalars).wait()
        if isinstance(memory, HostPages):
            memory.fetch(space)
    except BaseException:
        finish(space.queue, space.lock, memory)
        raise


class HostMemory(dict[str, Any]):
    """What kernels take for host arrays, by slot: made when a launch first takes it.

    So the kernel that packs the first operand runs while the next one is made.

    Parameters
    ----------
    context : pyopencl.Context
        The context of the kernels' device, which shares the host's memory.
    arrays : dict of array
        By slot. They must outlive the commands that use them.
    are_addresses : bool
        Whether the kernels take addresses. A buffer takes longer to make, above all where the
        caches hold other things, and Intel's runtime copies the memory of a read-only one.
    """

    def __init__(
        self, context: cl.Context, arrays: dict[str, HostArray], are_addresses: bool
    ) -> None:
        self._context, self._arrays, self._are_addresses = context, arrays, are_addresses

    def __missing__(self, slot: str) -> Any:
        array = self._arrays[slot]
        made = _address_of(array) if self._are_addresses else _buffer_over(array, self._context)
        self[slot] = made
        return made


def _address_of(array: HostArray) -> cl.SVM[Any]:
    """Return the address of a host array's lowest element.

    pyopencl takes it of writable and contiguous memory alone. Kernels do not write to operands.
    """
    flags = array.flags
    return cl.SVM(array if flags.forc and flags.writeable else span_of(array, is_readonly=False))


def _buffer_over(array: HostArray, context: cl.Context) -> cl.Buffer:
    """Return a buffer that is a host array's own memory, from its lowest element to its highest."""
    flags = array.flags
    # Memory that is only protected can be written to, for all that the runtime knows.
    is_writable = flags.writeable or is_protected(array)
    memory: Any = array
    if not flags.forc or is_writable != flags.writeable:
        memory = span_of(array, not is_writable)
    # Intel's runtime copies what it is told that kernels only read.
    return cl.Buffer(context, WRITTEN if is_writable else READ, hostbuf=memory)
