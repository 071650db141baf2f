"""Operands as kernels take them: where a device array lies, and the memory of host arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pyopencl as cl

from clgemm.core.problem import Layout
from clgemm.runtime.operands import (
    HOST_MEMORY,
    ITEM_BYTES,
    DeviceArray,
    HostArray,
    layout_of,
    span_of,
)
from clgemm.runtime.protection import is_protected

__all__ = ["HostMemory", "Matrix", "place"]

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


class HostMemory(dict[str, Any]):
    """What kernels take for host arrays, by slot: made when a launch first takes it.

    So the kernel that packs the first operand runs while the next one is made.

    Parameters
    ----------
    context : pyopencl.Context
        The context of the kernels' device, which shares the host's memory.
    arrays : dict of array
        By slot. They must outlive the commands that use them.
    are_addresses : bool
        Whether the kernels take addresses. A buffer takes longer to make, above all where the
        caches hold other things, and Intel's runtime copies the memory of a read-only one.
    """

    def __init__(
        self, context: cl.Context, arrays: dict[str, HostArray], are_addresses: bool
    ) -> None:
        self._context, self._arrays, self._are_addresses = context, arrays, are_addresses

    def __missing__(self, slot: str) -> Any:
        array = self._arrays[slot]
        made = _address_of(array) if self._are_addresses else _buffer_over(array, self._context)
        self[slot] = made
        return made


def _address_of(array: HostArray) -> cl.SVM[Any]:
    """Return the address of a host array's lowest element.

    pyopencl takes it of writable and contiguous memory alone. Kernels do not write to operands.
    """
    flags = array.flags
    return cl.SVM(array if flags.forc and flags.writeable else span_of(array, is_readonly=False))


def _buffer_over(array: HostArray, context: cl.Context) -> cl.Buffer:
    """Return a buffer that is a host array's own memory, from its lowest element to its highest."""
    flags = array.flags
    # Memory that is only protected can be written to, for all that the runtime knows.
    is_writable = flags.writeable or is_protected(array)
    memory: Any = array
    if not flags.forc or is_writable != flags.writeable:
        memory = span_of(array, not is_writable)
    # Intel's runtime copies what it is told that kernels only read.
    return cl.Buffer(context, WRITTEN if is_writable else READ, hostbuf=memory)
