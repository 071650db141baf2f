"""Operands as OpenCL buffers: where a device array lies, and buffers over host arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pyopencl as cl

from clgemm.core.layout import Layout
from clgemm.runtime.operands import (
    HOST_MEMORY,
    ITEM_BYTES,
    DeviceArray,
    HostArray,
    layout_of,
    span_of,
)
from clgemm.runtime.protection import is_protected

__all__ = ["HostBuffers", "Matrix", "place"]

READ, WRITTEN = cl.mem_flags.READ_ONLY | HOST_MEMORY, cl.mem_flags.READ_WRITE | HOST_MEMORY


@dataclass(frozen=True)
class Matrix:
    """A batch of matrices in memory that kernels of one device can reach.

    Attributes
    ----------
    offset : int
        Elements from the start of `buffer` to the first element.
    """

    buffer: cl.Buffer
    offset: int
    layout: Layout


def place(array: DeviceArray) -> Matrix:
    """Return the matrix of a device array, where it lies."""
    return Matrix(cast("cl.Buffer", array.base_data), array.offset // ITEM_BYTES, layout_of(array))


class HostBuffers(dict[str, cl.Buffer]):
    """Buffers over host arrays by slot, made when a launch first takes them.

    So the kernel that packs the first operand runs while the next buffer is made.
    """

    def __init__(self, context: cl.Context, arrays: dict[str, HostArray]) -> None:
        self._context, self._arrays = context, arrays

    def __missing__(self, slot: str) -> cl.Buffer:
        buffer = self[slot] = _buffer_over(self._arrays[slot], self._context)
        return buffer


def _buffer_over(array: HostArray, context: cl.Context) -> cl.Buffer:
    """Return a buffer that is a host array's own memory, from its lowest element to its highest.

    For a device that shares host memory. The array's must outlive the commands that use it.
    """
    flags = array.flags
    # Memory that is only protected can be written to, for all that the runtime knows.
    is_writable = flags.writeable or is_protected(array)
    memory: Any = array
    if not flags.forc or is_writable != flags.writeable:
        memory = span_of(array, not is_writable)
    # Intel's runtime copies what it is told that kernels only read.
    return cl.Buffer(context, WRITTEN if is_writable else READ, hostbuf=memory)
