"""Host memory that is page-locked where it lies, for as long as a transfer takes.

A buffer with CL_MEM_USE_HOST_PTR locks its pages. pyopencl makes and releases buffers without
letting other threads of Python run meanwhile, so both are called directly where that is possible.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import pyopencl as cl

from clgemm.core.locking import Locking
from clgemm.runtime.operands import HostArray, address_of

__all__ = ["PageLock", "PageLocks", "is_locked", "locked_bytes"]

log = logging.getLogger(__name__)

READ = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
WRITTEN = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR


class _Registry:
    """The memory that this process holds locked. No byte of it is locked twice."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held: dict[object, tuple[int, int]] = {}

    def take(self, start: int, stop: int, most: int) -> object | None:
        """Note a range as locked; return None if it exceeds the limit or overlaps another.

        Returns
        -------
        object or None
            What `give` takes.
        """
        with self._lock:
            if self.size_bytes() + stop - start > most:
                return None
            if self.overlaps(start, stop):
                return None
            token = object()
            self._held[token] = start, stop
            return token

    def overlaps(self, start: int, stop: int) -> bool:
        """Tell whether some of a range is locked."""
        with self._lock:
            return any(start < end and begin < stop for begin, end in self._held.values())

    def give(self, token: object) -> None:
        """Forget a range; a second time changes nothing."""
        with self._lock:
            self._held.pop(token, None)

    def size_bytes(self) -> int:
        """Return the bytes of all ranges."""
        with self._lock:
            return sum(stop - start for start, stop in self._held.values())


_registry = _Registry()


def locked_bytes() -> int:
    """Return the bytes of host arrays that this process holds page-locked for transfers."""
    return _registry.size_bytes()


def is_locked(memory: HostArray) -> bool:
    """Tell whether some of a contiguous array is page-locked for a transfer."""
    start = address_of(memory)
    return _registry.overlaps(start, start + memory.nbytes)


class _Functions(NamedTuple):
    """OpenCL's own functions, which let other threads run."""

    create: Callable[..., int | None]
    release: Callable[[int], int]


@functools.cache
def _functions() -> _Functions | None:
    """Return the functions of the library that pyopencl is linked to; None if they are hidden."""
    try:
        library = ctypes.CDLL(cast("Any", cl)._cl.__file__)
        create, release = library.clCreateBuffer, library.clReleaseMemObject
    except (OSError, AttributeError):
        return None
    create.restype, release.restype = ctypes.c_void_p, ctypes.c_int32
    create.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_int32),
    ]
    release.argtypes = [ctypes.c_void_p]
    return _Functions(create, release)


class PageLock:
    """A contiguous part of a host array, locked until `release`.

    Attributes
    ----------
    memory : float32 array, one dimension
    buffer : pyopencl.Buffer
        Over that memory.
    """

    def __init__(self, context: cl.Context, memory: HostArray, flags: int) -> None:
        self.memory = memory
        self.buffer: cl.Buffer | None
        self._handle = 0
        functions = _functions()
        if functions is None:
            self.buffer = cl.Buffer(context, cast("cl.mem_flags", flags), hostbuf=memory)
            return
        status = ctypes.c_int32()
        handle = functions.create(
            context.int_ptr, flags, memory.nbytes, address_of(memory), ctypes.byref(status)
        )
        if status.value or not handle:
            raise cl.Error(f"clCreateBuffer failed: error {status.value}")
        self._handle = handle
        self.buffer = cast("cl.Buffer", cl.Buffer.from_int_ptr(handle, retain=True))

    def release(self) -> None:
        """Unlock the memory. No command may use it any more; a second time does nothing."""
        self.buffer = None
        handle, self._handle = self._handle, 0
        if handle:
            functions = _functions()
            assert functions is not None
            functions.release(handle)


class _InUse(NamedTuple):
    """A lock that a transfer uses, and what has to be undone before it is released."""

    lock: Future[PageLock | None]
    token: object
    event: cl.Event
    mapped: Any
    queue: cl.CommandQueue


