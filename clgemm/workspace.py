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
# Plans that take no more scratch than this share memory that stays: to take it and set it as
# arguments anew takes longer than all else of a call.
SMALL_SCRATCH_BYTES = 2**26
MOST_PAST = 32  # events that an in-order queue is known to be past

# How an argument of each letter of a Step's signature goes into a kernel: bytes and buffers as
# they are.
SCALARS: dict[str, Callable[[Any], Any]] = {"i": np.int32, "l": np.int64, "f": np.float32}


OPERANDS = ("a", "b", "c")


class _Launch:
    """A step's kernel, with the arguments set that no call changes.

    Attributes
    ----------
    buffers : tuple of (index, slot)
        Arguments that are operands' buffers.
    scratch : tuple of (index, slot)
        Those that are scratch memory.
    turns : tuple of (index, Turn)
        Arguments that are counters.
    """

    def __init__(self, device: Device, step: Step, tickets: cl.Buffer) -> None:
        self.kernel = programs.kernel(device, step.config, step.gated)
        self.set_argument = self.kernel.set_arg
        self.work_items = (step.groups * step.config.items,)
        self.group = (step.config.items,)
        buffers: list[tuple[int, str]] = []
        scratch: list[tuple[int, str]] = []
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
            elif argument == "tickets":
                self.set_argument(index, tickets)
            elif letter == "b":
                (buffers if argument in OPERANDS else scratch).append((index, argument))
            else:
                self._scalars.append((index, letter, argument, 0))
        self.buffers, self.scratch, self.turns = tuple(buffers), tuple(scratch), tuple(turns)

    def set_scratch(self, buffers: Mapping[str, cl.Buffer]) -> None:
        """Set scratch memory, by slot."""
        for index, slot in self.scratch:
            self.set_argument(index, buffers[slot])

    def set_scalars(self, values: Mapping[str, float]) -> None:
        """Set numbers, by slot: alpha, beta, and where in its buffer each operand begins."""
        for index, letter, slot, offset in self._scalars:
            self.set_argument(index, SCALARS[letter](values[slot] + offset))


class Prepared:
    """A plan's kernels on one queue, which keep their arguments from call to call.

    Attributes
    ----------
    has_small_scratch : bool
        Whether its scratch is of the memory that stays.
    generation : int
        Of that memory, which its kernels last had.
    """

    def __init__(self, plan: Plan, device: Device, tickets: cl.Buffer) -> None:
        self.launches = tuple(_Launch(device, step, tickets) for step in plan.steps)
        self.scratch, self.turns = plan.scratch, plan.turns
        self.has_small_scratch = sum(size for _, size in plan.scratch) <= SMALL_SCRATCH_BYTES
        self.generation = -1  # none yet
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
        # Scratch memory that stays, and how often it has grown.
        self._scratch: dict[str, cl.Buffer] = {}
        self._generation = 0
        self._all_counters: tuple[tuple[cl.Buffer, ...], ...] = ()
        self._turn = 0
        # Zeros, which kernels that draw their work from them, or count in them, leave behind.
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

    def scratch(self, prepared: Prepared) -> Mapping[str, cl.Buffer]:
        """Return scratch memory for a plan, which its kernels have as arguments then.

        Small one stays, as large as any plan has needed, and so do the arguments. Larger goes back
        to the pool once the launches are enqueued: their arguments are set anew each time.
        """
        with self.lock:
            if prepared.has_small_scratch:
                buffers = self._scratch
                for slot, size in prepared.scratch:
                    if slot not in buffers or buffers[slot].size < size:
                        buffers[slot] = self.allocate(size)
                        self._generation += 1
                prepared.generation = self._generation
            else:
                buffers = {slot: self.allocate(size) for slot, size in prepared.scratch}
            for launch in prepared.launches:
                launch.set_scratch(buffers)
            return buffers

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
            By slot: a, b and c, as far as the plan names them. One that a ``__missing__`` makes is
            asked for right before the first launch that takes it.
        scalars : tuple of float
            alpha, beta, and in which element of its buffer each of a, b and c begins.
        """
        queue = self.queue
        with self.lock:  # another thread's steps may not come between these
            prepared.set_scalars(scalars)
            if prepared.scratch and prepared.generation != self._generation:
                buffers.update(self.scratch(prepared))  # kept until all is enqueued
            counters = self._counters() if prepared.turns else ()
            in_order = self._in_order
            before = ahead = self._not_past(wait_for)
            for launch in prepared.launches:
                set_argument = launch.set_argument
                for index, slot in launch.buffers:
                    set_argument(index, buffers[slot])
                for index, (product, tier) in launch.turns:
                    set_argument(index, counters[2 * tier + product % 2])
                event = cl.enqueue_nd_range_kernel(
                    queue, launch.kernel, launch.work_items, launch.group, None, before
                )
                before = None if in_order else [event]
            if in_order:
                self._pass(*ahead or (), event)
            self._last = event
            self._turn = (self._turn + prepared.turns) % 2
        return event

    def _not_past(self, events: Sequence[cl.Event]) -> list[cl.Event] | None:
        """Return what the next command has to wait for, if there is anything."""
        if not self._in_order:
            return [*events, self._last] if self._last is not None else list(events)
        past = self._past
        for event in events:
            if id(event) not in past:
                return [each for each in events if id(each) not in past]
        return None

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
                found = self._kept[plan] = Prepared(plan, device, self._tickets)
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
