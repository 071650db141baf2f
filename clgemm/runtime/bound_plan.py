"""Bound plans: a plan's kernels with their arguments, and the memory that calls share.

While a call enqueues, it owns the kernels and the shared memory: see `clgemm.runtime.workspace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.core.plan import COUNTERS, Element, OutlierCounter, Plan, Step
from clgemm.hardware.device import Device
from clgemm.kernels.sources import BUFFER, parameter_types
from clgemm.runtime import programs
from clgemm.runtime.enqueueing import allow_addresses, enqueuer, has_direct_calls

__all__ = ["BoundKernels", "BoundPlan", "Launch", "SharedMemory"]

# Conversion of an argument, by the type of the kernel's parameter. Vectors are bytes already.
VALUES: dict[str, Callable[[Any], Any]] = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "int4": bytes,
    "long4": bytes,
}

OPERANDS = ("a", "b", "c")


class SharedMemory:
    """The memory of one queue that its calls use one after the other.

    Attributes
    ----------
    queue : pyopencl.CommandQueue
        The queue.
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
                self._scalars.append((index, VALUES[types[name]], argument.slot, argument.offset))
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
    plan : Plan
        The plan.
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
