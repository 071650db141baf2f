"""Tests of what threads run, of products within products, and of locks in forked children."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pyopencl.array as cl_array
import pytest
from whole_numbers import whole

import clgemm
from clgemm.core.threads import ForkableLock, NestedCallError, current_frames, non_reentrant
from clgemm.runtime import programs


class Stop(BaseException):
    """The exception of the tests' signal handlers."""


def test_a_product_while_programs_are_built(device, monkeypatch):
    """In a nested call NumPy makes host products; sgemm and device arrays raise an error."""
    a, b = whole(70, 60), whole(60, 50)
    fresh = clgemm.Device(device.cl_device)
    placed = [cl_array.to_device(fresh.queue, x) for x in (a, b)]
    build, errors, results = programs.build, [], []

    def building(*arguments):
        results.extend((clgemm.matmul(a, b), clgemm.dot(a, b)))
        results.extend((clgemm.tensordot(a, b, 1), clgemm.inner(a, b.T)))
        for call in (lambda: clgemm.sgemm(1.0, a, b), lambda: clgemm.matmul(*placed)):
            with pytest.raises(RuntimeError, match="while another one is being prepared") as caught:
                call()
            errors.append(caught.type)
        return build(*arguments)

    monkeypatch.setattr(programs, "build", building)
    with clgemm.device(fresh):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert errors
    assert set(errors) == {NestedCallError}
    for result in results:
        np.testing.assert_array_equal(result, a @ b)


def test_a_refusal_outlives_no_call():
    """A non-reentrant function can be called again after an exception inside it."""

    @non_reentrant
    def enter(action):
        return action()

    def interrupt():
        raise Stop

    with pytest.raises(Stop) as kept:  # and with it the frames
        enter(interrupt)
    assert enter(lambda: 1) == 1
    assert kept.type is Stop
    with pytest.raises(NestedCallError):
        enter(lambda: enter(lambda: 1))


def test_each_thread_has_its_innermost_frame():
    """The frames are those of the calling thread and of one that waits."""
    begun, end = threading.Event(), threading.Event()

    def wait_here():
        begun.set()
        end.wait(60)

    thread = threading.Thread(target=wait_here)
    thread.start()
    begun.wait(60)
    found = current_frames()
    names, frame = [], found[thread.ident]
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    end.set()
    thread.join()
    assert "wait_here" in names
    assert found[threading.get_ident()].f_code.co_name == "current_frames"


@pytest.mark.parametrize("is_enabled", [True, False])
def test_no_garbage_collection_starts_meanwhile(is_enabled, monkeypatch):
    """Collections are off while Python looks at the threads, and then as they were before."""
    found = []

    def look():
        found.append(gc.isenabled())
        raise MemoryError

    monkeypatch.setattr(sys, "_current_frames", look)
    was_enabled = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        with pytest.raises(MemoryError):
            current_frames()
        found.append(gc.isenabled())
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert found == [False, is_enabled]


THREADS_BEGIN_MEANWHILE = """
import gc, threading, time
from clgemm.core.threads import current_frames

class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        time.sleep(0.001)  # lets other threads run

def begin_threads():
    while not over.is_set():
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

over = threading.Event()
threads = [threading.Thread(target=begin_threads) for _ in range(2)]
gc.disable()
for thread in threads:
    thread.start()
gc.set_threshold(1, 1000, 1000)
for _ in range(100):
    for _ in range(3):
        Cycle()
    gc.enable()
    current_frames()
    gc.disable()
    gc.collect()
over.set()
for thread in threads:
    thread.join()
"""


def test_threads_may_begin_while_others_are_looked_at():
    """Finalizers that let other threads begin do not make the process hang (Python 3.11)."""
    subprocess.run([sys.executable, "-c", THREADS_BEGIN_MEANWHILE], check=True, timeout=120)


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


INTERRUPTED = """
import signal, threading, time
from clgemm.core.threads import ForkableLock

class Stop(BaseException):
    pass

def stop(*_):
    if time.monotonic() < end:
        raise Stop

lock, stopped, end = ForkableLock(), 0, time.monotonic() + 0.3
signal.signal(signal.SIGALRM, stop)
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4)
        while time.monotonic() < end:
            with lock:
                pass
    except Stop:
        stopped += 1
taker = threading.Thread(target=lock.acquire, daemon=True)
taker.start()
taker.join(10)
assert stopped
assert not taker.is_alive()
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that signals")
def test_a_signal_handlers_exception_does_not_leave_a_lock_taken():
    """Wherever it comes, another thread can take the lock afterwards."""
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