class PageLocks:
    """What one call locks.

    Parameters
    ----------
    context : pyopencl.Context
        Of the device that reads and writes the memory.
    enqueueing : threading.RLock
        Held while commands are enqueued.
    """

    def __init__(self, context: cl.Context, config: Locking, enqueueing: threading.RLock) -> None:
        self.config = config
        self._context, self._enqueueing = context, enqueueing
        self._thread: ThreadPoolExecutor | None = None
        self._held: dict[Future[PageLock | None], object] = {}  # not in use yet
        self._in_use: deque[_InUse] = deque()
        self._works = True  # until the first failure

    def start(self, memory: HostArray, written: bool) -> Future[PageLock | None] | None:
        """Begin to lock a part of an array.

        Returns
        -------
        Future or None
            Its result is None if the memory could not be locked: the transfer then takes it as it
            is. None without a future: as much as may be is locked, or this memory is already.
        """
        if not self._works:
            return self.without()
        start = address_of(memory)
        token = _registry.take(start, start + memory.nbytes, self.config.held_bytes)
        if token is None:
            return None
        flags = int(WRITTEN if written else READ)
        try:
            if self.config.in_thread:
                self._thread = self._thread or ThreadPoolExecutor(1, "clgemm-lock")
                lock = self._thread.submit(self.lock, memory, flags)
            else:
                lock = Future()
                lock.set_result(self.lock(memory, flags))
        except BaseException:
            _registry.give(token)
            raise
        self._held[lock] = token
        return lock

    def without(self) -> Future[PageLock | None]:
        """Return the future of no lock."""
        done: Future[PageLock | None] = Future()
        done.set_result(None)
        return done

    def lock(self, memory: HostArray, flags: int) -> PageLock | None:
        """Lock memory; None if that fails."""
        try:
            return PageLock(self._context, memory, flags)
        except (cl.Error, MemoryError) as error:
            if self._works:
                log.warning("no page-locking, transfers take longer: %s", error)
            self._works = False
            return None

    def unlock(self, lock: PageLock) -> None:
        """Unlock memory."""
        lock.release()

    def send(
        self,
        queue: cl.CommandQueue,
        lock: Future[PageLock | None],
        memory: HostArray,
        buffer: cl.Buffer,
        offset_bytes: int,
        wait_for: Sequence[cl.Event] | None,
    ) -> cl.Event:
        """Enqueue the transfer of locked memory to a device's buffer."""
        locked, mapped, source = lock.result(), None, cast("Any", memory)
        options: dict[str, Any] = {"dst_offset": offset_bytes, "wait_for": wait_for}
        if locked is None or self.config.transfer != "buffer":
            options["is_blocking"] = False
            if locked is not None and self.config.transfer == "map":
                mapped = source = self._mapped(queue, locked, cl.map_flags.READ)[0]
        else:
            source = cast("Any", locked.buffer)
            options |= {"src_offset": 0, "byte_count": memory.nbytes}
        event = cl.enqueue_copy(queue, buffer, source, **options)
        self._used(lock, event, mapped, queue)
        return event

    def receive(
        self,
        queue: cl.CommandQueue,
        lock: Future[PageLock | None],
        memory: HostArray,
        buffer: cl.Buffer,
        offset_bytes: int,
        wait_for: Sequence[cl.Event],
    ) -> cl.Event:
        """Enqueue the transfer of a part of a device's buffer to locked memory."""
        locked, mapped, target = lock.result(), None, cast("Any", memory)
        options: dict[str, Any] = {"src_offset": offset_bytes, "wait_for": wait_for}
        if locked is None or self.config.transfer != "buffer":
            if locked is not None and self.config.transfer == "map":
                mapped = target = self._mapped(queue, locked, cl.map_flags.WRITE)[0]
            event = cl.enqueue_copy(queue, target, buffer, is_blocking=False, **options)
        else:
            options |= {"dst_offset": 0, "byte_count": memory.nbytes}
            cl.enqueue_copy(queue, cast("Any", locked.buffer), buffer, **options)
            # The memory has what the buffer has once it is mapped.
            mapped, event = self._mapped(queue, locked, cl.map_flags.READ)
        self._used(lock, event, mapped, queue)
        return event

    def _mapped(
        self, queue: cl.CommandQueue, locked: PageLock, flags: cl.map_flags
    ) -> tuple[Any, cl.Event]:
        shape, dtype = locked.memory.shape, locked.memory.dtype
        assert locked.buffer is not None
        mapped, event = cl.enqueue_map_buffer(
            queue, locked.buffer, flags, 0, shape, dtype, is_blocking=False
        )
        return mapped, event

    def _used(
        self, lock: Future[PageLock | None], event: cl.Event, mapped: Any, queue: cl.CommandQueue
    ) -> None:
        if lock in self._held:
            self._in_use.append(_InUse(lock, self._held.pop(lock), event, mapped, queue))

    def release_oldest(self, wait: Callable[[cl.Event], None]) -> bool:
        """Release the lock that has been used first, after its transfer; False if there is none."""
        if self._in_use:
            wait(self._in_use[0].event)
            self._release_oldest()
            return True
        return False

    def release_over(self) -> None:
        """Release the locks whose transfers are over, in the order of the transfers."""
        complete = cl.command_execution_status.COMPLETE
        while self._in_use and self._in_use[0].event.command_execution_status <= complete:
            self._release_oldest()

    def close(self) -> None:
        """Release everything, when no command uses it any more."""
        while self._in_use:
            self._release_oldest()
        while self._held:
            lock = next(iter(self._held))
            self._unlocked(lock, self._held[lock])
            del self._held[lock]
        if self._thread is not None:
            self._thread.shutdown()

    def _release_oldest(self) -> None:
        """Release a lock, and then forget it: what an interruption leaves is released again."""
        lock, token, event, mapped, queue = self._in_use[0]
        with self._enqueueing, contextlib.suppress(cl.Error):
            event.wait()  # it is over; so pyopencl's object forgets the memory
            if mapped is not None:
                unmapped = mapped.base.release(queue)
                queue.flush()
                unmapped.wait()
        self._in_use[0] = _InUse(lock, token, event, None, queue)
        del mapped  # which refers to the buffer
        self._unlocked(lock, token)
        self._in_use.popleft()

    def _unlocked(self, lock: Future[PageLock | None], token: object) -> None:
        locked = None if lock.cancel() else lock.result()
        if locked is not None:
            self.unlock(locked)
        _registry.give(token)
