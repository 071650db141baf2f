"""One direction of the links between host and devices, as one call uses them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

import pyopencl as cl

from clgemm.core.problem import FLOAT_BYTES
from clgemm.runtime.enqueueing import enqueue_transfer
from clgemm.runtime.transfer.crew import Copy
from clgemm.runtime.transfer.pieces import has_ended
from clgemm.runtime.transfer.staging import Chunk

__all__ = ["Link"]

LOOKS_SECONDS = 0.0005  # between two looks at a command that may take long


class Link:
    """Transfers in one direction, which run one after the other on each device.

    Attributes
    ----------
    free : list of Chunk
        Chunks that nothing uses. The last one was used last, so it may still be in the cache.

    Parameters
    ----------
    queues, locks : sequence
        Of each share of the call; the lock is held while commands are enqueued.
    is_up : bool
        Whether they go to the device.
    is_slow : bool
        Whether a command may take so long that signals should be answered meanwhile.
    """

    def __init__(
        self,
        queues: Sequence[cl.CommandQueue],
        locks: Sequence[threading.RLock],
        is_up: bool,
        is_slow: bool,
    ) -> None:
        self.free: list[Chunk] = []
        self._queues, self._locks, self._is_up, self._is_slow = queues, locks, is_up, is_slow
        self._unflushed: set[int] = set()
        self._under_way: deque[tuple[list[cl.Event], Copy]] = deque()

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def enqueue(self, copy: Copy, before: Sequence[Sequence[cl.Event]]) -> list[cl.Event]:
        """Enqueue the transfers of what is copied before them to a chunk, or after one from it.

        Parameters
        ----------
        before : sequence of sequence of pyopencl.Event
            For each slot of the piece: what has to be over first.
        """
        piece, host = copy.piece, copy.target if self._is_up else copy.source
        events: list[cl.Event] = []
        self._under_way.append((events, copy))  # what is enqueued is known even if the next fails
        for slot, first in zip(piece.slots, before, strict=True):
            with self._locks[slot.share]:
                queue, offset_bytes = self._queues[slot.share], FLOAT_BYTES * piece.first
                event = enqueue_transfer(queue, self._is_up, slot.buffer, offset_bytes, host, first)
            events.append(event)
            self._unflushed.add(slot.share)
        return events

    def flush(self) -> None:
        """Have the devices begin what is enqueued."""
        while self._unflushed:
            number = self._unflushed.pop()
            with self._locks[number]:
                self._queues[number].flush()

    def is_over(self) -> bool:
        """Tell whether the oldest transfer is over; raise its error if it failed."""
        return bool(self._under_way) and all(map(has_ended, self._under_way[0][0]))

    def take(self) -> Copy:
        """Return the copy that belongs to the oldest transfer, and forget that one."""
        return self._under_way.popleft()[1]

    def wait(self) -> None:
        """Wait for the oldest transfers; raise the error of one that failed."""
        for event in self._under_way[0][0]:
            while self._is_slow and not has_ended(event):
                time.sleep(LOOKS_SECONDS)
            event.wait()
