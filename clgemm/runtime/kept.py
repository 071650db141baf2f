"""Memory that products leave for the next ones, and that goes back when none comes.

New memory comes page by page, and a device's with a call to its driver, so results, scratch memory
and pinned memory are kept. A thread gives all of it back after a few seconds without a product, and
at once where the system is short of memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

__all__ = ["Holder", "in_use", "is_idle", "kept_bytes", "register", "release"]

IDLE_SECONDS = 5.0  # without a product that takes such memory
LOOK_SECONDS = 1.0  # between two looks
LEAST_BYTES = 2**22  # what is smaller is not worth a thread
# A container's limit and what it uses: in version 2 of cgroups, and in version 1.
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


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
    if size_bytes < LEAST_BYTES:
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
    """Tell whether no product has come for a while: what becomes free is not kept then."""
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
