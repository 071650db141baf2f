"""The copies of one call between host arrays and pinned memory, by threads or by the caller.

Threads take what is to be copied by themselves, wait for the transfers it has to follow, and tell
the caller what they have copied. They enqueue nothing: threads that wait for each other to enqueue
a transfer take longer than the transfers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import pyopencl as cl

from clgemm.runtime.transfer.pieces import Piece, is_over, shaped, wait_until_over

if TYPE_CHECKING:
    from clgemm.runtime.transfer.staging import Chunk, Staging

__all__ = ["Crew", "Load", "Store"]

LOOKS_SECONDS = 0.0005  # between two looks at a command that may take long
SIGNALS_SECONDS = 0.1  # Windows answers signals between two waits only


class Load(NamedTuple):
    """A piece of an operand that is copied to a chunk.

    Attributes
    ----------
    tile : int
        The first tile that needs it.
    before : pyopencl.Event or None
        The chunk's last transfer, which has to be over.
    """

    tile: int
    piece: Piece
    chunk: Chunk
    before: cl.Event | None


class Store(NamedTuple):
    """A piece of the result, which is in a chunk once its transfer is over."""

    piece: Piece
    chunk: Chunk
    event: cl.Event


class Crew:
    """Those who copy for one call. The methods without underscore are the caller's.

    Parameters
    ----------
    is_slow : bool
        Whether commands may take so long that waits for them end when the call is abandoned.
    """

    def __init__(self, staging: Staging, is_slow: bool) -> None:
        self._staging, self._is_slow = staging, is_slow
        self._loads: SimpleQueue[Load | None] = SimpleQueue()
        self._stores: SimpleQueue[Store | None] = SimpleQueue()
        self._done: SimpleQueue[Load | Store | BaseException] = SimpleQueue()
        self._store_turn = Lock()  # to wait for the next result
        self._tasks: list[Future[None]] = []
        self._is_abandoned = False

    def start(self, loaders: int, storers: int) -> None:
        """Let so many threads copy. Where no thread can be had, the caller copies."""
        threads, guarded = self._staging.threads(), self._guarded
        try:
            self._tasks.append(threads.submit(guarded, self._store_all))
        except RuntimeError:  # as at the interpreter's end
            return
        others = [self._load_all] * loaders + [self._store_all] * (storers - 1)
        self._tasks += [threads.submit(guarded, work) for work in others]

    def load(self, load: Load) -> None:
        """Have a piece of an operand copied to its chunk."""
        self._loads.put(load)

    def store(self, store: Store) -> None:
        """Have a piece of the result copied to where it belongs once it has arrived."""
        self._stores.put(store)

    def next(self) -> Load | Store:
        """Return what has been copied next.

        Raises
        ------
        Exception
            What a copy or the wait for a command raised.
        """
        while True:
            if not self._tasks:
                self._copy_one()
            try:
                done = self._done.get(timeout=SIGNALS_SECONDS)
            except Empty:
                continue
            if isinstance(done, BaseException):
                raise done
            return done

    def end_loads(self) -> None:
        """Let all threads work on results: there are no more loads."""
        self._loads.put(None)

    def end(self) -> None:
        """Let all threads go: all copies are made."""
        self._loads.put(None)
        self._stores.put(None)

    def abandon(self) -> None:
        """Return when nothing is being copied and nothing will be."""
        self._is_abandoned = True
        self._loads.put(None)
        self._stores.put(None)
        wait(self._tasks)

    def _copy_one(self) -> None:
        load = None if self._loads.empty() else self._loads.get()
        if load is not None:
            self._wait(load.before)
            self._load(load)
            return
        store = self._stores.get_nowait()
        assert store is not None
        self._wait(store.event)
        self._store(store)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._done.put(error)

    def _load_all(self) -> None:
        while (load := self._loads.get()) is not None:
            self._wait(load.before)
            self._load(load)
        self._loads.put(None)  # for the next thread
        self._store_all()

    def _store_all(self) -> None:
        while True:
            with self._store_turn:
                if (store := self._stores.get()) is None:
                    self._stores.put(None)  # for the next thread
                    return
                self._wait(store.event)
            if self._is_abandoned:
                return
            self._store(store)

    def _load(self, load: Load) -> None:
        if self._is_abandoned:
            return
        self._staging.copy(shaped(load.chunk, load.piece), load.piece.host)
        self._done.put(load)

    def _store(self, store: Store) -> None:
        self._staging.copy(store.piece.host, shaped(store.chunk, store.piece))
        self._done.put(store)

    def _wait(self, event: cl.Event | None) -> None:
        """Wait for a command, unless the call is abandoned; raise its error if it failed."""
        if event is None:
            return
        while self._is_slow and not is_over(event):
            if self._is_abandoned:
                return
            time.sleep(LOOKS_SECONDS)
        wait_until_over(event)
