"""Tests of the lock that a forked process can take."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from clgemm.core.forkable import ForkableLock


def test_a_thread_may_take_it_again():
    """The lock is reentrant, and free for other threads after the last exit."""
    lock, taken = ForkableLock(), threading.Event()

    def take():
        with lock:
            taken.set()

    with lock:
        with lock:
            pass
        other = threading.Thread(target=take)
        other.start()
        assert not taken.wait(0.05)
    other.join(10)
    assert taken.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_it_is_free_in_a_forked_process():
    """A forked process can take the lock although a thread of its parent holds it."""
    lock, held, over = ForkableLock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            over.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        taker = threading.Thread(target=lock.__enter__, daemon=True)
        taker.start()
        taker.join(20)
        os._exit(int(taker.is_alive()))
    over.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_thread_that_forks_may_hold_it():
    """A thread that forks while it holds the lock can release it in both processes."""
    lock, child = ForkableLock(), None
    try:
        with lock:
            child = os.fork()
    finally:
        if child == 0:
            os._exit(int(sys.exc_info()[0] is not None))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that signals")
def test_a_signal_handlers_exception_does_not_leave_it_taken():
    """Wherever it comes, another thread can take the lock afterwards."""

    class Stop(BaseException):
        pass

    def stop(*_):
        raise Stop

    lock, before = ForkableLock(), signal.signal(signal.SIGALRM, stop)
    end, stopped = time.monotonic() + 0.5, 0
    try:
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4)
                while True:
                    with lock:
                        pass
            except Stop:  # noqa: PERF203 - each one is another try
                stopped += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    taker = threading.Thread(target=lock.acquire, daemon=True)
    taker.start()
    taker.join(10)
    assert stopped
    assert not taker.is_alive()
