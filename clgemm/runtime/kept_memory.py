"""Memory that products leave for the next ones, and that goes back when none comes.

New memory comes page by page, and a device's with a call to its driver, so the memory of large
results, scratch memory and pinned memory are kept. A thread gives all of it back after a few
seconds without a product, and at once where the system is short of memory. NumPy and the C library
keep the memory of smaller results themselves.
"""

from __future__ import annotations

import contextlib
import functools
import math
import mmap
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import WeakSet

import numpy as np

from clgemm.core.problem import FLOAT_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

IDLE_SECONDS = 5.0  # without a product that takes such memory
LOOK_SECONDS = 1.0  # between two looks
LEAST_WATCHED_BYTES = 2**22  # what is smaller is not worth a thread
# A container's limit and what it uses: in version 2 of cgroups, and in version 1.
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
# Of a result: glibc keeps less itself, the largest value of M_MMAP_THRESHOLD.
LEAST_BYTES = 2**25
MOST_KEPT = 2  # pieces of memory that nothing uses
MOST_SHARE = 32  # a piece is at most the host's memory divided by this
UNKNOWN_BYTES = 2**33  # the host's memory, where the system does not tell
SPARE = 1.25  # a piece may be larger than what is asked for by this factor
OWN_REFERENCES = 2  # the list's to its element, and the argument of `getrefcount`


class Holder(Protocol):
    """Something that keeps memory."""

    def kept_bytes(self) -> int:
        """Return how much it keeps that nothing uses."""

    def give_back(self) -> None:
        """Give that back."""


_holders: WeakSet[Holder] = WeakSet()
_lock = threading.RLock()
_last_use = 0.0
_thread: threading.Thread | None = None


def register(holder: Holder) -> None:
    """Count what a holder keeps; it is not kept alive."""
    with _lock:
        _holders.add(holder)


def kept_bytes() -> int:
    """Return the bytes that are kept for the next products."""
    return sum(holder.kept_bytes() for holder in _all())


def release() -> None:
    """Give back the memory that is kept for the next products.

    That are the memory of large results that are gone, scratch memory on devices, and pinned
    memory. It goes by itself after five seconds without a large product, and where the system or
    the container is short of memory. Arrays of `resident` stay.

    Examples
    --------
    >>> import clgemm
    >>> clgemm.release()
    """
    for holder in _all():
        holder.give_back()


def in_use(size_bytes: int) -> None:
    """Take note that a product takes memory which is kept after it."""
    global _last_use, _thread
    if size_bytes < LEAST_WATCHED_BYTES:
        return
    _last_use = time.monotonic()
    with _lock:
        if _thread is not None and _thread.is_alive():
            return
        thread = threading.Thread(target=_look_after, name="clgemm-kept", daemon=True)
        with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter ends
            thread.start()
            _thread = thread


def is_idle() -> bool:
    """Return whether no product has come for a while: what becomes free is not kept then."""
    return time.monotonic() - _last_use >= IDLE_SECONDS


def _all() -> list[Holder]:
    with _lock:
        return list(_holders)


def _look_after() -> None:
    """Give back what is kept once no product has come for a while; then end."""
    global _thread
    ends = False
    while not ends:
        time.sleep(LOOK_SECONDS)
        with _lock:
            ends = is_idle()
            if ends:
                _thread = None  # a product that comes from here on starts another
        if ends or kept_bytes() > _free_bytes():
            release()


def _free_bytes() -> int:
    """Return what the system or the container has left, as far as it tells."""
    return min(_free_parts(), default=2**62)


def _free_parts() -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/meminfo").read_text("ascii")
        yield int(text.split("MemAvailable:")[1].split()[0]) * 1024
    for most, used in CGROUPS:
        with contextlib.suppress(OSError, ValueError):
            yield int(Path(most).read_text("ascii")) - int(Path(used).read_text("ascii"))


def _forget() -> None:
    """In a forked child, which has no thread and must not touch OpenCL's memory."""
    global _lock, _thread
    _lock, _thread = threading.RLock(), None
    _holders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class ResultMemory(mmap.mmap):
    """Memory of one result: only the array that `empty_result` returned refers to it."""


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
        register(self)  # again after a fork
        in_use(size_bytes)
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
            if not is_idle():
                free.append(memory)  # the deque drops the oldest

        living[key] = weakref.ref(array, keep)

    def kept_bytes(self) -> int:
        """Return how much nothing uses."""
        return sum(map(len, tuple(self._kept)))

    def give_back(self) -> None:
        """Give back what nothing uses."""
        self._kept.clear()


_pool = _Pool()


def empty_result(
    shape: tuple[int, ...], order: Literal["C", "F"], dtype: npt.DTypeLike = np.float32
) -> npt.NDArray[Any]:
    """Return a new, uninitialised array: ``numpy.empty``, but for large ones of float32."""
    if dtype != np.float32:
        return np.empty(shape, dtype, order)
    size_bytes = FLOAT_BYTES * math.prod(shape)
    if not LEAST_BYTES <= size_bytes <= _most_bytes():
        return np.empty(shape, np.float32, order)
    try:
        memory = _pool.take(size_bytes)
    except OSError:
        _pool.give_back()
        return np.empty(shape, np.float32, order)
    array = np.ndarray(shape, np.float32, memory, order=order)
    _pool.watch(array, memory)
    return array


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
    for name, _ in CGROUPS:  # a container's
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
