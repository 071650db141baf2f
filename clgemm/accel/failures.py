"""Exceptions during a product: which ones the program must see, and how others are logged."""

from __future__ import annotations

import functools
import logging
import signal
import sys
from types import CodeType, TracebackType
from typing import Any

__all__ = ["belongs_to_program", "is_near_recursion_limit", "log_safely"]

log = logging.getLogger("clgemm.accel")

# The most stack frames that a product on a device needs.
ROOM = 150
# Packages that a product calls: an exception class of another package comes from the program.
CALLED = {"builtins", "clgemm", "numpy", "pyopencl", "pytools", *sys.stdlib_module_names}


def belongs_to_program(error: Exception) -> bool:
    """Tell whether an exception during a product must reach the program.

    Examples are an exception that a signal's handler raises, and one that a debugger or another
    thread raises in this thread.
    """
    if type(error).__module__.partition(".")[0] not in CALLED:
        return True
    return _is_of_a_handler(error)


def is_near_recursion_limit() -> bool:
    """Tell whether the recursion limit is too near for a product on a device."""
    try:
        sys._getframe(max(sys.getrecursionlimit() - ROOM, 1))
    except ValueError:  # the stack is not that deep
        return False
    return True


def log_safely(level: int, message: str, error: BaseException | None = None) -> None:
    """Log a message, with the error's traceback if there is one; ignore a failure to log."""
    try:
        log.log(level, "%s", message, exc_info=error)
    except Exception as raised:  # the program's logging handlers may raise anything
        if _is_of_a_handler(raised):
            raise


def _is_of_a_handler(error: Exception) -> bool:
    """Tell whether a frame of a signal's handler is in the exception's traceback."""
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """Return the code object of a signal's handler, or None if it is not a Python function."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    parts = (getattr(handler, name, None) for name in ("__func__", "__call__"))
    for found in (handler, *parts):
        code = getattr(getattr(found, "__func__", found), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
