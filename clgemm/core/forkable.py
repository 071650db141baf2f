"""A lock that a forked process can take, whichever thread held it in the parent."""

from __future__ import annotations

import os
import weakref
from _thread import RLock
from typing import Any

__all__ = ["ForkableLock"]


class ForkableLock(RLock):  # type: ignore[misc]  # final for type checkers alone
    """A reentrant lock. A forked child has it free unless the forking thread held it.

    Its methods are those of the lock in C: in methods in Python, the exception of a signal handler
    could leave it taken for good.
    """

    def __init__(self) -> None:
        _all.add(self)

    def renew(self) -> None:
        """Free a lock that another thread held, which does not exist in this process."""
        if self.acquire(blocking=False):
            self.release()
        else:
            own: Any = self
            own._at_fork_reinit()  # as the locks of Python's own modules


_all: weakref.WeakSet[ForkableLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
