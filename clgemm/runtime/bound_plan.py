"""A plan bound to a device: its kernels with their arguments, and the memory that calls share.

A call owns the kernels and the shared memory while it enqueues: `clgemm.runtime.workspace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.core.steps import COUNTERS, Element, Plan, Step, Turn
from clgemm.hardware.device import Device
from clgemm.kernels.sources import BUFFER, parameter_types
from clgemm.runtime import programs

__all__ = ["BoundKernels", "BoundPlan", "Launch", "SharedMemory"]

# How a value goes into a kernel, by its parameter's type. Vectors are bytes already.
VALUES: dict[str, Callable[[Any], Any]] = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "int4": bytes,
    "long4": bytes,
}

OPERANDS = ("a", "b", "c")


class SharedMemory:
    """Memory of one queue that one call at a time uses, and leaves as the next one needs it.

    Attributes
    ----------
    atomic_counters : pyopencl.Buffer
        Zeros, which kernels that draw their work from them, or count in them, leave behind.
    scratch : dict of pyopencl.Buffer
        Scratch memory that stays, by slot.
    generation : int
        How often it has grown.
    turn : int
        Which of two counters the next product counts in: 0 or 1.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._context = queue.context
        zeros = np.zeros(queue.device.max_compute_units * COUNTERS, np.int32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.atomic_counters = cl.Buffer(self._context, flags, hostbuf=zeros)
        self.scratch: dict[str, cl.Buffer] = {}
        self.generation = 0
        self.turn = 0
        self._all_counters: tuple[tuple[cl.Buffer, ...], ...] = ()

    def counters(self) -> Sequence[cl.Buffer]:
        """Return what a plan's products count in, by tier: the first one's counter, the other.

        Buffers, since setting one as an argument takes pyopencl 0.1 us, and an integer 6 us.
        """
        if not self._all_counters:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            zero = np.zeros(1, np.uint32)
            a, b, c, d = (cl.Buffer(self._context, flags, hostbuf=zero) for _ in range(4))
            self._all_counters = (a, b, c, d), (b, a, d, c)
        return self._all_counters[self.turn]


class Launch:
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

    def __init__(self, device: Device, step: Step, atomic_counters: cl.Buffer) -> None:
        self.kernel = programs.kernel(device, step.config, step.gated)
        self.set_argument = self.kernel.set_arg
        self.work_items = (step.groups * step.config.items,)
        self.group = (step.config.items,)
        buffers: list[tuple[int, str]] = []
        scratch: list[tuple[int, str]] = []
        turns: list[tuple[int, Turn]] = []
        self._scalars: list[tuple[int, Callable[[Any], Any], str, int]] = []
        types = parameter_types(type(step.config))
        for index, (name, argument) in enumerate(step.arguments.items()):
            if isinstance(argument, Turn):
                turns.append((index, argument))
            elif types[name] == BUFFER:
                assert isinstance(argument, str), f"{name}={argument!r} is no buffer"
                if argument == "counters":
                    self.set_argument(index, atomic_counters)
                else:
                    (buffers if argument in OPERANDS else scratch).append((index, argument))
            elif isinstance(argument, Element):
                self._scalars.append((index, VALUES[types[name]], argument.slot, argument.offset))
            elif isinstance(argument, str):
                self._scalars.append((index, VALUES[types[name]], argument, 0))
            else:
                self.set_argument(index, VALUES[types[name]](argument))
        self.buffers, self.scratch, self.turns = tuple(buffers), tuple(scratch), tuple(turns)

    def set_scratch(self, buffers: Mapping[str, cl.Buffer]) -> None:
        """Set scratch memory, by slot."""
        for index, slot in self.scratch:
            self.set_argument(index, buffers[slot])

    def set_scalars(self, values: Mapping[str, float]) -> None:
        """Set numbers, by slot: alpha, beta, and where in its buffer each operand begins."""
        for index, value, slot, offset in self._scalars:
            self.set_argument(index, value(values[slot] + offset))


class BoundKernels:
    """A plan's kernels with one shared memory; they keep their arguments from call to call.

    Attributes
    ----------
    memory : SharedMemory
        What their arguments lie in, beside operands and large scratch.
    generation : int
        Of the scratch memory that its kernels last had.
    """

    def __init__(self, plan: Plan, device: Device, memory: SharedMemory) -> None:
        self.memory = memory
        self.launches = tuple(Launch(device, step, memory.atomic_counters) for step in plan.steps)
        self.scratch, self.turns = plan.scratch, plan.turns
        self.generation = -1  # none yet
        self._scalars: tuple[float, ...] | None = None

    def set_scalars(self, scalars: tuple[float, ...]) -> None:
        """Set alpha, beta, and in which element of its buffer each of a, b and c begins.

        They mostly are what they were in the call before, and setting one takes longer than all
        buffers.
        """
        if scalars == self._scalars:
            return
        values = dict(zip(("alpha", "beta", "a", "b", "c"), scalars, strict=True))
        for launch in self.launches:
            launch.set_scalars(values)
        self._scalars = scalars


class BoundPlan:
    """A plan with kernels for its next call.

    Attributes
    ----------
    kernels : BoundKernels or None
        All of them are set up, and no call that is under way is still setting them up.
    has_small_scratch : bool
        Whether its scratch memory stays with the shared memory.
    """

    def __init__(self, plan: Plan, device: Device, has_small_scratch: bool) -> None:
        self._plan, self._device = plan, device
        self.kernels: BoundKernels | None = None
        self.has_small_scratch = has_small_scratch

    def set_up(self, memory: SharedMemory) -> BoundKernels:
        """Return new kernels that use this memory; they are the next call's too."""
        kernels = self.kernels = BoundKernels(self._plan, self._device, memory)
        return kernels
