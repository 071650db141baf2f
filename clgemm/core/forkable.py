"""A lock that a forked process can take, whichever thread held it in the parent."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType

__all__ = ["ForkableLock"]


class ForkableLock:
    """A reentrant lock. A forked child has it free unless the forking thread held it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def renew(self) -> None:
        """Replace a lock that another thread held, which does not exist in this process."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()


_all: weakref.WeakSet[ForkableLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
