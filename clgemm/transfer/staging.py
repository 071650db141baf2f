"""Pinned host memory for transfers.

From ordinary memory, the driver copies with one thread to its own pinned pages.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from clgemm.core.problem import FLOAT_BYTES
from clgemm.core.threads import NestedCallError
from clgemm.core.transfer import TransferConfig
from clgemm.hardware.device import Device, default_config, transfer_config
from clgemm.runtime import kept_memory
from clgemm.runtime.operands import HostArray
from clgemm.runtime.waiting import finish
from clgemm.runtime.workspace import Workspace, workspace

log = logging.getLogger(__name__)

Chunk = npt.NDArray[np.float32]

RECHECK_SECONDS = 1.0  # for chunks that an exception has lost: nobody tells of those


class Staging:
    """Pinned chunks of host memory, and the queues for products of host arrays.

    Nobody else uses these queues. NVIDIA's driver crashes if a program copies arrays by a queue
    while another thread sends operands of products by the same one (580.159 on an H100, 2026-11).

    Attributes
    ----------
    config : TransferConfig
    up, down : pyopencl.CommandQueue
        In-order queues, whose transfers run beside each other and beside kernels.
    queue : pyopencl.CommandQueue
        An in-order queue for kernels.
    """

    def __init__(self, device: Device, config: TransferConfig) -> None:
        self.config = config
        self.up, self.down, self.queue = (
            cl.CommandQueue(device.context, device.cl_device) for _ in range(3)
        )
        self._free: list[Chunk] = []
        # All that live, by identity, so that one which an exception has lost does not count.
        self._chunks: weakref.WeakValueDictionary[int, Chunk] = weakref.WeakValueDictionary()
        self._returned = threading.Condition()
        kept_memory.register(self)

    @property
    def space(self) -> Workspace:
        """The workspace of `queue`. It is not kept here, since it refers to the device."""
        return workspace(self.queue)

    # Copies an array to another of its shape.
    copy: Callable[[HostArray, HostArray], None] = staticmethod(np.copyto)

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
                is_collected = False
                while len(self._free) + self.config.pool_chunks - self._made() < count:
                    if is_nested:
                        raise NestedCallError
                    if not self._returned.wait(RECHECK_SECONDS) and not is_collected:
                        gc.collect()  # a cycle may hold what an exception has lost
                        is_collected = True
                while self._free and len(chunks) < count:
                    chunks.append(self._free.pop())
                kept_memory.in_use(count * self.config.chunk_bytes)
                with lock:
                    while len(chunks) < count:
                        chunks.append(self._new_chunk())
                        self._chunks[id(chunks[-1])] = chunks[-1]
            yield chunks
        finally:
            with self._returned:
                while chunks:
                    self._free.append(chunks.pop())
                self._returned.notify_all()

    def kept_bytes(self) -> int:
        """Return the bytes of chunks that no call uses."""
        return len(self._free) * self.config.chunk_bytes

    def give_back(self) -> None:
        """Give back the chunks that no call uses."""
        with self._returned:
            chunks, self._free = self._free, []
            # What still refers to one, such as the frames of an exception that a program keeps,
            # does not use it: it does not count any more.
            for key in map(id, chunks):
                self._chunks.pop(key, None)
            self._returned.notify_all()
        with self.space.lock:  # the driver is called
            chunks.clear()

    def _made(self) -> int:
        """Return how many chunks there are."""
        return len(self._chunks)

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


def abandon(queue: cl.CommandQueue, space: Workspace) -> None:
    """Wait after a failure until a queue's commands use no memory of the call any more."""
    with contextlib.suppress(cl.Error):
        finish(queue, space.lock)


_all: weakref.WeakKeyDictionary[Device, Staging] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def staging(device: Device) -> Staging | None:
    """Return a device's staging, made when first needed; None if it uses host arrays in place."""
    return None if transfer_config(device) is None else any_staging(device)


def any_staging(device: Device) -> Staging:
    """Return a device's staging, also where it uses most host arrays in place."""
    config = transfer_config(device) or default_config(device)
    with _lock:
        if device not in _all:
            _all.setdefault(device, Staging(device, config))
        return _all[device]
