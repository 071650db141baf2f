"""The workspace of one queue: bound plans, the memory that calls share, and enqueueing.

A bound plan has a plan's kernels with their arguments. While a call enqueues, it owns the kernels
and the shared memory.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyopencl as cl
import pyopencl.tools

from clgemm.core.cache import holds_contexts
from clgemm.core.plan import COUNTERS, OPERANDS, Element, OutlierCounter, Plan, Step
from clgemm.hardware.device import Device
from clgemm.kernels.sources import BUFFER, parameter_types
from clgemm.runtime import kept_memory, programs
from clgemm.runtime.enqueueing import allow_addresses, enqueuer, has_direct_calls
from clgemm.runtime.events import QueueOrder, Unmarked
from clgemm.runtime.operands import Matrix
from clgemm.runtime.process_exit import stop_threads_at_exit
from clgemm.runtime.readiness import require_built

# A pool with more unused memory than this returns all of it to the device. The limit is at least
# the scratch memory of the largest plan (kernels/tensor_core), so that calls do not allocate anew.
HELD_BYTES = 3 * 2**29
HELD_SHARE = 16  # the limit is also at least this part of the device's memory
KEPT_PLANS = 256  # the number of bound plans that are kept
# A plan with at most this much scratch memory uses the shared memory, which is kept. Allocating it
# and setting the arguments again takes longer than the rest of a call.
SMALL_SCRATCH_BYTES = 2**26
# Conversion of an argument, by the type of the kernel's parameter. Vectors are bytes already.
VALUES: dict[str, Callable[[Any], Any]] = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "int4": bytes,
    "long4": bytes,
}


class SharedMemory:
    """The memory of one queue that its calls use one after the other.

    Attributes
    ----------
    atomic_counters : pyopencl.Buffer
        Zeros between calls. Kernels that use them reset them to zero.
    scratch : dict of pyopencl.Buffer
        Scratch memory that is kept between calls, by slot.
    generation : int
        How often scratch memory was replaced by a larger buffer.
    next_counter : int
        Which of the two counters of outliers the next product uses: 0 or 1.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue, self._context = queue, queue.context
        zeros = np.zeros(queue.device.max_compute_units * COUNTERS, np.int32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.atomic_counters = cl.Buffer(self._context, flags, hostbuf=zeros)
        self.scratch: dict[str, cl.Buffer] = {}
        self.generation = 0
        self.next_counter = 0
        self._all_counters: tuple[tuple[cl.Buffer, ...], ...] = ()

    def outlier_counters(self) -> Sequence[cl.Buffer]:
        """Return the counters of outliers: that of the next product, then the other.

        They are buffers, because pyopencl sets a buffer argument faster than an integer.
        """
        if not self._all_counters:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            zero = np.zeros(1, np.uint32)
            a, b = (cl.Buffer(self._context, flags, hostbuf=zero) for _ in range(2))
            self._all_counters = (a, b), (b, a)
        return self._all_counters[self.next_counter]


class Launch:
    """The kernel of a step. The arguments that are the same in every call are set.

    Attributes
    ----------
    buffers : tuple of (index, slot)
        The arguments that are operands' buffers.
    scratch : tuple of (index, slot)
        The arguments that are scratch memory.
    outlier_counters : tuple of (index, OutlierCounter)
        The arguments that are counters of outliers.
    """

    def __init__(self, device: Device, step: Step, memory: SharedMemory) -> None:
        self.kernel = programs.kernel(device, step.config, step.conditional)
        if device.claims_addresses:
            allow_addresses(self.kernel)
        self.set_argument = self.kernel.set_arg
        # pyopencl's own short way for numbers: `set_arg` tries buffers first, and takes 40 times
        # as long.
        self._set_number = getattr(self.kernel, "_set_arg_buf", self.set_argument)
        self.queue = memory.queue
        self.work_items, self.group = step.groups * step.config.items, step.config.items
        self._enqueue: Callable[[], int] | None = None
        if has_direct_calls():
            self._enqueue = enqueuer(self.queue, self.kernel, self.work_items, self.group)
        buffers: list[tuple[int, str]] = []
        scratch: list[tuple[int, str]] = []
        outlier_counters: list[tuple[int, OutlierCounter]] = []
        self._scalars: list[tuple[int, Callable[[Any], Any], str, int]] = []
        types = parameter_types(type(step.config))
        for index, (name, argument) in enumerate(step.arguments.items()):
            if isinstance(argument, OutlierCounter):
                outlier_counters.append((index, argument))
            elif types[name] == BUFFER:
                assert isinstance(argument, str), f"{name}={argument!r} is no buffer"
                if argument == "counters":
                    self.set_argument(index, memory.atomic_counters)
                else:
                    (buffers if argument in OPERANDS else scratch).append((index, argument))
            elif isinstance(argument, Element):
                value = VALUES[types[name]]
                if argument.parts > 1:
                    value = _in_parts(value, argument.parts)
                self._scalars.append((index, value, argument.slot, argument.offset))
            elif isinstance(argument, str):
                self._scalars.append((index, VALUES[types[name]], argument, 0))
            else:
                self._set_number(index, VALUES[types[name]](argument))
        self.buffers, self.scratch = tuple(buffers), tuple(scratch)
        self.outlier_counters = tuple(outlier_counters)

    def enqueue(self, wait_for: Sequence[cl.Event] | None) -> cl.Event:
        """Enqueue the kernel and return its event."""
        return cl.enqueue_nd_range_kernel(
            self.queue, self.kernel, (self.work_items,), (self.group,), None, wait_for
        )

    def enqueue_without_event(self) -> None:
        """Enqueue the kernel."""
        if self._enqueue is None or self._enqueue():
            self.enqueue(None)  # if it fails again, this raises the error

    def settle(self, buffers: Mapping[str, cl.Buffer]) -> None:
        """Set the operands' buffers for good: later calls leave them as they are."""
        for index, slot in self.buffers:
            self.set_argument(index, buffers[slot])
        self.buffers = ()

    def set_scratch(self, buffers: Mapping[str, cl.Buffer]) -> None:
        """Set the arguments that are scratch memory, from buffers by slot."""
        for index, slot in self.scratch:
            self.set_argument(index, buffers[slot])

    def set_scalars(self, values: Mapping[str, float]) -> None:
        """Set the numbers, by slot: alpha, beta and the first element of each operand."""
        for index, value, slot, offset in self._scalars:
            self._set_number(index, value(values[slot] + offset))


def _in_parts(value: Callable[[Any], Any], parts: int) -> Callable[[Any], Any]:
    return lambda position: value(parts * position)


class BoundKernels:
    """A plan's kernels for one shared memory. They keep their arguments from call to call.

    Attributes
    ----------
    memory : SharedMemory
        The memory of the arguments, except for operands and large scratch memory.
    generation : int
        The generation of the scratch memory that the arguments are set to.
    scalars : tuple of float, or None
        The numbers that the arguments are set to.
    settled : object or None
        Names the operands and scalars that the arguments are set to; None if nobody has named them,
        or if scratch memory changes from call to call.
    """

    def __init__(self, plan: Plan, device: Device, memory: SharedMemory) -> None:
        self.memory = memory
        self.launches = tuple(Launch(device, step, memory) for step in plan.steps)
        self.scratch, self.counted_products = plan.scratch, plan.counted_products
        self.generation = -1  # none yet
        self.scalars: tuple[float, ...] | None = None
        self.settled: object = None

    def counters(self) -> Sequence[cl.Buffer]:
        """Return the counters of outliers that the next product uses, if it counts any."""
        return self.memory.outlier_counters() if self.counted_products else ()

    def set_scalars(self, scalars: tuple[float, ...]) -> None:
        """Set alpha, beta and the first elements of a, b and c in their buffers.

        Most calls have the same numbers as the call before. Then this is not called.
        """
        values = dict(zip(("alpha", "beta", "a", "b", "c"), scalars, strict=True))
        for launch in self.launches:
            launch.set_scalars(values)
        self.scalars = scalars


class BoundPlan:
    """A plan with kernels for its next call.

    Attributes
    ----------
    kernels : BoundKernels or None
        Kernels that are set up completely; None before the first call.
    has_small_scratch : bool
        Whether its scratch memory is kept in the shared memory.
    """

    def __init__(self, plan: Plan, device: Device, has_small_scratch: bool) -> None:
        self.plan, self._device = plan, device
        self.kernels: BoundKernels | None = None
        self.has_small_scratch = has_small_scratch

    def set_up(self, memory: SharedMemory) -> BoundKernels:
        """Return new kernels that use this memory. The next call uses them too."""
        kernels = self.kernels = BoundKernels(self.plan, self._device, memory)
        return kernels


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
        kept_memory.register(self)

    def allocate(self, size_bytes: int) -> cl.Buffer:
        """Return scratch memory; it returns to the pool when the object is deleted."""
        kept_memory.in_use(size_bytes)
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
