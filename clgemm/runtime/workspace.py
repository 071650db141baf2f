"""The workspace of one queue: bound plans, scratch memory, enqueueing."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyopencl as cl
import pyopencl.tools

from clgemm.core.cache import holds_contexts
from clgemm.core.plan import Plan
from clgemm.hardware.device import Device
from clgemm.runtime import kept
from clgemm.runtime.bound_plan import BoundKernels, BoundPlan, Launch, SharedMemory
from clgemm.runtime.events import QueueOrder, Unmarked
from clgemm.runtime.memory import Matrix
from clgemm.runtime.process_exit import stop_threads_at_exit
from clgemm.runtime.readiness import require_built

__all__ = ["Workspace", "workspace"]

# A pool with more unused memory than this returns all of it to the device. The limit is at least
# the scratch memory of the largest plan (kernels/tensor_core), so that calls do not allocate anew.
HELD_BYTES = 3 * 2**29
HELD_SHARE = 16  # the limit is also at least this part of the device's memory
KEPT_PLANS = 256  # the number of bound plans that are kept
# A plan with at most this much scratch memory uses the shared memory, which is kept. Allocating it
# and setting the arguments again takes longer than the rest of a call.
SMALL_SCRATCH_BYTES = 2**26


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
    order : QueueOrder
        What the queue's next command has to wait for.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self._pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
        self.lock = _locks.setdefault(queue.device, threading.RLock())
        self._held_bytes = max(HELD_BYTES, queue.device.global_mem_size // HELD_SHARE)
        self.order = QueueOrder(queue, self.lock)
        self._kept: OrderedDict[Plan, BoundPlan] = OrderedDict()
        # None while a call uses it, and after an exception in a call.
        self._memory: SharedMemory | None = SharedMemory(queue)
        stop_threads_at_exit(self)
        kept.register(self)

    def allocate(self, size_bytes: int) -> cl.Buffer:
        """Return scratch memory; it returns to the pool when the object is deleted."""
        kept.in_use(size_bytes)
        with self.lock:
            if self._pool.managed_bytes - self._pool.active_bytes > self._held_bytes:
                self._pool.free_held()
            # A pooled buffer can be used like a buffer, although the type stubs do not say so.
            return cast("cl.Buffer", self._pool.allocate(size_bytes))

    def kept_bytes(self) -> int:
        """Return the bytes of scratch memory that no call uses."""
        memory = self._memory
        small = sum(x.size for x in tuple(memory.scratch.values())) if memory is not None else 0
        return self._pool.managed_bytes - self._pool.active_bytes + small

    def give_back(self) -> None:
        """Return the scratch memory that no call uses to the device."""
        with self.lock:
            memory, self._memory = self._memory, None
            if memory is not None:
                memory.scratch.clear()
                memory.generation += 1  # kernels get other memory before they run again
                self._memory = memory
            self._pool.free_held()

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
            By slot: those of a, b and c that the plan uses, or their addresses. A dict with
            ``__missing__`` may make one just before the first launch that needs it.
        scalars : tuple of float
            alpha, beta, and the first elements of a, b and c in their buffers.
        """
        with self.lock:  # no other thread enqueues between these steps
            kernels, counters, _kept = self._begun(bound, scalars)
            ahead = self.order.ahead(wait_for)
            kernels.settled, last = None, kernels.launches[-1]
            event = self._launch(kernels.launches, buffers, counters, ahead, last)
            assert event is not None
            self._ended(kernels, ahead, event)
        return event

    def start(
        self,
        bound: BoundPlan,
        buffers: dict[str, cl.Buffer],
        scalars: tuple[float, ...],
        wait_for: Sequence[cl.Event],
        identity: object,
    ) -> Unmarked:
        """Enqueue a bound plan's steps without an event, where the workspace can.

        Parameters
        ----------
        bound, buffers, scalars, wait_for
            As for `enqueue`.
        identity : object
            Names the buffers and scalars, which the caller keeps, for `start_again`.
        """
        order = self.order
        with self.lock:
            ahead = order.ahead(wait_for)
            if ahead and (commands := order.unmarked()) is not None:
                commands.mark()  # so that its event does not wait for these
            order.commands()
            kernels, counters, _kept = self._begun(bound, scalars)
            self._launch(kernels.launches, buffers, counters, ahead, None)
            if bound.has_small_scratch:
                kernels.settled = identity
            self._ended(kernels, ahead, None)
            return order.commands()  # a nested call may have marked those before

    def start_again(self, bound: BoundPlan, identity: object) -> Unmarked | None:
        """Enqueue the same as the last `start` with this bound plan, with the same arguments.

        The new commands wait for no events. Scratch memory and counters of outliers may be others
        than then.

        Returns
        -------
        Unmarked or None
            None if nothing was enqueued: the arguments may have changed since.
        """
        with self.lock:
            memory, self._memory = self._memory, None
            kernels = bound.kernels
            if kernels is None or kernels.settled is not identity or kernels.memory is not memory:
                self._memory = memory
                return None
            if kernels.scratch and kernels.generation != memory.generation:
                self._scratch(bound, kernels)
            self._launch(kernels.launches, None, kernels.counters(), None, None)
            self._put_back(kernels)
            return self.order.commands()

    def compute(
        self,
        bound: BoundPlan,
        buffers: dict[str, cl.Buffer],
        scalars: tuple[float, ...],
        wait: Callable[[cl.Event], None],
    ) -> None:
        """Enqueue a bound plan's steps, each after the step before is complete, and wait for all.

        Parameters
        ----------
        wait : callable
            Waits for an event. If it raises an exception, the remaining steps are not enqueued.
        """
        with self.lock:
            kernels, counters, _kept = self._begun(bound, scalars)
            ahead, kernels.settled = self.order.ahead(()), None
        for launch in kernels.launches:
            with self.lock:
                event = self._launch((launch,), buffers, counters, ahead, launch)
                self.queue.flush()
            assert event is not None
            wait(event)
        with self.lock:
            self._ended(kernels, ahead, event)

    def _launch(
        self,
        launches: Sequence[Launch],
        buffers: dict[str, cl.Buffer] | None,
        counters: Sequence[cl.Buffer],
        ahead: list[cl.Event] | None,
        last: Launch | None,
    ) -> cl.Event | None:
        """Enqueue steps behind events; return the event of `last`, if any.

        In an in-order queue, the others need none. Without `buffers`, the operands are those of the
        call before.
        """
        event, in_order = None, self.order.is_in_order
        for launch in launches:
            set_argument = launch.set_argument
            if buffers is not None:
                for index, slot in launch.buffers:
                    set_argument(index, buffers[slot])
            for index, (product,) in launch.outlier_counters:
                set_argument(index, counters[product % 2])
            if ahead or launch is last or not in_order:
                event = launch.enqueue(ahead)
                ahead = None if in_order else [event]
            else:
                launch.enqueue_without_event()
        return event

    def _ended(
        self, kernels: BoundKernels, ahead: list[cl.Event] | None, event: cl.Event | None
    ) -> None:
        """Record that a call is enqueued completely, and put the shared memory back."""
        self.order.ended(ahead, event)
        self._put_back(kernels)

    def _put_back(self, kernels: BoundKernels) -> None:
        """Put the shared memory back, with the counters that the next product uses."""
        memory = kernels.memory
        if kernels.counted_products:
            memory.next_counter = (memory.next_counter + kernels.counted_products) % 2
        self._memory = memory

    def _begun(
        self, bound: BoundPlan, scalars: tuple[float, ...]
    ) -> tuple[BoundKernels, Sequence[cl.Buffer], Any]:
        """Take the shared memory; return kernels with all arguments but operands, and counters.

        The third part keeps large scratch memory alive until everything is enqueued.
        """
        memory, self._memory = self._memory, None
        if memory is None:
            memory = self._other_memory()
        kernels = bound.kernels
        if kernels is None or kernels.memory is not memory:
            kernels = bound.set_up(memory)
        if scalars != kernels.scalars:
            kernels.set_scalars(scalars)
        scratch = None
        if kernels.scratch and kernels.generation != memory.generation:
            scratch = self._scratch(bound, kernels)
        return kernels, kernels.counters(), scratch

    def _other_memory(self) -> SharedMemory:
        """Return new memory, for a nested call or after an exception in a call."""
        self.order.is_uncertain = True
        return SharedMemory(self.queue)

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
        require_built(device, plan)
        size_bytes = sum(size for _, size in plan.scratch)
        return BoundPlan(plan, device, size_bytes <= SMALL_SCRATCH_BYTES)


@holds_contexts
@functools.lru_cache(maxsize=64)
def workspace(queue: cl.CommandQueue) -> Workspace:
    """Return the workspace of a queue."""
    return Workspace(queue)
