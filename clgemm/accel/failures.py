"""Exceptions amid a product: whose they are, and how they are told."""

from __future__ import annotations

import functools
import logging
import signal
import sys
from types import CodeType, TracebackType
from typing import Any

__all__ = ["is_near_recursion_limit", "is_of_the_program", "tell"]

log = logging.getLogger("clgemm.accel")

# Frames that a product on a device may need.
ROOM = 150
# Whose exceptions our own calls raise: an exception of another class comes from outside.
CALLED = {"builtins", "clgemm", "numpy", "pyopencl", "pytools", *sys.stdlib_module_names}


def is_of_the_program(error: Exception) -> bool:
    """Tell whether an exception amid a product is meant for the program: it is none of our faults.

    Such as what the handler of a signal raises, and what a debugger or another thread makes this
    one raise.
    """
    if type(error).__module__.partition(".")[0] not in CALLED:
        return True
    return _is_of_a_handler(error)


def is_near_recursion_limit() -> bool:
    """Tell whether the stack is so deep that a product on a device would not fit on it."""
    try:
        sys._getframe(max(sys.getrecursionlimit() - ROOM, 1))
    except ValueError:  # there is no such frame
        return False
    return True


def tell(level: int, message: str, error: BaseException | None = None) -> None:
    """Log a message, and the error's traceback if there is one. A failing log does no harm."""
    try:
        log.log(level, "%s", message, exc_info=error)
    except Exception as raised:  # a handler of the program's may raise anything
        if _is_of_a_handler(raised):
            raise


def _is_of_a_handler(error: Exception) -> bool:
    """Tell whether a signal's handler raised the exception: its frame is in the traceback."""
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """Return the code that a handler runs; None if it is not Python's."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    for found in (handler, getattr(handler, "__func__", None), getattr(handler, "__call__", None)):  # noqa: B004
        code = getattr(getattr(found, "__func__", found), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
