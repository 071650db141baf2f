"""Waiting for OpenCL commands while Python's signal handlers can run.

An OpenCL runtime waits in C, where no handler runs: Ctrl-C would have no effect until the product
is complete. So another thread waits in the main thread's place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.runtime.operands import HostArray

__all__ = ["answers_signals", "finish", "wait"]

# The longest wait for a queue's commands after an interruption. Then the program goes on.
PATIENCE_SECONDS = 0.05


def answers_signals() -> bool:
    """Tell whether this is the thread that runs signal handlers."""
    return threading.current_thread() is threading.main_thread()


class _Waiter(threading.Thread):
    """A thread that waits for commands and keeps the memory alive that they read and write.

    It is no daemon, so that the process does not end while commands use its memory.
    """

    def __init__(self, wait: Callable[[], object], memory: object) -> None:
        super().__init__(name="clgemm-wait", daemon=False)
        self._wait, self._memory = wait, memory
        self._error: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        try:
            self._wait()
        except BaseException as error:
            self._error = error
        self._memory = None
        self.over.set()

    def result(self) -> None:
        """Wait until the commands are complete; raise the error if there was one."""
        self.over.wait()
        if self._error is not None:
            raise self._error


def wait(event: cl.Event, memory: object) -> None:
    """Wait for a command. An exception of a signal handler ends the wait, but not the command.

    Use it for long commands, because it starts a thread.

    Parameters
    ----------
    memory : object
        Kept alive until the command is complete.
    """
    waiter = _Waiter(event.wait, memory)
    waiter.start()
    waiter.result()


def finish(
    queue: cl.CommandQueue,
    lock: threading.RLock,
    arrays: tuple[HostArray, ...],
    memory: object,
    to_the_end: bool = False,
) -> bool:
    """Wait for a queue's commands after a failure, in the main thread `PATIENCE_SECONDS` at most.

    Commands that take longer continue, and the memory that they use is kept alive. There are two
    exceptions, in which this waits until all commands are complete. One is a host array that
    borrows its memory from an unknown owner, so that it cannot be kept alive. The other is a GPU:
    its commands are short, and NVIDIA's driver crashes if one thread waits while another allocates
    memory.

    Parameters
    ----------
    lock : threading.RLock
        The lock under which commands are enqueued.
    arrays : tuple of array
        Host arrays that the commands read and write.
    memory : object
        Other memory to keep alive.
    to_the_end : bool, optional
        Whether to wait however long the commands take.

    Returns
    -------
    bool
        Whether the commands are complete.
    """
    with lock:
        # A marker, because Mesa 22.3 does not wait for flushed commands in clFinish.
        marker = cl.enqueue_marker(queue)
        queue.flush()
    is_gpu = queue.device.type & cl.device_type.GPU and not queue.device.type & cl.device_type.CPU
    at_once = to_the_end or is_gpu or not answers_signals()
    if at_once or not all(_is_kept(array) for array in arrays):
        marker.wait()
        return True
    waiter = _Waiter(marker.wait, (arrays, memory))
    try:
        waiter.start()
    except RuntimeError:  # no more threads
        marker.wait()
        return True
    return waiter.over.wait(PATIENCE_SECONDS)


def _is_kept(array: object) -> bool:
    """Tell whether a host array keeps its memory alive."""
    base: Any = array
    # A view by NumPy's as_strided has a base that is no array, but has a base of its own.
    while base is not None and (isinstance(base, np.ndarray) or hasattr(base, "base")):
        base = base.base
    if base is None:
        return True
    try:
        memoryview(base)
    except TypeError:
        return False
    return True
