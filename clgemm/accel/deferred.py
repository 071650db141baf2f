"""Exceptions that hit a loop in mid-call: raised soon after NumPy has returned, never lost.

A loop has no way to fail, and what escapes from a ctypes callback is only printed. It happens when
a signal's handler raises, KeyboardInterrupt above all: handlers run at the first bytecode that the
main thread comes to, and that may be the loop's.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
from collections.abc import Callable
from ctypes import PYFUNCTYPE, c_int, c_void_p
from types import CodeType, FrameType
from typing import Any

__all__ = ["Rescue", "raise_later"]

log = logging.getLogger(__name__)

DELAY_SECONDS = 1e-3  # longer than it takes to leave a loop
_loops: set[CodeType] = set()  # of the functions that run while NumPy waits for a loop
_waiting: set[_Raiser] = set()  # whom CPython's queue refers to by address only
_add_pending_call = PYFUNCTYPE(c_int, c_void_p, c_void_p)(("Py_AddPendingCall", ctypes.pythonapi))
_IS_TRUE = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, c_void_p)


class _Raiser:
    """Raises an exception when it is asked whether it is true, unless a loop would lose it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __bool__(self) -> bool:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code in _loops:
                self.try_later()
                return False
            frame = frame.f_back
        _waiting.discard(self)
        raise self.error

    def try_later(self) -> None:
        # From another thread: CPython 3.13 forgets what a pending call itself makes pending.
        threading.Timer(DELAY_SECONDS, self.enqueue).start()

    def enqueue(self) -> None:
        _waiting.add(self)
        # int PyObject_IsTrue(PyObject *) is what CPython takes for a pending call: the main thread
        # makes it between two bytecodes, and raises what it raises.
        if _add_pending_call(_IS_TRUE, id(self)) != 0:
            _waiting.discard(self)
            log.error("an exception in mid-product is lost", exc_info=self.error)


def raise_later(error: BaseException) -> None:
    """Raise in this thread once the loop that it hit is over.

    A millisecond later; in a tight run of small products, when the program does something else.
    """
    if threading.current_thread() is threading.main_thread():
        _Raiser(error).try_later()
    else:  # where handlers of signals do not run: a debugger's doing
        log.error("an exception in mid-product is lost", exc_info=error)


class Rescue:
    """Finishes the loops that an exception hit before their first statement.

    Parameters
    ----------
    loop : function
        NumPy calls it as a loop: its parameters are args, dimensions, steps and data.
    original : callable
        The loop that finishes the work.
    """

    def __init__(self, loop: Any, original: Callable[[int, int, int, int], None]) -> None:
        self._code, self._original = loop.__code__, original
        _loops.update((self._code, Rescue._rescue.__code__))
        self._before: Callable[[Any], Any] = sys.unraisablehook

    def install(self) -> None:
        """Hear of exceptions that ctypes cannot raise."""
        self._before, sys.unraisablehook = sys.unraisablehook, self._rescue
        self._hook = sys.unraisablehook

    def uninstall(self) -> None:
        """Hear no more; others who hear them through us go on to do so."""
        if sys.unraisablehook is getattr(self, "_hook", None):
            sys.unraisablehook = self._before

    def _rescue(self, unraisable: Any) -> None:
        traceback = unraisable.exc_traceback
        if traceback is None or traceback.tb_frame.f_code is not self._code:
            self._before(unraisable)
            return
        arguments = traceback.tb_frame.f_locals
        self._original(*(arguments[name] for name in ("args", "dimensions", "steps", "data")))
        raise_later(unraisable.exc_value)
