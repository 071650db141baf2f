"""Whether a result is finite: the device looks at it before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from clgemm.core.plan import round_up
from clgemm.runtime.bound_plan import BoundPlan
from clgemm.runtime.finite import are_all_set, bound_check
from clgemm.runtime.transfer.product import TiledProduct
from clgemm.runtime.transfer.route import STEP
from clgemm.runtime.transfer.staging import Chunk
from clgemm.runtime.workspace import Workspace

__all__ = ["Check", "Checks", "check_of"]


class Check(NamedTuple):
    """What looks at a block of a result, dense and from the start of its buffer.

    Attributes
    ----------
    flags : int
        How many flags it sets.
    """

    space: Workspace
    plan: BoundPlan
    flags: int

    def enqueue(
        self, block: cl.Buffer, flags: cl.Buffer, start: int, before: Sequence[cl.Event]
    ) -> None:
        """Enqueue it behind `before`; the first flag is element `start` of `flags`."""
        scalars = 1.0, 0.0, 0, 0, start
        self.space.enqueue(self.plan, {"a": block, "c": flags}, scalars, before)


def check_of(product: TiledProduct, elements: int) -> Check:
    """Return what looks at so many elements, built and set up; repeated, this is a look-up."""
    return Check(product.space, *bound_check(elements, product.device, product.space))


class Checks:
    """The checks of a result's blocks, enqueued as the blocks are made.

    Parameters
    ----------
    product : TiledProduct
        What makes the blocks.
    blocks : sequence of int
        The elements of each block.
    """

    def __init__(self, product: TiledProduct, blocks: Sequence[int]) -> None:
        self._product = product
        self._checks = [check_of(product, elements) for elements in blocks]
        self._starts = [0]
        for check in self._checks:
            self._starts.append(self._starts[-1] + round_up(check.flags, STEP))
        self._enqueued = 0

    def allocate(self) -> None:
        """Allocate memory on the device, before the first block is made."""
        self._flags = self._product.allocate(self._starts[-1])

    def enqueue(self, block: cl.Buffer, made: cl.Event) -> None:
        """Enqueue the check of the next block."""
        number, self._enqueued = self._enqueued, self._enqueued + 1
        self._checks[number].enqueue(block, self._flags, self._starts[number], [made])

    def are_finite(self, chunk: Chunk) -> bool:
        """Wait for all checks, and tell whether the result is finite.

        Parameters
        ----------
        chunk : Chunk
            Where the flags go, if they fit: to pinned memory, they take half the time.
        """
        space, size = self._product.space, self._starts[-1]
        host = chunk[:size] if size <= chunk.size else np.empty(size, np.float32)
        with space.lock:
            event = cl.enqueue_copy(space.queue, host, self._flags, is_blocking=False)
            space.queue.flush()
        event.wait()
        pairs = zip(self._starts, self._checks, strict=False)
        return all(are_all_set(host[start : start + check.flags]) for start, check in pairs)
