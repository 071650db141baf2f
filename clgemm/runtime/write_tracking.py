"""Which pages of memory have been written to. Linux tells it, and no memory is read for it.

Since version 6.7, Linux can write-protect pages of a process, note the first write to each, and let
it through: that of any thread, of a system call, or of a debugger. The page map tells which pages
are protected still. See pagemap.rst (PAGEMAP_SCAN) and userfaultfd.rst (UFFD_FEATURE_WP_ASYNC) in
Linux's Documentation/admin-guide/mm.

A device that was given memory before, and writes to it later, is not noted.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import platform
import struct
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

log = logging.getLogger(__name__)

LEAST_BYTES = 2**20  # less is read as fast
PAGE = mmap.PAGESIZE
MOST_RANGES = 1024  # of protected pages; what lies behind them counts as written to
CALL_NUMBERS = {"x86_64": 323, "aarch64": 282}  # of userfaultfd
USER_MODE_ONLY = 1  # so that no privilege is needed
# The codes of <linux/userfaultfd.h> and <linux/fs.h>.
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_UNREGISTER = 0xC018AA3F, 0xC020AA00, 0x8010AA01
UFFDIO_WRITEPROTECT, PAGEMAP_SCAN = 0xC018AA06, 0xC0606610
API_VERSION, WP_ASYNC = 0xAA, 1 << 15
REGISTER_WP, PROTECT = 2, 1
IS_WPALLOWED, IS_WRITTEN, IS_PRESENT, IS_SWAPPED = 1, 2, 8, 16
SCAN_ARGUMENTS = struct.Struct("=12Q")


class Span(NamedTuple):
    """Addresses, from the first to the one behind the last."""

    start: int
    stop: int

    def pages(self) -> Span:
        """Return the pages that any of it lies in."""
        return Span(self.start // PAGE * PAGE, -(-self.stop // PAGE) * PAGE)

    def without(self, others: Iterable[Span]) -> list[Span]:
        """Return what lies in none of the others."""
        left, at = [], self.start
        for start, stop in sorted(others):
            if start >= self.stop:
                break
            if start > at:
                left.append(Span(at, start))
            at = max(at, stop)
        return left + [Span(at, self.stop)] * (at < self.stop)


class _Kernel:
    """What Linux offers this process.

    Raises
    ------
    OSError
        If it does not.
    """

    def __init__(self) -> None:
        from fcntl import ioctl  # Windows has none

        self._ioctl, self._pagemap = ioctl, -1
        flags = os.O_CLOEXEC | os.O_NONBLOCK | USER_MODE_ONLY
        library = ctypes.CDLL(None, use_errno=True)
        self._faults: int = library.syscall(CALL_NUMBERS[platform.machine()], flags)
        if self._faults < 0:
            raise OSError(ctypes.get_errno(), "no userfaultfd")
        try:
            self._ask(UFFDIO_API, API_VERSION, WP_ASYNC, 0)
            self._pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.close()
            raise

    def _ask(self, code: int, *words: int) -> None:
        self._ioctl(self._faults, code, bytearray(struct.pack(f"={len(words)}Q", *words)))

    def protect(self, pages: Span) -> None:
        """Note from now on which pages are written to; OSError if that is refused."""
        size_bytes = pages.stop - pages.start
        self._ask(UFFDIO_REGISTER, pages.start, size_bytes, REGISTER_WP, 0)
        self._ask(UFFDIO_WRITEPROTECT, pages.start, size_bytes, PROTECT)

    def release(self, pages: Span) -> None:
        """Note it no longer."""
        with contextlib.suppress(OSError, ValueError):  # unmapped meanwhile, or closed
            self._ask(UFFDIO_UNREGISTER, pages.start, pages.stop - pages.start)

    def written(self, pages: Span) -> list[Span]:
        """Return the pages that are not known to be as they were."""
        # Only what is protected is asked for: pages that were given back, mapped anew or moved are
        # not, whether or not a kernel calls them written.
        found = np.empty((MOST_RANGES, 3), np.uint64)
        scan = SCAN_ARGUMENTS.pack(
            *(SCAN_ARGUMENTS.size, 0, *pages, 0, found.ctypes.data, MOST_RANGES, 0),
            *(IS_WRITTEN, IS_WPALLOWED | IS_WRITTEN, IS_PRESENT | IS_SWAPPED, IS_WPALLOWED),
        )
        try:
            count = self._ioctl(self._pagemap, PAGEMAP_SCAN, bytearray(scan))
        except (OSError, ValueError):  # ValueError if it is closed
            count = 0
        return pages.without(Span(*each) for each in found[:count, :2].tolist())

    def close(self) -> None:
        """Give the descriptors back, which ends all protection by this process."""
        descriptors = self._faults, self._pagemap
        self._faults = self._pagemap = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


def _is_filtered() -> bool:
    """Return whether system calls are filtered: a filter may end the process for an unusual one."""
    lines = Path("/proc/self/status").read_text(errors="replace").splitlines()
    return next((line.split()[1] for line in lines if line.startswith("Seccomp:")), "0") != "0"


def _is_private(pages: Span) -> bool:
    """Return whether memory belongs to no file, and to this process alone."""
    at = pages.start
    with Path("/proc/self/maps").open("rb") as maps:
        for line in maps:
            addresses, _, _, _, inode = line.split(maxsplit=5)[:5]
            start, stop = (int(address, 16) for address in addresses.split(b"-"))
            if stop <= at:
                continue
            if start > at or inode != b"0":  # memory that processes share has a number, too
                return False
            at = stop
            if at >= pages.stop:
                return True
    return False


def _is_right(kernel: _Kernel) -> bool:
    """Try it: return whether exactly those pages are found that were written to."""
    memory: Any = mmap.mmap(-1, 6 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(memory, np.uint8).reshape(6, PAGE)
    array[[0, 1, 2, 4, 5]] = 1  # the page between has no memory yet
    whole = Span(array.ctypes.data, array.ctypes.data + array.nbytes)
    kernel.protect(whole)
    array[1, 7] = 2
    zeros = os.open("/dev/zero", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.preadv(zeros, [memoryview(array[2])[8:9]], 0)
    finally:
        os.close(zeros)
    memory.madvise(mmap.MADV_DONTNEED, 4 * PAGE, PAGE)
    is_read = not array[3].any() and array[5].all()
    first, last = whole.start + PAGE, whole.start + 4 * PAGE
    written = [Span(first, first + 2 * PAGE), Span(last, last + PAGE)]
    is_right = bool(is_read) and kernel.written(whole) == written
    kernel.release(whole)
    return is_right and kernel.written(whole) == [whole]


def _opened() -> _Kernel | None:
    """Return what Linux offers; None if it does not, or does not do what it says."""
    if sys.platform != "linux" or platform.machine() not in CALL_NUMBERS or sys.maxsize < 2**32:
        return None
    try:
        if _is_filtered():
            log.debug("writes to memory are not tracked: system calls are filtered")
            return None
        kernel = _Kernel()
    except OSError as error:
        log.debug("writes to memory are not tracked: %s", error)
        return None
    with contextlib.suppress(OSError):
        if _is_right(kernel):
            return kernel
    log.debug("writes to memory are not tracked: the system's answers are wrong")
    kernel.close()
    return None


class Tracking:
    """Tells what has been written to in some memory since `track`."""

    def __init__(self, kernel: _Kernel, memory: Span) -> None:
        self._kernel, self._memory = kernel, memory
        key = object()
        self._end = weakref.finalize(self, _ends, key)
        self._end.atexit = False
        _live[key] = memory.pages()

    def written(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return which bytes may have been written to: those of the same page, too.

        Parameters
        ----------
        first, last : int
            The bytes that are asked about: the first, and the one behind the last.

        Returns
        -------
        list of (int, int)
            Likewise, in ascending order. Empty if nothing was written; everything if that is
            unknown, as in a forked process and after `end`.
        """
        begin = self._memory.start
        asked = Span(begin + first, begin + last)
        pages = self._kernel.written(asked.pages())
        if not self._end.alive:  # what was found may be of another time
            return [(first, last)]
        return [
            (max(start - begin, first), min(stop - begin, last))
            for start, stop in pages
            if start < asked.stop and stop > asked.start
        ]

    def end(self) -> None:
        """End it; a second time, and without this when the object dies, it does nothing."""
        self._end()


