"""Memory of large results, which serves the next result once nothing refers to the last one.

The system gives new memory page by page, and clears each page: for results of 64 MiB and more, that
takes a GPU's caller a quarter of the call. NumPy and the C library keep smaller memory themselves.
"""

from __future__ import annotations

import contextlib
import functools
import math
import mmap
import os
import sys
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from clgemm.core.problem import FLOAT_BYTES
from clgemm.runtime import kept

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ResultMemory", "empty", "is_kept"]

LEAST_BYTES = 2**25  # glibc keeps less itself: the largest value of M_MMAP_THRESHOLD
MOST_KEPT = 2  # pieces of memory that nothing uses
MOST_SHARE = 32  # a piece is at most the host's memory divided by this
UNKNOWN_BYTES = 2**33  # the host's memory, where the system does not tell
SPARE = 1.25  # a piece may be larger than what is asked for by this factor
OWN_REFERENCES = 2  # the list's to its element, and the argument of `getrefcount`
LIMITS = tuple(most for most, _ in kept.CGROUPS)


class ResultMemory(mmap.mmap):
    """Memory of one result: only the array that `empty` returned refers to it."""


class _Pool:
    """Memory that nothing uses. No lock is needed: each step leaves it as it should be."""

    def __init__(self) -> None:
        self._kept: deque[ResultMemory] = deque(maxlen=MOST_KEPT)
        # What looks after an array until it dies; it then takes itself out.
        self._living: dict[int, weakref.ref[Any]] = {}

    def take(self, size_bytes: int) -> ResultMemory:
        """Return memory of at least so many bytes; nothing else uses it.

        Raises
        ------
        OSError
            If there is not so much.
        """
        kept.register(self)  # again after a fork
        kept.in_use(size_bytes)
        for _ in range(len(self._kept)):
            try:
                found = [self._kept.popleft()]
            except IndexError:  # another thread has taken it
                break
            if sys.getrefcount(found[0]) > OWN_REFERENCES:
                continue  # somebody has taken it from an array's `base`
            if size_bytes <= len(found[0]) <= SPARE * size_bytes:
                return found[0]
            self._kept.append(found[0])
        return _new(size_bytes)

    def watch(self, array: npt.NDArray[Any], memory: ResultMemory) -> None:
        """Keep the memory once the array and all its views are gone."""
        free, living, key = self._kept, self._living, id(memory)

        def keep(_: object) -> None:
            living.pop(key, None)
            if not kept.is_idle():
                free.append(memory)  # the deque drops the oldest

        living[key] = weakref.ref(array, keep)

    def kept_bytes(self) -> int:
        """Return how much nothing uses."""
        return sum(map(len, tuple(self._kept)))

    def give_back(self) -> None:
        """Give back what nothing uses."""
        self._kept.clear()


_pool = _Pool()


def empty(shape: tuple[int, ...], order: Literal["C", "F"]) -> npt.NDArray[np.float32]:
    """Return a new, uninitialised float32 array: ``numpy.empty``, if it is not large."""
    size_bytes = FLOAT_BYTES * math.prod(shape)
    if not is_kept(math.prod(shape)):
        return np.empty(shape, np.float32, order)
    try:
        memory = _pool.take(size_bytes)
    except OSError:
        _pool.give_back()
        return np.empty(shape, np.float32, order)
    array = np.ndarray(shape, np.float32, memory, order=order)
    _pool.watch(array, memory)
    return array


def is_kept(elements: int) -> bool:
    """Tell whether the memory of results of so many elements is kept."""
    return LEAST_BYTES <= FLOAT_BYTES * elements <= _most_bytes()


@functools.cache
def _most_bytes() -> int:
    """Return the bytes of the largest memory that is kept."""
    return _host_bytes() // MOST_SHARE


def _host_bytes() -> int:
    """Return the memory that this process may use, as far as the system tells."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        found = UNKNOWN_BYTES
    for name in LIMITS:  # a container's
        with contextlib.suppress(OSError, ValueError):
            found = min(found, int(Path(name).read_text("ascii")))
    return max(found, 0)


def _new(size_bytes: int) -> ResultMemory:
    if os.name == "nt":
        return ResultMemory(-1, size_bytes)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # after a fork, parent and child have their own
    memory = ResultMemory(-1, size_bytes, flags=flags)
    with contextlib.suppress(AttributeError, OSError):  # not on every system
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
