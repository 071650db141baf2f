"""Pinned host memory for transfers, and the threads that copy to and from it.

From ordinary memory, the driver copies with one thread to its own pinned pages.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from clgemm.core.nesting import NestedCallError
from clgemm.core.transfer import FLOAT_BYTES, TransferConfig
from clgemm.hardware.device import Device

__all__ = ["Chunk", "Staging", "staging"]

log = logging.getLogger(__name__)

Chunk = npt.NDArray[np.float32]

CALLS = 8  # that have threads at a time
RECHECK_SECONDS = 1.0  # for chunks that an exception has lost: nobody tells of those


class Staging:
    """Pinned chunks of host memory, queues that copy from and to them, and threads beside those.

    Attributes
    ----------
    config : TransferConfig
    up, down : pyopencl.CommandQueue
        In-order queues, whose transfers run beside each other and beside another queue's kernels.

    Parameters
    ----------
    profiles : bool, optional
        Whether the events of both queues tell when their transfers ran.
    """

    def __init__(self, device: Device, config: TransferConfig, profiles: bool = False) -> None:
        self.config = config
        profiling = cl.command_queue_properties.PROFILING_ENABLE if profiles else 0
        properties = cast("cl.command_queue_properties", profiling)
        self.up, self.down = (
            cl.CommandQueue(device.context, device.cl_device, properties) for _ in ("up", "down")
        )
        self._free: list[Chunk] = []
        # All that live, so that one which an exception has lost does not count.
        self._chunks: weakref.WeakValueDictionary[int, Chunk] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()
        self._returned = threading.Condition()

    @contextlib.contextmanager
    def lent(
        self, count: int, lock: threading.RLock, is_nested: bool = False
    ) -> Iterator[list[Chunk]]:
        """Lend chunks of ``config.chunk_bytes``; waits while other calls hold too many.

        What is taken out of the list that is lent does not come back.

        Parameters
        ----------
        count : int
            At most ``config.pool_chunks``.
        lock : threading.RLock
            Held while commands are enqueued.
        is_nested : bool, optional
            Whether this thread holds chunks already: it does not wait for more.

        Raises
        ------
        NestedCallError
            If it would have to.
        """
        chunks: list[Chunk] = []
        try:
            with self._returned:
                while len(self._free) + self.config.pool_chunks - self._made() < count:
                    if is_nested:
                        raise NestedCallError
                    self._returned.wait(RECHECK_SECONDS)
                while self._free and len(chunks) < count:
                    chunks.append(self._free.pop())
                with lock:
                    while len(chunks) < count:
                        chunks.append(self._new_chunk())
                        self._chunks[next(self._numbers)] = chunks[-1]
            yield chunks
        finally:
            with self._returned:
                while chunks:
                    self._free.append(chunks.pop())
                self._returned.notify_all()

    def copy(self, target: Chunk, source: Chunk) -> None:
        """Copy an array to another of its shape."""
        np.copyto(target, source)

    def _made(self) -> int:
        """Return how many chunks there are."""
        return len(self._chunks)

    @contextlib.contextmanager
    def threads_lent(self, asked: bool) -> Iterator[bool]:
        """Tell whether a call gets threads: if it asks, and not too many others have some.

        Calls that run beside so many others have threads of their own, those that made them.
        """
        calls = self._shared().calls
        if not asked or not calls.acquire(blocking=False):
            yield False
            return
        try:
            yield True
        finally:
            calls.release()

    def threads(self) -> ThreadPoolExecutor:
        """Return the threads that copy, as many as `CALLS` calls take."""
        return self._shared().threads

    def _shared(self) -> _Threads:
        """Return what all devices of this process share, made when first needed."""
        key = os.getpid(), self.config.threads + self.config.storers  # threads do not fork
        with _lock:
            if key not in _threads:
                _threads[key] = _Threads(key[1])
            return _threads[key]

    def _new_chunk(self) -> Chunk:
        size_bytes = self.config.chunk_bytes
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        access = cast("cl.map_flags", cl.map_flags.READ | cl.map_flags.WRITE)
        shape = (size_bytes // FLOAT_BYTES,)
        try:
            buffer = cl.Buffer(self.up.context, flags, size_bytes)
            # Mapped for as long as the array lives; kernels never see this buffer.
            mapped: Any = cl.enqueue_map_buffer(
                self.up, buffer, access, 0, shape, np.dtype(np.float32)
            )
        except cl.Error as error:
            log.warning("no pinned memory, transfers take longer: %s", error)
            return np.empty(shape, np.float32)
        chunk: Chunk = mapped[0]
        return chunk


class _Threads:
    """Threads that copy, and how many more calls may have some."""

    def __init__(self, of_a_call: int) -> None:
        self.threads = ThreadPoolExecutor(
            CALLS * (of_a_call + max(1, of_a_call // 4)), "clgemm-copy"
        )
        self.calls = threading.BoundedSemaphore(CALLS)


_all: weakref.WeakKeyDictionary[Device, Staging] = weakref.WeakKeyDictionary()
_lock = threading.RLock()
# The threads that copy, by process and number of a call's threads.
_threads: dict[tuple[int, int], _Threads] = {}


def staging(device: Device, config: TransferConfig) -> Staging:
    """Return a device's staging, made at the first request."""
    with _lock:
        if device not in _all:
            _all.setdefault(device, Staging(device, config))
        return _all[device]
