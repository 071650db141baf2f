"""Copies between arrays in host memory, by threads or by the caller.

The caller hands out what can be copied at once. The threads enqueue nothing and wait for no
command. After a copy, a thread's core has the driver in none of its caches, and the same call takes
it seven times as long as the caller.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from clgemm.core.problem import FLOAT_BYTES
from clgemm.runtime.operands import HostArray
from clgemm.transfer.staging import Staging

LOOKS_SECONDS = 0.0002  # between two looks whether copies have ended
# The longest that a caller waits for copies: Windows answers signals between two waits only.
SIGNALS_SECONDS = 0.1
BLOCK = 256  # rows and columns that `mirror` copies at a time

ArrayCopy: TypeAlias = Callable[[HostArray, HostArray], object]  # to the first, from the second
# What a thread does next: a function, and its argument.
Work: TypeAlias = "SimpleQueue[tuple[Callable[[Any], object], Any]]"

_lock = threading.RLock()
# By process, since threads do not fork, and number of threads.
_work: dict[tuple[int, int], Work] = {}


def copying_threads(count: int) -> Work | None:
    """Return what feeds so many threads, made when first needed; None if there can be none."""
    if sys.is_finalizing():  # daemon threads have stopped
        return None
    key = os.getpid(), count
    with _lock:
        if key not in _work:
            work: Work = SimpleQueue()
            started = 0
            try:
                for number in range(count):
                    name = f"clgemm-copy_{number}"
                    threading.Thread(target=_serve, args=(work,), name=name, daemon=True).start()
                    started += 1
            except RuntimeError:  # no more threads, or the interpreter ends
                if not started:
                    return None
            _work[key] = work
        return _work[key]


def _serve(work: Work) -> None:
    while True:
        _do(*work.get())


def _do(function: Callable[[Any], object], argument: object) -> None:
    """Do one thing; nothing refers to it afterwards."""
    function(argument)


class Copying(Protocol):
    """One copy."""

    def make(self, copy: ArrayCopy) -> None:
        """Make it, by a function that copies to an array from another one."""


C = TypeVar("C", bound=Copying)


class Copier(Generic[C]):
    """Copies for one call, by threads or by the caller.

    Attributes
    ----------
    under_way : int
        Copies that have been handed out and not been returned.

    Parameters
    ----------
    is_threaded : bool
        Whether threads copy; otherwise the caller does.
    most : int, optional
        The most threads that copy, if fewer than the staging's config allows.
    """

    def __init__(self, staging: Staging, is_threaded: bool, most: int | None = None) -> None:
        self.under_way = 0
        self._array_copy = staging.copy
        count = staging.config.threads if most is None else min(staging.config.threads, most)
        self._threads = copying_threads(count) if is_threaded else None
        self._own: deque[C] = deque()  # the caller's
        self._done: SimpleQueue[C | BaseException] = SimpleQueue()
        self._busy: list[C] = []  # one for each copy that a thread is making
        self._is_abandoned = False

    def copy(self, copy: C) -> None:
        """Hand out a copy."""
        self.under_way += 1
        if self._threads is not None:
            self._threads.put((self._make_in_thread, copy))
        else:
            self._own.append(copy)

    def done(self, timeout_seconds: float) -> list[C]:
        """Return what has been copied: at least one copy, unless that takes longer.

        Raises
        ------
        Exception
            What a copy raised.
        """
        if self._own:
            self._make(self._own.popleft())
        found: list[C] = []
        try:
            item = self._done.get(timeout=timeout_seconds)
            while True:
                self.under_way -= 1
                if isinstance(item, BaseException):
                    raise item
                found.append(item)
                item = self._done.get_nowait()
        except Empty:
            return found

    def abandon(self) -> None:
        """Return when nothing is being copied and nothing will be."""
        self._is_abandoned = True
        self._own.clear()
        while self._busy:
            time.sleep(LOOKS_SECONDS)
        self.under_way = 0

    def _make_in_thread(self, copy: C) -> None:
        self._busy.append(copy)  # before it looks: `abandon` sets the mark first
        try:
            if not self._is_abandoned:
                self._make(copy)
        finally:
            self._busy.pop()

    def _make(self, copy: C) -> None:
        try:
            copy.make(self._array_copy)
            self._done.put(copy)
        except BaseException as error:
            self._done.put(error)


class _Block(NamedTuple):
    """The copy of one block."""

    target: HostArray
    source: HostArray

    def make(self, copy: ArrayCopy) -> None:
        """Make it."""
        copy(self.target, self.source)


def mirror(c: HostArray, staging: Staging | None) -> None:
    """Copy the upper triangles of a batch of square matrices to the lower ones.

    Parameters
    ----------
    staging : Staging or None
        Whose threads copy; without, this one does.
    """
    copy_triangle(c, c.swapaxes(-1, -2), True, staging)


def copy_triangle(
    target: HostArray, source: HostArray, is_lower: bool, staging: Staging | None
) -> None:
    """Copy one triangle, diagonal included, of each square matrix of a batch.

    Parameters
    ----------
    source : array
        It may share memory with `target` on the other side of the diagonal.
    staging : Staging or None
        Whose threads copy; without, this one does.
    """
    n = target.shape[-1]
    is_threaded = staging is not None and target.size * FLOAT_BYTES >= staging.config.threaded_bytes
    copier: Copier[_Block] | None = Copier(staging, True) if staging and is_threaded else None
    try:
        for i in range(0, n, BLOCK):
            for j in range(0, i, BLOCK):
                corners = (i, j) if is_lower else (j, i)
                rows, columns = (slice(first, first + BLOCK) for first in corners)
                block = _Block(target[..., rows, columns], source[..., rows, columns])
                if copier is None:
                    np.copyto(*block)
                else:
                    copier.copy(block)
            rows = slice(i, i + BLOCK)
            corner = target[..., rows, rows]
            inside = np.tri(corner.shape[-1], dtype=np.bool_)
            inside = inside if is_lower else inside.T
            np.copyto(corner, source[..., rows, rows].copy(), where=inside)
        while copier is not None and copier.under_way:
            copier.done(SIGNALS_SECONDS)
    except BaseException:
        if copier is not None:
            copier.abandon()
        raise
