"""The end of the process, while daemon threads multiply.

Before version 3.14, Python ends a daemon thread that comes back from C++ code while the process
ends, and C++ then aborts the whole process. So at exit, when only daemon threads are left, the main
thread takes the locks under which commands are enqueued, and does not release them. The others stop
there, in Python.
"""

from __future__ import annotations

import contextlib
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING
from weakref import WeakSet

import pyopencl as cl

from clgemm.core.threads import current_frames

if TYPE_CHECKING:
    from clgemm.runtime.workspace import Workspace

EXIT_SECONDS = 5.0  # for a lock, or commands that are still running
STEP_SECONDS = 0.005
STEPS = 200  # at most so many until no thread moves any more

Places = dict[int, tuple[int, int]]


_spaces: WeakSet[Workspace] = WeakSet()


def stop_threads_at_exit(space: Workspace) -> None:
    """Stop all threads that enqueue commands to this queue, when the process ends."""
    _spaces.add(space)


def stop() -> None:
    """Keep the locks of all queues, and wait until no other thread moves.

    `clgemm` calls this at exit, after the functions that the program has registered: they may wait
    for products of other threads.
    """
    if not any(thread is not threading.current_thread() for thread in threading.enumerate()):
        return
    deadline = time.monotonic() + EXIT_SECONDS
    markers = []
    for space in tuple(_spaces):
        if space.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            with contextlib.suppress(cl.Error):  # its device may have failed
                markers.append(cl.enqueue_marker(space.queue))
                space.queue.flush()
    for marker in markers:
        while not _is_over(marker) and time.monotonic() < deadline:
            time.sleep(STEP_SECONDS)
    before: Places | None = None
    for _ in range(STEPS):
        time.sleep(STEP_SECONDS)
        now = _places()
        if now == before:
            return
        before = now


def _is_over(event: cl.Event) -> bool:
    """Return whether an event is complete, or has failed."""
    try:
        return event.command_execution_status <= cl.command_execution_status.COMPLETE
    except cl.Error:
        return True


def _places() -> Places:
    """Return where each other thread is that is in a function of this package."""
    own, package = threading.get_ident(), __name__.partition(".")[0]
    found: Places = {}
    for thread, inner in current_frames().items():
        if thread == own:
            continue
        frame: FrameType | None = inner
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] == package:
                found[thread] = id(inner), inner.f_lasti
                break
            frame = frame.f_back
    return found
