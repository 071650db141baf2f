"""Pages for memory that is about to be overwritten.

The system gives a new array its pages one by one, as they are first written to.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable
from typing import cast

import numpy as np

from clgemm.runtime.operands import ITEM_BYTES, HostArray, address_of

__all__ = ["prefault"]

MADV_POPULATE_WRITE = 23  # since Linux 5.14
FLOATS_PER_PAGE = mmap.PAGESIZE // ITEM_BYTES


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).madvise
    except (OSError, AttributeError, TypeError):  # no such function, or Windows
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return cast("Callable[[int, int, int], int]", function)


def prefault(memory: HostArray, by_populating: bool) -> None:
    """Have the system give pages to memory that is overwritten later.

    Parameters
    ----------
    memory : float32 array, contiguous
        Its contents are lost.
    by_populating : bool
        Whether Linux does it without writing; elsewhere, and otherwise, each page is written to.
    """
    flat = memory.reshape(-1)
    if by_populating and (madvise := _madvise()) is not None:
        start = address_of(flat)
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        size_bytes = (start + flat.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if size_bytes <= 0 or madvise(first, size_bytes, MADV_POPULATE_WRITE) == 0:
            return
    flat[::FLOATS_PER_PAGE] = np.float32(0)
