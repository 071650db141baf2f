"""Threads: what they run, products that start inside another one, and locks across forks.

A signal handler or a finalizer can start a product inside another one of the same thread.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import weakref
from _thread import RLock
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class RejectedError(RuntimeError):
    """The device does not compute such a product: NumPy does."""


class NestedCallError(RuntimeError):
    """A product starts inside another one, where the device cannot be used."""

    def __init__(self) -> None:
        super().__init__(
            "a signal handler or a finalizer asked for a matrix product while another one is being "
            "prepared in the same thread: the device cannot be used there"
        )


def non_reentrant(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it raises NestedCallError inside any decorated function.

    The outer function holds locks and files that the inner one needs. The check walks the thread's
    call stack, so an exception leaves no state to restore. The walk takes microseconds: decorate
    only functions that take much longer.
    """

    @functools.wraps(function)
    def entered(*arguments: P.args, **keywords: P.kwargs) -> R:
        if is_within(entered):
            raise NestedCallError
        return function(*arguments, **keywords)

    return entered


def is_within(function: Callable[..., Any]) -> bool:
    """Return whether a function is on this thread's call stack, above the caller.

    Functions with the same code count as one, such as all that `non_reentrant` returns.
    """
    code = getattr(function, "__code__", None)
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def current_frames() -> dict[int, FrameType]:
    """Return for each thread its innermost frame, as `sys._current_frames` does.

    Python 3.11 makes frame objects while it holds a lock of the interpreter. A garbage collection
    there may wait for a thread that waits for this lock, and the process hangs
    (https://github.com/python/cpython/issues/106883). So no collection starts meanwhile.
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()


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
