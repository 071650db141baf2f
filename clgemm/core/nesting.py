"""Products asked for within another: by a signal handler or a finalizer, in the same thread."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

__all__ = ["NestedCallError", "alone", "is_within"]

P = ParamSpec("P")
R = TypeVar("R")


class NestedCallError(RuntimeError):
    """A product was asked for within another one, where the device cannot be used."""

    def __init__(self) -> None:
        super().__init__(
            "a matrix product was asked for inside another one, by a signal handler or a "
            "finalizer, while the outer product is still being prepared: the device cannot be used "
            "there"
        )


def alone(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse calls of such functions from within one: it holds locks and files that they need.

    The stack says what is running, so that nothing has to be put back after an exception. Of
    functions that take long: a look at the stack takes microseconds.
    """

    @functools.wraps(function)
    def entered(*arguments: P.args, **keywords: P.kwargs) -> R:
        if is_within(entered):
            raise NestedCallError
        return function(*arguments, **keywords)

    return entered


def is_within(function: Callable[..., Any]) -> bool:
    """Tell whether this thread is in a call of a Python function, the caller's own left out.

    Functions that share their code, such as those that `alone` returns, count as one.
    """
    code = getattr(function, "__code__", None)
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
