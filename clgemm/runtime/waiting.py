"""Waiting for OpenCL commands while Python's signal handlers run.

An OpenCL runtime waits in C, where no handler runs. Ctrl-C would be answered after the product.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pyopencl as cl

from clgemm.runtime.operands import HostArray

__all__ = ["answers_signals", "finish", "wait"]

# After an interruption: for a queue's commands to end before the program goes on while they run.
PATIENCE_SECONDS = 0.05


def answers_signals() -> bool:
    """Tell whether this is the thread that runs the handlers of signals."""
    return threading.current_thread() is threading.main_thread()


class _Waiter(threading.Thread):
    """Waits in the main thread's place, and keeps alive what commands read and write meanwhile.

    Not a daemon: a process does not end under commands that use its memory.
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
        """Return once it is over; raise what went wrong."""
        self.over.wait()
        if self._error is not None:
            raise self._error


def wait(event: cl.Event, memory: object) -> None:
    """Wait for a command; a handler that raises ends the wait, but not the command.

    Takes a tenth of a millisecond, so it is for long commands.

    Parameters
    ----------
    memory : object
        Kept alive until the command is over.
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
    """Wait for a queue's commands after a failure: in the main thread, for a moment at most.

    Commands that take longer run on; what they read and write is kept alive. Where it cannot be,
    since host arrays borrow memory from an unknown owner, this waits to the end. So it does on a
    GPU, whose commands are short: NVIDIA's driver crashes if one thread waits while another
    allocates memory.

    Parameters
    ----------
    lock : threading.RLock
        Held while commands are enqueued.
    arrays : tuple of array
        Host arrays that the commands read and write.
    memory : object
        What else is kept alive.
    to_the_end : bool, optional
        Whether to wait however long the commands take.

    Returns
    -------
    bool
        Whether the commands are over.
    """
    with lock:
        # Mesa 22.3 finishes a queue without those commands that have been flushed.
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
    """Tell whether a host array's memory lives as long as the array."""
    base: object = array
    # NumPy's as_strided puts an object in between that has a base, too.
    while base is not None and (isinstance(base, np.ndarray) or hasattr(base, "base")):
        base = base.base
    if base is None:
        return True
    try:
        memoryview(base)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True
