"""The progress of long products: a callback that the program gives for a block of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TypeAlias

Callback: TypeAlias = Callable[[int, int], object]

# How long a product takes before its progress is told, and how often it is told then.
AFTER_SECONDS, EVERY_SECONDS = 2.0, 0.1

_callback: ContextVar[Callback | None] = ContextVar("clgemm_progress", default=None)


class progress(contextlib.ContextDecorator):
    """Tell a callback how far products of host arrays are that take longer than two seconds.

    It holds for the current thread or task, in a ``with`` block or a function. Blocks may be
    nested: the innermost one's callback is called.

    Parameters
    ----------
    callback : callable or None
        Called as ``callback(done, total)``, in multiply-adds of the product at hand, by the thread
        that asked for the product. It is called at most ten times a second, and at last with
        ``done == total``. If it raises, the product stops, and the exception comes out of the
        call. None for no callback.

    Raises
    ------
    TypeError
        If `callback` cannot be called.

    Notes
    -----
    A product that stops this way leaves its result undefined: some tiles of an ``out`` or ``c`` are
    done, others are not. Products of device arrays are not waited for, so nothing is told of them;
    nor is it of a product that the host multiplies.

    Examples
    --------
    >>> with clgemm.progress(lambda done, total: print(f"{done / total:.0%}")):
    ...     c = clgemm.matmul(a, b)
    """

    def __init__(self, callback: Callback | None) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"callback={callback!r} cannot be called")
        self._callback = callback
        self._tokens: list[Token[Callback | None]] = []

    def _recreate_cm(self) -> progress:
        return progress(self._callback)  # each call of a decorated function restores for itself

    def __enter__(self) -> None:
        self._tokens.append(_callback.set(self._callback))

    def __exit__(self, *exception: object) -> None:
        _callback.reset(self._tokens.pop())


class Meter:
    """How far one product is.

    Parameters
    ----------
    callback : callable or None
        None if nobody wants to know.
    total : int
        Multiply-adds of the product.
    """

    def __init__(self, callback: Callback | None, total: int) -> None:
        self._callback, self._total = callback, total
        self._done = 0
        self._next = time.monotonic() + AFTER_SECONDS
        self._told = -1

    def advance(self, work: int) -> None:
        """Note that so many more multiply-adds are done."""
        self.reach(self._done + work)

    def reach(self, done: int) -> None:
        """Note that so many are done in all, and call back if it is time."""
        self._done = done
        if self._callback is not None and time.monotonic() >= self._next:
            self._tell(done)

    def end(self) -> None:
        """Note that the product is complete."""
        if self._callback is None:
            return
        if 0 <= self._told < self._total or time.monotonic() >= self._next:
            self._tell(self._total)

    def _tell(self, done: int) -> None:
        if done == self._told or self._callback is None:
            return
        self._told = done
        token = _callback.set(None)  # products of the callback's own are not told of
        try:
            self._callback(done, self._total)
        finally:
            _callback.reset(token)
        self._next = time.monotonic() + EVERY_SECONDS


SILENT = Meter(None, 0)


def begun(total: int) -> Meter:
    """Return the meter of a product that begins."""
    callback = _callback.get()
    return SILENT if callback is None else Meter(callback, total)
