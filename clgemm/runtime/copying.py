"""The copy of host memory on one device, and how it is made."""

from __future__ import annotations

import logging
import threading

import pyopencl as cl

from clgemm.hardware.device import Device
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.digests import Digests, digests
from clgemm.runtime.operands import ITEM_BYTES, HostArray
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import workspace
from clgemm.runtime.write_tracking import Tracking, track

__all__ = ["DeviceCopy"]

log = logging.getLogger(__name__)

PIECE = 2**22  # elements of one transfer: other threads may enqueue between two


class DeviceCopy:
    """A copy of host memory on a device.

    Attributes
    ----------
    memory : float32 array, shape (elements,)
        What is copied.
    buffer : pyopencl.Buffer or None
        The copy, once it is made. A product that uses it refers to it until it ends.
    digests : uint64 array or None
        Of the memory just before it was copied; None if they were not asked for.
    tracking : Tracking or None
        Since before the digests were taken; None if they were not, where nothing tells writes, and
        once most of the memory was written to.
    """

    def __init__(self, memory: HostArray) -> None:
        self.memory = memory
        self.buffer: cl.Buffer | None = None
        self.digests: Digests | None = None
        self.tracking: Tracking | None = None
        self._lock = threading.RLock()
        self._is_begun = self._has_failed = False

    @property
    def size_bytes(self) -> int:
        """The device memory that it takes, or will take."""
        return 0 if self._has_failed else self.memory.nbytes

    @property
    def is_made(self) -> bool:
        """Whether the copy is complete."""
        return self.buffer is not None

    def made(self, device: Device, with_digests: bool, waits: bool) -> bool:
        """Make the copy unless another thread has, and tell whether there is one.

        Parameters
        ----------
        waits : bool
            Whether to make it, or to wait until another thread has.
        """
        if self.is_made or not waits:
            return self.is_made
        with self._lock:
            # A copy that has failed, or that a signal handler or a finalizer asks for while it is
            # being made, is not tried again.
            if self._is_begun:
                return self.is_made
            self._is_begun = True
            try:
                self._make(device, with_digests)
            except (cl.Error, MemoryError) as error:
                self._has_failed, self.tracking = True, None
                log.warning("an array is sent with each product, since no copy stays: %s", error)
            except BaseException:
                self._is_begun = False
                raise
            return self.is_made

    def _make(self, device: Device, with_digests: bool) -> None:
        config = transfer_config(device)
        assert config is not None
        memory, lock = self.memory, workspace(device.queue).lock
        with lock:
            buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, memory.nbytes)
            queue = staging(device, config).up
        # Before it is copied: what changes it in between is found out later.
        if with_digests:
            self.tracking = track(memory)
            self.digests = digests(memory)
        for first in range(0, memory.size, PIECE):
            with lock:
                event = cl.enqueue_copy(
                    *(queue, buffer, memory[first : first + PIECE]),
                    dst_offset=ITEM_BYTES * first,
                    is_blocking=False,
                )
                queue.flush()
            event.wait()
        self.buffer = buffer
