"""The workspace of one queue: bound plans, scratch memory, enqueueing."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pyopencl as cl
import pyopencl.tools

from clgemm.core.steps import Plan
from clgemm.hardware.device import Device, is_in_order
from clgemm.runtime.bound_plan import BoundKernels, BoundPlan, Launch, SharedMemory
from clgemm.runtime.memory import Matrix

__all__ = ["Workspace", "workspace"]

# What a pool may hold unused before it gives all of it back to the device: the scratch of the
# largest plan at least (tensor_plan.py), or each call would take its memory anew.
HELD_BYTES = 3 * 2**29
KEPT_PLANS = 256  # whose kernels keep their arguments
# Plans that take no more scratch than this share memory that stays: to take it and set it as
# arguments anew takes longer than all else of a call.
SMALL_SCRATCH_BYTES = 2**26
MOST_PAST = 32  # events that an in-order queue is known to be past


_locks: dict[cl.Device, threading.RLock] = {}


class Workspace:
    """Scratch memory of one queue, and the order of the calls that share it.

    Scratch goes back to the pool while its kernels may still run. In an in-order queue the next
    user's kernels wait for them by themselves; in another, each call waits for the one before.

    A call takes the shared memory, and the kernels whose arguments lie in it, out of its place, and
    puts it back once all is enqueued. So what an exception leaves half set is never seen again, and
    a call within another (by a signal handler, a finalizer) has memory and kernels of its own.

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
        self.lock = _locks.setdefault(queue.device, threading.RLock())
        self._in_order = is_in_order(queue)
        self._last: cl.Event | None = None
        # Of an in-order queue, by id: events of its commands, and those that it has waited for. To
        # wait for one again would change nothing, but takes NVIDIA's driver 8 us.
        self._past: dict[int, cl.Event] = {}
        self._kept: OrderedDict[Plan, BoundPlan] = OrderedDict()
        # None while a call uses it, and after one that did not come to its end.
        self._memory: SharedMemory | None = SharedMemory(queue)
        # Whether calls were cut off or nested, so that `_last` may not be the last.
        self._is_uncertain = False

    def allocate(self, size_bytes: int) -> cl.Buffer:
        """Return scratch memory; it goes back to the pool when the object dies."""
        with self.lock:
            if self._pool.managed_bytes - self._pool.active_bytes > HELD_BYTES:
                self._pool.free_held()
            # The stubs do not say so, but a pooled buffer serves wherever a buffer does.
            return cast("cl.Buffer", self._pool.allocate(size_bytes))

    def scratch(self, bound: BoundPlan) -> Mapping[str, cl.Buffer]:
        """Return the scratch memory that a plan's kernels have as arguments."""
        with self.lock:
            kernels = bound.kernels
            assert kernels is not None  # as `bind` has left it
            return self._scratch(bound, kernels)

    def _scratch(self, bound: BoundPlan, kernels: BoundKernels) -> Mapping[str, cl.Buffer]:
        """Return scratch memory for a plan, which its kernels have as arguments then.

        Small one stays, as large as any plan has needed, and so do the arguments. Larger goes back
        to the pool once the launches are enqueued: their arguments are set anew each time.
        """
        memory = kernels.memory
        if bound.has_small_scratch:
            buffers = memory.scratch
            for slot, size in kernels.scratch:
                if slot not in buffers or buffers[slot].size < size:
                    buffers[slot] = self.allocate(size)
                    memory.generation += 1
        else:
            buffers = {slot: self.allocate(size) for slot, size in kernels.scratch}
        for launch in kernels.launches:
            launch.set_scratch(buffers)
        if bound.has_small_scratch:
            kernels.generation = memory.generation
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
        return self.enqueue(self.bind(plan, device), buffers, (alpha, beta, *starts), wait_for)

    def enqueue(
        self,
        bound: BoundPlan,
        buffers: dict[str, cl.Buffer],
        scalars: tuple[float, ...],
        wait_for: Sequence[cl.Event] = (),
    ) -> cl.Event:
        """Enqueue the steps of a bound plan and return the last one's event, without waiting.

        Parameters
        ----------
        buffers : dict of pyopencl.Buffer
            By slot: a, b and c, as far as the plan names them. One that a ``__missing__`` makes is
            asked for right before the first launch that takes it.
        scalars : tuple of float
            alpha, beta, and in which element of its buffer each of a, b and c begins.
        """
        with self.lock:  # another thread's steps may not come between these
            kernels, counters = self._begun(bound, buffers, scalars)
            before = ahead = self._not_past(wait_for)
            for launch in kernels.launches:
                event = self._launched(launch, buffers, counters, before)
                before = None if self._in_order else [event]
            self._ended(kernels, ahead, event)
        return event

    def compute(
        self,
        bound: BoundPlan,
        buffers: dict[str, cl.Buffer],
        scalars: tuple[float, ...],
        wait_for: Sequence[cl.Event],
        wait: Callable[[cl.Event], None],
    ) -> None:
        """Compute a bound plan: enqueue each step once the one before is over.

        Parameters
        ----------
        wait : callable
            Waits for an event. If it is interrupted, the steps to come are not enqueued.
        """
        with self.lock:
            kernels, counters = self._begun(bound, buffers, scalars)
            ahead = self._not_past(wait_for)
        for launch in kernels.launches:
            with self.lock:
                event = self._launched(launch, buffers, counters, ahead)
                self.queue.flush()
            wait(event)
        with self.lock:
            self._ended(kernels, ahead, event)

    def _launched(
        self,
        launch: Launch,
        buffers: dict[str, cl.Buffer],
        counters: Sequence[cl.Buffer],
        before: list[cl.Event] | None,
    ) -> cl.Event:
        """Enqueue one step, and return its event."""
        set_argument = launch.set_argument
        for index, slot in launch.buffers:
            set_argument(index, buffers[slot])
        for index, (product, tier) in launch.turns:
            set_argument(index, counters[2 * tier + product % 2])
        return cl.enqueue_nd_range_kernel(
            self.queue, launch.kernel, launch.work_items, launch.group, None, before
        )

    def _ended(self, kernels: BoundKernels, ahead: list[cl.Event] | None, event: cl.Event) -> None:
        """Note that all of a call is enqueued, and put the shared memory back."""
        if self._in_order:  # it waits for these before whatever comes next
            past = self._past
            if len(past) > MOST_PAST:
                past.clear()
            if ahead:
                past.update((id(each), each) for each in ahead)
            past[id(event)] = event
        self._last = event
        memory = kernels.memory
        if kernels.turns:
            memory.turn = (memory.turn + kernels.turns) % 2
        self._memory = memory

    def _begun(
        self, bound: BoundPlan, buffers: dict[str, cl.Buffer], scalars: tuple[float, ...]
    ) -> tuple[BoundKernels, Sequence[cl.Buffer]]:
        """Take the shared memory; return kernels that only lack operands, and their counters."""
        memory, self._memory = self._memory, None
        if memory is None:
            memory = self._other_memory()
        kernels = bound.kernels
        if kernels is None or kernels.memory is not memory:
            kernels = bound.set_up(memory)
        kernels.set_scalars(scalars)
        if kernels.scratch and kernels.generation != memory.generation:
            buffers.update(self._scratch(bound, kernels))  # kept until all is enqueued
        return kernels, memory.counters() if kernels.turns else ()

    def _other_memory(self) -> SharedMemory:
        """Return memory for a call within another, or after one that did not come to its end."""
        self._is_uncertain = True
        return SharedMemory(self.queue)

    def _not_past(self, events: Sequence[cl.Event]) -> list[cl.Event] | None:
        """Return what the next command has to wait for, if there is anything."""
        if not self._in_order:
            return [*events, *self._all_before()]
        past = self._past
        for event in events:
            if id(event) not in past:
                return [each for each in events if id(each) not in past]
        return None

    def bind(self, plan: Plan, device: Device) -> BoundPlan:
        """Return a plan with its kernels, which are built and set up at the first request."""
        with self.lock:
            # Another call may do the same between any two of these lines.
            found = self._kept.pop(plan, None) or self._unbound(plan, device)
            self._kept[plan] = found
            while len(self._kept) > KEPT_PLANS:
                self._kept.popitem(last=False)
            memory = self._memory
            if memory is None:
                memory = self._memory = self._other_memory()
            if found.kernels is None or found.kernels.memory is not memory:
                found.set_up(memory)
            return found

    def _unbound(self, plan: Plan, device: Device) -> BoundPlan:
        size_bytes = sum(size for _, size in plan.scratch)
        return BoundPlan(plan, device, size_bytes <= SMALL_SCRATCH_BYTES)

    def pending(self) -> Sequence[cl.Event]:
        """Return what another queue must wait for before it writes to memory allocated before."""
        complete = cl.command_execution_status.COMPLETE
        return tuple(e for e in self._all_before() if e.command_execution_status > complete)

    def _all_before(self) -> Sequence[cl.Event]:
        """Return events after which all commands of this queue up to now are over."""
        if self._is_uncertain:
            with self.lock:
                marker = cl.enqueue_marker(self.queue)
                self.queue.flush()  # another queue may wait for it
                return (marker,)
        return () if self._last is None else (self._last,)


@functools.lru_cache(maxsize=64)
def workspace(queue: cl.CommandQueue) -> Workspace:
    """Return the workspace of a queue."""
    return Workspace(queue)
