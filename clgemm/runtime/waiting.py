"""Waiting for OpenCL commands while Python's signal handlers can run.

An OpenCL runtime waits in C, where no handler runs: Ctrl-C would have no effect until the product
is complete. So another thread waits in the main thread's place.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable

import pyopencl as cl

# What Python raises in place of an exception of a signal handler that comes while one of
# `threading`'s conditions takes its lock again.
UNLOCKED = "release unlocked lock"
_kept: list[object] = []  # memory of commands that a handler's exception left without a waiter


def answers_signals() -> bool:
    """Return whether this is the thread that runs signal handlers."""
    return threading.current_thread() is threading.main_thread()


class _Waiter(threading.Thread):
    """A thread that waits for commands and keeps the memory alive that they read and write.

    It is no daemon where there is memory, so that the process does not end while commands use it.
    """

    def __init__(self, wait: Callable[[], object], memory: object, is_endless: bool) -> None:
        super().__init__(name="clgemm-wait", daemon=is_endless)
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


def wait(event: cl.Event, memory: object, is_endless: bool = False) -> None:
    """Wait for a command. An exception of a signal handler ends the wait, but not the command.

    Use it for long commands, because it starts a thread.

    Parameters
    ----------
    memory : object
        Kept alive until the command is complete.
    is_endless : bool, optional
        Whether the command may never be complete: then the process may end before.
    """
    waiter = _Waiter(event.wait, memory, is_endless)
    try:
        waiter.start()
        waiter.result()
    except BaseException as error:
        is_hidden = isinstance(error, RuntimeError) and UNLOCKED in str(error)
        if waiter.ident is None and (is_hidden or not isinstance(error, RuntimeError)):
            _kept.append(memory)  # the thread may never run
        if is_hidden and error.__context__ is not None:
            raise error.__context__ from None
        raise


def wait_for_all(events: Iterable[cl.Event]) -> None:
    """Wait for a user's events, however long; an exception of a signal handler ends that."""
    for event in events:
        if answers_signals():
            wait(event, None, is_endless=True)
        else:
            event.wait()


def finish(queue: cl.CommandQueue, lock: threading.RLock, memory: object = None) -> None:
    """Wait after a failure until a queue's commands are complete: those of a call are short.

    Parameters
    ----------
    lock : threading.RLock
        The lock under which commands are enqueued.
    memory : object, optional
        What the commands read and write, where others use the queue too: theirs may take long. So
        an exception of a signal handler, a second Ctrl-C mostly, ends the wait; the memory stays.
    """
    with lock:
        # A marker, because Mesa 22.3 does not wait for flushed commands in clFinish.
        marker = cl.enqueue_marker(queue)
        queue.flush()
    if memory is not None and answers_signals():
        with contextlib.suppress(RuntimeError):  # no more threads
            wait(marker, memory)
            return
    marker.wait()
