"""Detection of products that start inside another product of the same thread.

A signal handler or a finalizer can start one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

__all__ = ["NestedCallError", "RejectedError", "is_within", "non_reentrant"]

P = ParamSpec("P")
R = TypeVar("R")


class RejectedError(RuntimeError):
    """The device does not make such a product: NumPy does."""


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
    """Tell whether a function is on this thread's call stack, above the caller.

    Functions with the same code count as one, such as all that `non_reentrant` returns.
    """
    code = getattr(function, "__code__", None)
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
