"""Runs plans on a queue: scratch from its pool, kernels from `programs`, one launch a step."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyopencl as cl
import pyopencl.tools

from clgemm import programs
from clgemm.device import Device, is_in_order
from clgemm.operands import Matrix
from clgemm.steps import TICKETS, Element, Plan, Step, Turn

__all__ = ["Prepared", "Workspace", "workspace"]

# What a pool may hold unused before it gives all of it back to the device: the scratch of the
# largest plan at least (tensor_plan.py), or each call would take its memory anew.
HELD_BYTES = 3 * 2**29
KEPT_PLANS = 256  # whose kernels keep their arguments
MOST_PAST = 32  # events that an in-order queue is known to be past

# How an argument of each letter of a Step's signature goes into a kernel: bytes and buffers as
# they are.
SCALARS: dict[str, Callable[[Any], Any]] = {"i": np.int32, "l": np.int64, "f": np.float32}


class _Launch:
    """A step's kernel, with the arguments set that no call changes.

    Attributes
    ----------
    buffers : tuple of (index, slot)
        Arguments that are buffers.
    turns : tuple of (index, Turn)
        Arguments that are counters.
    """

    def __init__(self, device: Device, step: Step) -> None:
        self.kernel = programs.kernel(device, step.config, step.gated)
        self.set_argument = self.kernel.set_arg
        self.work_items = (step.groups * step.config.items,)
        self.group = (step.config.items,)
        buffers: list[tuple[int, str]] = []
        turns: list[tuple[int, Turn]] = []
        self._scalars: list[tuple[int, str, str, int]] = []
        for index, (letter, argument) in enumerate(
            zip(step.signature, step.arguments, strict=True)
        ):
            if isinstance(argument, Turn):
                turns.append((index, argument))
            elif isinstance(argument, Element):
                self._scalars.append((index, letter, argument.slot, argument.offset))
            elif not isinstance(argument, str):
                self.set_argument(index, SCALARS.get(letter, bytes)(argument))
            elif letter == "b":
                buffers.append((index, argument))
            else:
                self._scalars.append((index, letter, argument, 0))
        self.buffers, self.turns = tuple(buffers), tuple(turns)

    def set_scalars(self, values: Mapping[str, float]) -> None:
        """Set numbers, by slot: alpha, beta, and where in its buffer each operand begins."""
        for index, letter, slot, offset in self._scalars:
            self.set_argument(index, SCALARS[letter](values[slot] + offset))


class Prepared:
    """A plan's kernels on one queue, which keep their arguments from call to call."""

    def __init__(self, plan: Plan, device: Device) -> None:
        self.launches = tuple(_Launch(device, step) for step in plan.steps)
        self.scratch, self.turns = plan.scratch, plan.turns
        self._scalars: tuple[float, ...] | None = None

    def set_scalars(self, scalars: tuple[float, ...]) -> None:
        """Set alpha, beta, and in which element of its buffer each of a, b and c begins.

        They mostly are what they were in the call before, and setting one takes longer than all
        buffers.
        """
        if scalars == self._scalars:
            return
        self._scalars = None
        values = dict(zip(("alpha", "beta", "a", "b", "c"), scalars, strict=True))
        for launch in self.launches:
            launch.set_scalars(values)
        self._scalars = scalars


@functools.cache
def _lock_of(_: cl.Device) -> threading.RLock:
    return threading.RLock()