# Not reentrant. A finalizer that finds it taken leaves its work to who has it. A signal handler
# that interrupts who has it does without.
_lock = threading.Lock()
LONGEST_WAIT_S = 5.0
# What is tracked. A page is protected when the first tracking of it begins, and until the last one
# ends: once written to, it counts as written to for all.
_live: dict[object, Span] = {}
_over: deque[object] = deque()  # to be removed
_found: list[_Kernel | None] = []  # once it was looked for


def track(memory: npt.NDArray[Any]) -> Tracking | None:
    """Begin to note what is written to memory; None if that cannot be done for this memory.

    Parameters
    ----------
    memory : array, contiguous
        It must live as long as the tracking.
    """
    start = int(memory.__array_interface__["data"][0])
    if memory.nbytes < LEAST_BYTES:
        return None
    lock = _lock
    if not lock.acquire(timeout=LONGEST_WAIT_S):
        return None
    try:
        _remove()
        return _begun(Span(start, start + memory.nbytes))
    finally:
        lock.release()
        _remove_if_free()


def _begun(memory: Span) -> Tracking | None:
    if not _found:
        _found.append(_opened())
    kernel = _found[0]
    if kernel is None:
        return None
    new = memory.pages().without(_live.values())
    tracking = Tracking(kernel, memory)
    try:
        if not _is_private(memory.pages()):
            raise OSError("it belongs to a file, or to several processes")
        for pages in new:
            kernel.protect(pages)
    except OSError as error:
        log.debug("writes to this memory are not tracked: %s", error)
        tracking.end()
        return None
    return tracking


def _ends(key: object) -> None:
    _over.append(key)
    _remove_if_free()


def _remove_if_free() -> None:
    while _over and (lock := _lock).acquire(blocking=False):
        try:
            _remove()
        finally:
            lock.release()


def _remove() -> None:
    while _over:
        pages = _live.pop(_over[0], None)
        for each in pages.without(_live.values()) if pages and _found else ():
            if (kernel := _found[0]) is not None:
                kernel.release(each)
        _over.popleft()


def _after_fork() -> None:
    """Forget what concerns the parent process, whose memory these descriptors are about."""
    global _lock
    _lock = threading.Lock()
    for kernel in _found:
        if kernel is not None:
            kernel.close()
    _found.clear()
    _live.clear()
    _over.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
