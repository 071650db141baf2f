"""Runs plans on a queue: scratch from its pool, kernels from `programs`, one launch a step."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyopencl as cl
import pyopencl.tools

from clgemm import programs
from clgemm.device import Device, is_in_order
from clgemm.operands import Matrix
from clgemm.steps import Argument, Element, Plan

__all__ = ["Workspace", "workspace"]

# What a pool may hold unused before it gives all of it back to the device.
HELD_BYTES = 2**30


class Workspace:
    """Scratch memory of one queue, and the order of the calls that share it.

    Scratch goes back to the pool while its kernels may still run. In an in-order queue the next
    user's kernels wait for them by themselves; in another, each call waits for the one before.

    Attributes
    ----------
    lock : threading.RLock
        Held while commands are enqueued, never while they are waited for: steps of two calls do
        not mix, and NVIDIA's driver crashes now and then when sixteen threads enqueue at once.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self._pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
        self.lock = threading.RLock()
        self._in_order = is_in_order(queue)
        self._last: cl.Event | None = None

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
        if plan.packed_a_bytes:
            values["packed_a"] = self.allocate(plan.packed_a_bytes)
        if plan.packed_b_bytes:
            values["packed_b"] = self.allocate(plan.packed_b_bytes)

        def resolved(argument: Argument) -> Any:
            if isinstance(argument, str):
                return values[argument]
            if isinstance(argument, Element):
                return matrices[argument.slot].offset + argument.offset
            return argument

        with self.lock:  # another thread's steps may not come between these
            before = list(wait_for)
            if not self._in_order and self._last is not None:
                before.append(self._last)
            for step in plan.steps:
                kernel = programs.kernel(device, step.config, step.signature)
                kernel.set_args(*map(resolved, step.arguments))
                items = step.config.items
                event = cl.enqueue_nd_range_kernel(
                    self.queue, kernel, (step.groups * items,), (items,), wait_for=before
                )
                before = [] if self._in_order else [event]
            self._last = event
        return event


@functools.lru_cache(maxsize=64)
def workspace(queue: cl.CommandQueue) -> Workspace:
    """Return the workspace of a queue."""
    return Workspace(queue)
