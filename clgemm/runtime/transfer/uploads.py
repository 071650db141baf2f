"""What goes up to the device: pieces of the operands, through chunks or from where they lie."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, cast

import pyopencl as cl

from clgemm.core.transfer import FLOAT_BYTES
from clgemm.runtime.operands import HostArray
from clgemm.runtime.transfer.page_locks import PageLock, PageLocks
from clgemm.runtime.transfer.pieces import Filling, Piece, is_over, is_refused, shaped
from clgemm.runtime.transfer.staging import Chunk, Copies, Staging

__all__ = ["Lane", "Uploads"]


class Lane(NamedTuple):
    """What both directions of one call share.

    Attributes
    ----------
    lock : threading.RLock
        Held while commands are enqueued.
    transfers : list of pyopencl.Event
        A transfer's event waits for it when it dies, and so has to live as long as the call.
    """

    staging: Staging
    copies: Copies
    locks: PageLocks
    lock: threading.RLock
    transfers: list[cl.Event]


class Uploads:
    """The transfers to the device, in order.

    Attributes
    ----------
    to_fill : deque of (int, Piece)
        What has not begun, by the number of the tile that needs it. Pieces of the result are
        page-locked in between.
    to_prefault : deque of (int, array)
        Memory of results to get pages for meanwhile, by the number of the tile that writes it.
    result_locks : deque of Future
        Of the result's regions, in the order of its pieces.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.to_fill: deque[tuple[int, Piece]] = deque()
        self.to_prefault: deque[tuple[int, HostArray]] = deque()
        self._prefaulting: deque[tuple[int, Future[None]]] = deque()
        self.result_locks: deque[Future[PageLock | None]] = deque()
        self._filling: deque[Filling] = deque()
        # Chunks, and what must be over before they change.
        self._chunks: deque[tuple[Chunk, cl.Event | None]] = deque()

    def take(self, chunks: list[Chunk]) -> None:
        """Take the chunks to fill."""
        self._chunks.extend((chunk, None) for chunk in chunks)

    def needs(self, tile: int) -> bool:
        """Tell whether the oldest piece that is being filled belongs to a tile."""
        return bool(self._filling) and self._filling[0].tile == tile

    def fill(self, wait: Callable[[cl.Event], None]) -> None:
        """Have what goes up next brought to pinned memory; at least one piece if nothing else is.

        Regions of the result are page-locked in between.

        Parameters
        ----------
        wait : callable
            Waits for an event. The call's own method: to keep it would keep the call's memory.
        """
        while self.to_fill:
            tile, piece = self.to_fill[0]
            lock = self._locked(piece, wait) if piece.in_place else None
            if piece.in_place and lock is None:
                return
            if lock is None or (not piece.is_result and is_refused(lock)):
                if not self._chunks or (self._filling and not is_over(self._chunks[0][1])):
                    return
                chunk, last = self._chunks.popleft()
                if last is not None:
                    wait(last)
                self._filling.append(self._begun(tile, piece, chunk))
            else:
                self._filling.append(Filling(tile, piece, None, lock))
            self.to_fill.popleft()
            if self.to_prefault:
                self._prefault(-(-len(self.to_prefault) // (1 + len(self.to_fill))))

    def _begun(self, tile: int, piece: Piece, chunk: Chunk) -> Filling:
        """Begin to fill a chunk.

        If all that uses the slot's present contents is enqueued, the thread that fills the chunk
        also enqueues the transfer: on some systems that takes a tenth of a millisecond.
        """
        sent: list[cl.Event] | None = None
        then = None
        if not any(user < tile for user in piece.slot.tiles):
            sent = []
            before = list(piece.slot.users)
            then = functools.partial(self._send_to, sent, piece, chunk, before)
        filled = self._lane.copies.start(shaped(chunk, piece), piece.host, then)
        return Filling(tile, piece, chunk, filled, sent)

    def _send_to(
        self, sent: list[cl.Event], piece: Piece, chunk: Chunk, before: list[cl.Event]
    ) -> None:
        sent.append(self._enqueued(piece, chunk, before))

    def _enqueued(self, piece: Piece, chunk: Chunk, before: list[cl.Event] | None) -> cl.Event:
        """Enqueue the transfer of a chunk, by whichever thread, and return its event."""
        with self._lane.lock:
            event = cl.enqueue_copy(
                self._lane.staging.up,
                piece.slot.buffer,
                chunk[: piece.size],
                dst_offset=FLOAT_BYTES * piece.first,
                is_blocking=False,
                wait_for=before,
            )
            self._lane.transfers.append(event)
            self._lane.staging.up.flush()
        return event

    def _prefault(self, count: int) -> None:
        """Begin to get pages for results."""
        by_populating = self._lane.staging.config.prefault == "populate"
        for _ in range(count):
            tile, memory = self.to_prefault.popleft()
            task = self._lane.copies.prefault(memory, by_populating)
            self._prefaulting.append((tile, task))

    def end_prefault(self, tile: int) -> None:
        """Return when nothing writes to the memory of a tile's result but the result."""
        while self.to_prefault and self.to_prefault[0][0] <= tile:
            self.to_prefault.popleft()
        while self._prefaulting and self._prefaulting[0][0] <= tile:
            self._lane.copies.finish(self._prefaulting.popleft()[1])

    def _locked(
        self, piece: Piece, wait: Callable[[cl.Event], None]
    ) -> Future[PageLock | None] | None:
        """Begin to lock a piece; None if that has to wait for transfers in `_filling`."""
        is_at_one = any(each.chunk is None for each in self._filling)
        if is_at_one and not self._lane.locks.config.in_thread:
            return None
        while (lock := self._lane.locks.start(piece.host, piece.is_result)) is None:
            if self._filling:
                return None
            if not self._lane.locks.release_oldest(wait):
                return self._lane.locks.without()  # other calls hold as much as may be
        return lock

    def send(self) -> None:
        """Enqueue the transfer of the oldest piece in pinned memory, unless a thread has."""
        _, piece, chunk, filled, sent = self._filling.popleft()
        slot, first = piece.slot, piece.first
        if chunk is not None:
            self._lane.copies.finish(cast("Future[None]", filled))
        elif piece.is_result:
            self.result_locks.append(cast("Future[PageLock | None]", filled))
            return
        if sent:
            (event,) = sent
        elif chunk is not None:
            # The other pieces of a block come after its first one.
            event = self._enqueued(piece, chunk, slot.users if first == 0 else None)
        else:
            event = self._sent_in_place(piece, cast("Future[PageLock | None]", filled))
        if first == 0:
            slot.ready, slot.users = [], []
        slot.ready.append(event)
        if chunk is not None:
            self._chunks.append((chunk, event))

    def _sent_in_place(self, piece: Piece, lock: Future[PageLock | None]) -> cl.Event:
        """Enqueue the transfer of a page-locked piece, and return its event."""
        slot, first = piece.slot, piece.first
        before = slot.users if first == 0 else None
        offset_bytes, queue = FLOAT_BYTES * first, self._lane.staging.up
        with self._lane.lock:
            event = self._lane.locks.send(
                queue, lock, piece.host, slot.buffer, offset_bytes, before
            )
            self._lane.transfers.append(event)
            queue.flush()
        return event
