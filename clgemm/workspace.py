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
from clgemm.steps import Element, Plan, Step, Turn

__all__ = ["Workspace", "workspace"]

# What a pool may hold unused before it gives all of it back to the device: the scratch of the
# largest plan at least (tensor_plan.py), or each call would take its memory anew.
HELD_BYTES = 3 * 2**29
KEPT_PLANS = 256  # whose kernels keep their arguments

# How an argument of each letter of a Step's signature goes into a kernel: bytes and buffers as
# they are.
SCALARS: dict[str, Callable[[Any], Any]] = {"i": np.int32, "l": np.int64, "f": np.float32}


class _Launch:
    """A step's kernel, with the arguments set that no call changes."""

    def __init__(self, device: Device, step: Step) -> None:
        self.kernel = programs.kernel(device, step.config, step.gated)
        self.work_items = (step.groups * step.config.items,)
        self.group = (step.config.items,)
        self.buffers: list[tuple[int, str]] = []
        self._scalars: list[tuple[int, str, str, Element | None]] = []
        self._turns: list[tuple[int, Turn]] = []
        self._last: dict[int, float] = {}
        for index, (letter, argument) in enumerate(
            zip(step.signature, step.arguments, strict=True)
        ):
            if isinstance(argument, Turn):
                self._turns.append((index, argument))
            elif isinstance(argument, Element):
                self._scalars.append((index, letter, argument.slot, argument))
            elif isinstance(argument, str):
                if letter == "b":
                    self.buffers.append((index, argument))
                else:
                    self._scalars.append((index, letter, argument, None))
            else:
                self.kernel.set_arg(index, SCALARS.get(letter, bytes)(argument))

    def set(
        self, values: Mapping[str, Any], offsets: Mapping[str, int], counters: Sequence[cl.Buffer]
    ) -> None:
        """Set the arguments of one call; most scalars are what they were in the last."""
        for index, slot in self.buffers:
            self.kernel.set_arg(index, values[slot])
        for index, letter, slot, element in self._scalars:
            value = values[slot] if element is None else offsets[slot] + element.offset
            if self._last.get(index) != value:
                self.kernel.set_arg(index, SCALARS[letter](value))
                self._last[index] = value
        for index, (product, tier) in self._turns:
            self.kernel.set_arg(index, counters[2 * tier + product % 2])


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
        self._kept: OrderedDict[Plan, Sequence[_Launch]] = OrderedDict()
        self._all_counters: list[cl.Buffer] = []
        self._turn = 0
        # Two zeros, which kernels that draw their work from them leave behind.
        zeros = np.zeros(2, np.int32)
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
        values: dict[str, Any] = {slot: matrix.buffer for slot, matrix in matrices.items()}
        values |= {"alpha": alpha, "beta": beta}
        values["tickets"] = self._tickets
        offsets = {slot: matrix.offset for slot, matrix in matrices.items()}
        with self.lock:  # another thread's steps may not come between these
            for slot, size_bytes in plan.scratch:
                values[slot] = self.allocate(size_bytes)
            counters = self._counters() if plan.turns else ()
            before = list(wait_for)
            if not self._in_order and self._last is not None:
                before.append(self._last)
            for launch in self._launches(plan, device):
                launch.set(values, offsets, counters)
                event = cl.enqueue_nd_range_kernel(
                    self.queue, launch.kernel, launch.work_items, launch.group, wait_for=before
                )
                before = [] if self._in_order else [event]
            self._last = event
            self._turn = (self._turn + plan.turns) % 2
        return event

    def prepare(self, plan: Plan, device: Device) -> None:
        """Build what a plan takes; enqueue nothing."""
        with self.lock:
            self._launches(plan, device)

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
            self._all_counters = [cl.Buffer(context, flags, hostbuf=zero) for _ in range(4)]
        a, b, c, d = self._all_counters
        return (b, a, d, c) if self._turn else (a, b, c, d)

    def _launches(self, plan: Plan, device: Device) -> Sequence[_Launch]:
        found = self._kept.get(plan)
        if found is None:
            found = [_Launch(device, step) for step in plan.steps]
            self._kept[plan] = found
            if len(self._kept) > KEPT_PLANS:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(plan)
        return found


@functools.lru_cache(maxsize=64)
def workspace(queue: cl.CommandQueue) -> Workspace:
    """Return the workspace of a queue."""
    return Workspace(queue)
