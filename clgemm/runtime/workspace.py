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
from clgemm.runtime.process_exit import stop_threads_at_exit

__all__ = ["Workspace", "workspace"]

# A pool with more unused memory than this returns all of it to the device. The limit is at least
# the scratch memory of the largest plan (kernels/tensor_core), so that calls do not allocate anew.
HELD_BYTES = 3 * 2**29
HELD_SHARE = 16  # the limit is also at least this part of the device's memory
KEPT_PLANS = 256  # the number of bound plans that are kept
# A plan with at most this much scratch memory uses the shared memory, which is kept. Allocating it
# and setting the arguments again takes longer than the rest of a call.
SMALL_SCRATCH_BYTES = 2**26
MOST_PAST = 32  # the number of events that are remembered as waited for


_locks: dict[cl.Device, threading.RLock] = {}


class Workspace:
    """The scratch memory of one queue, and the order of the calls that share it.

    Scratch memory returns to the pool while its kernels may still run. In an in-order queue, the
    kernels of the next call run after them. In an out-of-order queue, each call waits for the call
    before.

    A call takes the shared memory out of `_memory`, and with it the kernels whose arguments refer
    to it. It puts them back when everything is enqueued. If an exception comes in between, nothing
    that is half set is used again. A nested call (of a signal handler or a finalizer) finds no
    shared memory and gets memory and kernels of its own.

    Attributes
    ----------
    lock : threading.RLock
        The device's lock. It is held while commands are enqueued, so that steps of two calls do not
        mix, and never while they are waited for. All queues of a device share it, because NVIDIA's
        driver sometimes crashes if several threads enqueue at once.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self._pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
        self.lock = _locks.setdefault(queue.device, threading.RLock())
        self._held_bytes = max(HELD_BYTES, queue.device.global_mem_size // HELD_SHARE)
        self._in_order = is_in_order(queue)
        self._last: cl.Event | None = None
        # For an in-order queue, by id: the events of its own commands and those that it has waited
        # for. It need not wait for them again, which would take time in NVIDIA's driver.
        self._past: dict[int, cl.Event] = {}
        self._kept: OrderedDict[Plan, BoundPlan] = OrderedDict()
        # None while a call uses it, and after an exception in a call.
        self._memory: SharedMemory | None = SharedMemory(queue)
        # Whether calls were interrupted or nested, so that `_last` may not be the last event.
        self._is_uncertain = False
        stop_threads_at_exit(self)

    def allocate(self, size_bytes: int) -> cl.Buffer:
        """Return scratch memory; it returns to the pool when the object is deleted."""
        with self.lock:
            if self._pool.managed_bytes - self._pool.active_bytes > self._held_bytes:
                self._pool.free_held()
            # A pooled buffer can be used like a buffer, although the type stubs do not say so.
            return cast("cl.Buffer", self._pool.allocate(size_bytes))

    def scratch(self, bound: BoundPlan) -> Mapping[str, cl.Buffer]:
        """Return the scratch memory that the arguments of a plan's kernels refer to."""
        with self.lock:
            kernels = bound.kernels
            assert kernels is not None  # `bind` has set them up
            return self._scratch(bound, kernels)

    def _scratch(self, bound: BoundPlan, kernels: BoundKernels) -> Mapping[str, cl.Buffer]:
        """Return scratch memory for a plan, and set it as its kernels' arguments.

        Small scratch memory is kept, as large as any plan has needed, and so are the arguments.
        Larger scratch memory returns to the pool once the launches are enqueued, and each call sets
        the arguments again.
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
        """Enqueue a plan's steps and return the event of the last step, without waiting.

        Parameters
        ----------
        matrices : dict of Matrix
            By slot: those of a, b and c that the plan uses.
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
        """Enqueue a bound plan's steps and return the event of the last step, without waiting.

        Parameters
        ----------
        buffers : dict of pyopencl.Buffer
            By slot: those of a, b and c that the plan uses. A dict with ``__missing__`` may make a
            buffer just before the first launch that needs it.
        scalars : tuple of float
            alpha, beta, and the first elements of a, b and c in their buffers.
        """
        with self.lock:  # no other thread enqueues between these steps
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
        """Enqueue a bound plan's steps, each after the step before is complete, and wait for all.

        Parameters
        ----------
        wait : callable
            Waits for an event. If it raises an exception, the remaining steps are not enqueued.
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
        """Enqueue one step and return its event."""
        set_argument = launch.set_argument
        for index, slot in launch.buffers:
            set_argument(index, buffers[slot])
        for index, (product, tier) in launch.outlier_counters:
            set_argument(index, counters[2 * tier + product % 2])
        return cl.enqueue_nd_range_kernel(
            self.queue, launch.kernel, launch.work_items, launch.group, None, before
        )

    def _ended(self, kernels: BoundKernels, ahead: list[cl.Event] | None, event: cl.Event) -> None:
        """Record that a call is enqueued completely, and put the shared memory back."""
        if self._in_order:  # later commands run after these events
            past = self._past
            if len(past) > MOST_PAST:
                past.clear()
            if ahead:
                past.update((id(each), each) for each in ahead)
            past[id(event)] = event
        self._last = event
        memory = kernels.memory
        if kernels.counted_products:
            memory.next_counter = (memory.next_counter + kernels.counted_products) % 2
        self._memory = memory

    def _begun(
        self, bound: BoundPlan, buffers: dict[str, cl.Buffer], scalars: tuple[float, ...]
    ) -> tuple[BoundKernels, Sequence[cl.Buffer]]:
        """Take the shared memory; return kernels with all arguments but operands, and counters."""
        memory, self._memory = self._memory, None
        if memory is None:
            memory = self._other_memory()
        kernels = bound.kernels
        if kernels is None or kernels.memory is not memory:
            kernels = bound.set_up(memory)
        kernels.set_scalars(scalars)
        if kernels.scratch and kernels.generation != memory.generation:
            # In `buffers`, large scratch memory is kept alive until everything is enqueued.
            buffers.update(self._scratch(bound, kernels))
        return kernels, memory.outlier_counters() if kernels.counted_products else ()

    def _other_memory(self) -> SharedMemory:
        """Return new memory, for a nested call or after an exception in a call."""
        self._is_uncertain = True
        return SharedMemory(self.queue)

    def _not_past(self, events: Sequence[cl.Event]) -> list[cl.Event] | None:
        """Return the events that the next command has to wait for, or None."""
        if not self._in_order:
            return [*events, *self._all_before()]
        past = self._past
        for event in events:
            if id(event) not in past:
                return [each for each in events if id(each) not in past]
        return None

    def bind(self, plan: Plan, device: Device) -> BoundPlan:
        """Return a bound plan; the first call builds its kernels and sets them up."""
        with self.lock:
            # A nested call may run this between any two of these lines.
            found = self._kept.pop(plan, None) or self._unbound(plan, device)
            self._kept[plan] = found
            while len(self._kept) > KEPT_PLANS:
                self._kept.popitem(last=False)
            return self._set_up(found)

    def bind_alone(self, plan: Plan, device: Device) -> BoundPlan:
        """Return a bound plan whose kernels are used by nobody else, who would change arguments."""
        with self.lock:
            return self._set_up(self._unbound(plan, device))

    def _set_up(self, bound: BoundPlan) -> BoundPlan:
        memory = self._memory
        if memory is None:
            memory = self._memory = self._other_memory()
        if bound.kernels is None or bound.kernels.memory is not memory:
            bound.set_up(memory)
        return bound

    def _unbound(self, plan: Plan, device: Device) -> BoundPlan:
        size_bytes = sum(size for _, size in plan.scratch)
        return BoundPlan(plan, device, size_bytes <= SMALL_SCRATCH_BYTES)

    def pending(self) -> Sequence[cl.Event]:
        """Return the events after which another queue may write to memory allocated so far."""
        complete = cl.command_execution_status.COMPLETE
        return tuple(e for e in self._all_before() if e.command_execution_status > complete)

    def forget(self) -> None:
        """Keep no events of transfers: they keep the host memory that was transferred."""
        with self.lock:
            self._past.clear()

    def _all_before(self) -> Sequence[cl.Event]:
        """Return events that are complete only after all commands of this queue up to now."""
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
