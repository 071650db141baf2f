"""Buffers over the pages of host arrays, through which a GPU uses the host's memory in place.

Drivers use memory in place that begins at a page, and otherwise copy it. What several buffers share
is undefined in OpenCL, so that arrays with a page in common have one buffer. Pages that an array
touches can be read and written to as a whole, since all of it can.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from typing import cast

import numpy as np
import pyopencl as cl

from clgemm.runtime.operands import HOST_MEMORY, HostArray, address_of, bytes_at, layout_of
from clgemm.runtime.protection import is_protected
from clgemm.runtime.workspace import Workspace

PAGE_BYTES = mmap.PAGESIZE  # at least the 4096 that Intel's drivers ask for

Run = tuple[int, int]  # the addresses of a first byte, and of that behind the last one


class NotInPlaceError(Exception):
    """A GPU cannot use an array's memory in place. Nothing has been written."""


def whole_pages(runs: Iterable[Run]) -> list[Run]:
    """Return the pages that runs of memory touch, as runs without a page in common."""
    found: list[Run] = []
    for first, end in sorted(runs):
        first, end = first // PAGE_BYTES * PAGE_BYTES, -(-end // PAGE_BYTES) * PAGE_BYTES
        if found and first < found[-1][1]:
            first, end = found[-1][0], max(end, found[-1][1])
            found.pop()
        found.append((first, end))
    return found


class HostPages(dict[str, cl.Buffer]):
    """A GPU's buffers over the pages of host arrays, by slot.

    Attributes
    ----------
    starts : dict of int
        The first element of each array in its buffer, by slot.

    Parameters
    ----------
    arrays : mapping of str to array
        By slot; those of other slots are not used.

    Raises
    ------
    NotInPlaceError
        If an array cannot be written to, is not aligned to its elements, or the driver refuses its
        memory.
    """

    def __init__(self, context: cl.Context, arrays: Mapping[str, HostArray]) -> None:
        self._arrays, runs = arrays, {slot: _run(x) for slot, x in arrays.items()}
        self.starts, self._result = dict.fromkeys("abc", 0), runs["c"]
        flags = cl.mem_flags.READ_WRITE | HOST_MEMORY
        for first, end in whole_pages(runs.values()):
            try:
                buffer = cl.Buffer(context, flags, hostbuf=bytes_at(first, end - first, arrays))
            except cl.Error as error:
                raise NotInPlaceError(str(error)) from error
            for slot, (begin, _) in runs.items():
                if first <= begin < end:
                    self[slot] = buffer
                    self.starts[slot] = _elements(address_of(arrays[slot]) - first, arrays[slot])
                    if slot == "c":
                        self._offset = begin - first

    def fetch(self, space: Workspace) -> None:
        """Wait until the host sees what commands have written to `c`."""
        first, end = self._result
        with space.lock:
            region = cl.map_flags.READ, self._offset, (end - first,), np.dtype(np.uint8)
            mapped, event = cl.enqueue_map_buffer(
                space.queue, self["c"], *region, is_blocking=False
            )
            space.queue.flush()
        try:
            event.wait()
        finally:
            with space.lock:
                unmapped = cast("cl.MemoryMap", mapped.base).release(space.queue)
                space.queue.flush()
            unmapped.wait()


def _run(array: HostArray) -> Run:
    """Return where an array lies, from its lowest byte on."""
    if not (array.flags.writeable or is_protected(array)):
        raise NotInPlaceError("the array is read-only, and so may its memory be")
    lowest, highest = layout_of(array).extent
    first = address_of(array) + lowest * array.itemsize
    return first, first + (highest - lowest + 1) * array.itemsize


def _elements(size_bytes: int, array: HostArray) -> int:
    """Return how many elements so many bytes are."""
    count, rest = divmod(size_bytes, array.itemsize)
    if rest:  # a complex number, which is aligned to its parts
        raise NotInPlaceError(f"the memory is not aligned to {array.dtype}")
    return count
