"""One direction of the link between host and device, as one call uses it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

import pyopencl as cl

from clgemm.core.transfer import FLOAT_BYTES
from clgemm.runtime.enqueueing import enqueue_transfer
from clgemm.runtime.transfer.crew import Copy
from clgemm.runtime.transfer.pieces import has_ended
from clgemm.runtime.transfer.staging import Chunk

__all__ = ["Link"]

LOOKS_SECONDS = 0.0005  # between two looks at a command that may take long


class Link:
    """Transfers in one direction, which run one after the other.

    Attributes
    ----------
    free : list of Chunk
        Chunks that nothing uses. The last one was used last, so it may still be in the cache.

    Parameters
    ----------
    lock : threading.RLock
        Held while commands are enqueued.
    is_up : bool
        Whether they go to the device.
    is_slow : bool
        Whether a command may take so long that signals should be answered meanwhile.
    """

    def __init__(
        self, queue: cl.CommandQueue, lock: threading.RLock, is_up: bool, is_slow: bool
    ) -> None:
        self.free: list[Chunk] = []
        self._queue, self._lock, self._is_up, self._is_slow = queue, lock, is_up, is_slow
        self._under_way: deque[tuple[cl.Event, Copy]] = deque()

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def enqueue(self, copy: Copy, before: Sequence[cl.Event]) -> cl.Event:
        """Enqueue the transfer of what is copied before it to a chunk, or after it from one."""
        piece, host = copy.piece, copy.target if self._is_up else copy.source
        with self._lock:
            event = enqueue_transfer(
                *(self._queue, self._is_up, piece.slot.buffer, FLOAT_BYTES * piece.first),
                *(host, before),
            )
        self._under_way.append((event, copy))
        return event

    def flush(self) -> None:
        """Have the device begin what is enqueued."""
        with self._lock:
            self._queue.flush()

    def is_over(self) -> bool:
        """Tell whether the oldest transfer is over; raise its error if it failed."""
        return bool(self._under_way) and has_ended(self._under_way[0][0])

    def take(self) -> Copy:
        """Return the copy that belongs to the oldest transfer, and forget that one."""
        return self._under_way.popleft()[1]

    def wait(self) -> None:
        """Wait for the oldest transfer; raise its error if it failed."""
        event = self._under_way[0][0]
        while self._is_slow and not has_ended(event):
            time.sleep(LOOKS_SECONDS)
        event.wait()