class Workspace:
    """Scratch memory of one queue, and the order of the calls that share it.

    Scratch goes back to the pool while its kernels may still run. In an in-order queue the next
    user's kernels wait for them by themselves; in another, each call waits for the one before.

    Attributes
    ----------
    lock : threading.RLock
        The device's, held while commands are enqueued, never while they are waited for: steps of
        two calls do not mix, and NVIDIA's driver, which crashes now and then when threads enqueue
        at once, be it on several queues, is asked by one at a time.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self._pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
        self.lock = _lock_of(queue.device)
        self._in_order = is_in_order(queue)
        self._last: cl.Event | None = None
        # Of an in-order queue, by id: events of its commands, and those that it has waited for. To
        # wait for one again would change nothing, but takes NVIDIA's driver 8 us.
        self._past: dict[int, cl.Event] = {}
        self._kept: OrderedDict[Plan, Prepared] = OrderedDict()
        self._all_counters: tuple[tuple[cl.Buffer, ...], ...] = ()
        self._turn = 0
        # Zeros, which kernels that draw their work from them leave behind.
        zeros = np.zeros(queue.device.max_compute_units * TICKETS, np.int32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._tickets = cl.Buffer(queue.context, flags, hostbuf=zeros)

    def allocate(self, size_bytes: int) -> cl.Buffer:
        """Return scratch memory; it goes back to the pool when the object dies."""
        with self.lock:
            if self._pool.managed_bytes - self._pool.active_bytes > HELD_BYTES:
                self._pool.free_held()
            # The stubs do not say so, but a pooled buffer serves wherever a buffer does.
            return cast("cl.Buffer", self._pool.allocate(size_bytes))

    def run(
        self,
        plan: Plan,
        device: Device,
        matrices: Mapping[str, Matrix],
        alpha: float = 1.0,
        beta: float = 0.0,
        wait_for: Sequence[cl.Event] = (),
    ) -> cl.Event:
        """Enqueue the plan's steps and return the last one's event, without waiting.

        Parameters
        ----------
        matrices : dict of Matrix
            By slot: a, b and c, as far as the plan names them.
        """
        buffers = {slot: matrix.buffer for slot, matrix in matrices.items()}
        starts = tuple(matrices[x].offset if x in matrices else 0 for x in ("a", "b", "c"))
        return self.enqueue(self.prepared(plan, device), buffers, (alpha, beta, *starts), wait_for)

    def enqueue(
        self,
        prepared: Prepared,
        buffers: dict[str, cl.Buffer],
        scalars: tuple[float, ...],
        wait_for: Sequence[cl.Event] = (),
    ) -> cl.Event:
        """Enqueue the steps of a prepared plan and return the last one's event, without waiting.

        Parameters
        ----------
        buffers : dict of pyopencl.Buffer
            By slot: a, b and c, as far as the plan names them. Scratch memory is added. One that a
            ``__missing__`` makes is asked for right before the first launch that takes it.
        scalars : tuple of float
            alpha, beta, and in which element of its buffer each of a, b and c begins.
        """
        with self.lock:  # another thread's steps may not come between these
            prepared.set_scalars(scalars)
            for scratch, size_bytes in prepared.scratch:
                buffers[scratch] = self.allocate(size_bytes)
            buffers["tickets"] = self._tickets
            counters = self._counters() if prepared.turns else ()
            before = ahead = self._not_past(wait_for)
            for launch in prepared.launches:
                set_argument = launch.set_argument
                for index, slot in launch.buffers:
                    set_argument(index, buffers[slot])
                for index, (product, tier) in launch.turns:
                    set_argument(index, counters[2 * tier + product % 2])
                event = cl.enqueue_nd_range_kernel(
                    self.queue, launch.kernel, launch.work_items, launch.group, None, before
                )
                before = [] if self._in_order else [event]
            if self._in_order:
                self._pass(*ahead, event)
            self._last = event
            self._turn = (self._turn + prepared.turns) % 2
        return event

    def _not_past(self, events: Sequence[cl.Event]) -> list[cl.Event]:
        """Return what the next command has to wait for."""
        if not self._in_order:
            return [*events, self._last] if self._last is not None else list(events)
        past = self._past
        return [event for event in events if id(event) not in past]

    def _pass(self, *events: cl.Event) -> None:
        """Note that an in-order queue waits for these before whatever comes next."""
        if len(self._past) > MOST_PAST:
            self._past.clear()
        for event in events:
            self._past[id(event)] = event

    def prepared(self, plan: Plan, device: Device) -> Prepared:
        """Return a plan's kernels, built and set up at the first request."""
        with self.lock:
            found = self._kept.get(plan)
            if found is None:
                found = self._kept[plan] = Prepared(plan, device)
                if len(self._kept) > KEPT_PLANS:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(plan)
            return found

    def pending(self) -> Sequence[cl.Event]:
        """Return what another queue must wait for before it writes to memory allocated before."""
        last = self._last
        if last is None or last.command_execution_status <= cl.command_execution_status.COMPLETE:
            return ()
        return (last,)

    def _counters(self) -> Sequence[cl.Buffer]:
        """Return what a plan's products count in, by tier: the first one's counter, the other.

        Buffers, since setting one as an argument takes pyopencl 0.1 us, and an integer 6 us.
        """
        if not self._all_counters:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            zero = np.zeros(1, np.uint32)
            context = self.queue.context
            a, b, c, d = (cl.Buffer(context, flags, hostbuf=zero) for _ in range(4))
            self._all_counters = (a, b, c, d), (b, a, d, c)
        return self._all_counters[self._turn]


@functools.lru_cache(maxsize=64)
def workspace(queue: cl.CommandQueue) -> Workspace:
    """Return the workspace of a queue."""
    return Workspace(queue)
