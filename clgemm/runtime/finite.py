"""Whether results are finite. A device that sends its results looks at them before.

BLAS could look at a result fast, but its threads spin for a tenth of a second after that. They take
the processors from a CPU device, and from the threads that copy for a GPU.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from clgemm.hardware.device import Device, transfer_config
from clgemm.kernels.finite.plan import count_flags, finite_plan
from clgemm.runtime.execute import BoundCall, execute
from clgemm.runtime.host_pages import NotInPlaceError
from clgemm.runtime.operands import HostArray
from clgemm.runtime.workspace import BoundPlan, Workspace, workspace

# Fewer elements take the host less time than a launch takes a CPU device (two cores of an Intel
# Xeon with PoCL 3.0, 3.1 and Intel's runtime, 2026-11-27).
LEAST_ON_DEVICE = 2**19

_mine = threading.local()


class Watch:
    """What has become known of results.

    Attributes
    ----------
    elements : int
        The elements of results that are known to be finite.
    """

    def __init__(self) -> None:
        self.elements = 0


@contextlib.contextmanager
def watched(is_wanted: bool = True) -> Iterator[Watch]:
    """Ask the products of this thread to tell whether their results are finite, if they can."""
    before, new = watch(), Watch()
    _mine.watch = new if is_wanted else None
    try:
        yield new
    finally:
        _mine.watch = before


def watch() -> Watch | None:
    """Return what this thread's products are to tell; None if nobody asks."""
    return getattr(_mine, "watch", None)


def is_finite(c: HostArray, device: Device) -> bool:
    """Return whether all elements are finite. False also for some where only their sum is not.

    Parameters
    ----------
    device : Device
        What may look at them, if it reads host arrays where they lie.
    """
    is_large = c.dtype == np.float32 and c.size >= LEAST_ON_DEVICE
    if is_large and transfer_config(device) is None:
        # This copies only a result with gaps.
        elements, space = c.ravel("K"), workspace(device.queue)
        check = check_of(elements.size, device, space)
        flags = np.zeros(check.flags, np.float32)
        bound = BoundCall(space, check.plan, False, by_pages=device.kind == "GPU")
        with contextlib.suppress(NotInPlaceError):
            execute(bound, 1.0, elements, elements, 0.0, flags)
            return are_all_set(flags)
    if c.dtype == np.float16:  # two maxima of the bits take an eighth of what `isfinite` does
        positive, negative = c.view(np.int16), c.view(np.uint16)
        return bool(positive.max(initial=0) < 0x7C00 and negative.max(initial=0) < 0xFC00)
    # Of all sums, this one is the fastest, and it warns of nothing.
    return bool(np.isfinite(np.einsum("i->", c.ravel("K"))))


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


def check_of(elements: int, device: Device, space: Workspace) -> Check:
    """Return what looks at so many elements, built and set up; repeated, this is a look-up."""
    bound = space.bind(finite_plan(elements, device.limits), device)
    return Check(space, bound, count_flags(elements, device.limits))


def are_all_set(flags: HostArray) -> bool:
    """Return whether all flags of `clgemm.kernels.finite` say that elements are finite."""
    return bool((flags == 1).all())
