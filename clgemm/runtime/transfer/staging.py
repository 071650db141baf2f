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
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from clgemm.core.nesting import NestedCallError
from clgemm.core.transfer import FLOAT_BYTES, TransferConfig
from clgemm.hardware.device import Device
from clgemm.runtime.operands import HostArray
from clgemm.runtime.transfer.page_locks import PageLocks
from clgemm.runtime.transfer.prefault import prefault

__all__ = ["Chunk", "Copies", "Staging", "staging"]

log = logging.getLogger(__name__)

Chunk = npt.NDArray[np.float32]

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

    def copies(self, threaded: bool) -> Copies:
        """Return the copies of one call."""
        return Copies(self, threaded)

    def prefault(self, memory: HostArray, by_populating: bool) -> None:
        """Give pages to memory that is overwritten later; as `prefault.prefault`."""
        prefault(memory, by_populating)

    def page_locks(self, lock: threading.RLock) -> PageLocks:
        """Return what one call locks of its arrays; `lock` is held while commands are enqueued."""
        return PageLocks(self.up.context, self.config.locking, lock)

    def _made(self) -> int:
        """Return how many chunks there are."""
        return len(self._chunks)

    def threads(self) -> ThreadPoolExecutor:
        """Return the threads that copy, made when first needed.

        Devices share them: host memory is no faster with more.
        """
        key = os.getpid(), self.config.threads  # threads do not fork
        with _lock:
            if key not in _threads:
                _threads[key] = ThreadPoolExecutor(self.config.threads, "clgemm-copy")
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


class Copies:
    """The copies of one call: made by threads, and by the caller while it waits for one.

    Parameters
    ----------
    threaded : bool
        Without, all are made by the caller when it waits.
    """

    def __init__(self, staging: Staging, threaded: bool) -> None:
        self._threads = staging.threads() if threaded else None
        self._staging = staging
        self._helps = staging.config.caller_copies or not threaded
        self._started: deque[tuple[Future[None], Callable[..., None], tuple[Any, ...]]] = deque()
        self._left: list[Future[None]] = []  # to threads that had begun

    def start(
        self, target: Chunk, source: Chunk, then: Callable[[], None] | None = None
    ) -> Future[None]:
        """Have an array copied to another of its shape, and something done after it."""
        if then is None:
            return self._start(self._staging.copy, target, source)
        return self._start(self._copy_and, then, target, source)

    def _copy_and(self, then: Callable[[], None], target: Chunk, source: Chunk) -> None:
        self._staging.copy(target, source)
        then()

    def prefault(self, memory: HostArray, by_populating: bool) -> Future[None]:
        """Have pages given to memory that is overwritten later."""
        return self._start(self._staging.prefault, memory, by_populating)

    def finish(self, task: Future[None]) -> None:
        """Return when a task is over; until then do those that nobody has begun."""
        while self._helps and self._started and not task.done():
            self._do_or_leave()
        if not task.cancelled():  # by us, who did it
            task.result()

    def finish_all(self) -> None:
        """Return when all are over."""
        while self._started:
            self._do_or_leave()
        for task in self._left:
            task.result()

    def abandon(self) -> None:
        """Return when none is being done and none will be."""
        self._left += (task for task, _, _ in self._started if not task.cancel())
        self._started.clear()
        wait(self._left)

    def _start(self, function: Callable[..., None], *arguments: Any) -> Future[None]:
        threads = self._threads
        task = threads.submit(function, *arguments) if threads else Future[None]()
        self._started.append((task, function, arguments))
        return task

    def _do_or_leave(self) -> None:
        task, function, arguments = self._started.popleft()
        if task.cancel():
            function(*arguments)
        else:
            self._left.append(task)


_all: weakref.WeakKeyDictionary[Device, Staging] = weakref.WeakKeyDictionary()
_lock = threading.RLock()
# The threads that copy, by process and number.
_threads: dict[tuple[int, int], ThreadPoolExecutor] = {}


def staging(device: Device, config: TransferConfig) -> Staging:
    """Return a device's staging, made at the first request."""
    with _lock:
        if device not in _all:
            _all.setdefault(device, Staging(device, config))
        return _all[device]
