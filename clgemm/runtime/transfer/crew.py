"""The copies of one call between host arrays and pinned memory, by threads or by the caller.

The caller hands out what can be copied at once. The threads enqueue nothing and wait for no
command. After a copy, a thread's core has the driver in none of its caches, and the same call takes
it seven times as long as the caller.
"""

from __future__ import annotations

import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from clgemm.runtime.operands import HostArray
from clgemm.runtime.transfer.pieces import Piece, shaped

if TYPE_CHECKING:
    from clgemm.runtime.transfer.staging import Chunk, Staging

__all__ = ["SIGNALS_SECONDS", "Copy", "Copying", "Crew"]

LOOKS_SECONDS = 0.0002  # between two looks whether copies have ended
# The longest that a caller waits for copies: Windows answers signals between two waits only.
SIGNALS_SECONDS = 0.1


class Copying(Protocol):
    """What a crew needs to know of a copy."""

    @property
    def target(self) -> HostArray:
        """The array that is written to."""

    @property
    def source(self) -> HostArray:
        """The array that is read, of the same shape."""


C = TypeVar("C", bound=Copying)


class Copy(NamedTuple):
    """One copy between a chunk and a piece of a host array.

    Attributes
    ----------
    tile : int or None
        The first tile that needs the piece of an operand; None for a piece of the result.
    """

    target: HostArray
    source: HostArray
    piece: Piece
    chunk: Chunk
    tile: int | None

    @classmethod
    def to_chunk(cls, piece: Piece, chunk: Chunk, tile: int) -> Copy:
        """Return the copy of a piece of an operand to a chunk."""
        return cls(shaped(chunk, piece), piece.host, piece, chunk, tile)

    @classmethod
    def from_chunk(cls, piece: Piece, chunk: Chunk) -> Copy:
        """Return the copy of a piece of the result from a chunk."""
        return cls(piece.host, shaped(chunk, piece), piece, chunk, None)


class Crew(Generic[C]):
    """Those who copy for one call.

    Attributes
    ----------
    under_way : int
        Copies that have been handed out and not been returned.

    Parameters
    ----------
    is_threaded : bool
        Whether the staging's threads copy; otherwise the caller does.
    most : int, optional
        The most threads that copy.
    """

    def __init__(self, staging: Staging, is_threaded: bool, most: int | None = None) -> None:
        self.under_way = 0
        self._array_copy = staging.copy
        self._threads = staging.threads(most) if is_threaded else None
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
            self._array_copy(copy.target, copy.source)
            self._done.put(copy)
        except BaseException as error:
            self._done.put(error)
