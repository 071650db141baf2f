"""Tests of a process that ends while daemon threads multiply."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pyopencl as cl
import pytest

from clgemm.hardware.device import find, identity
from clgemm.runtime import process_exit

DAEMONS = """
import sys, threading, time
import numpy as np
import pyopencl.array as cl_array
import clgemm
from clgemm.hardware.device import find

kind, identity, seconds = eval(sys.argv[1])
clgemm.set_device(find(identity))
queue = clgemm.get_device().queue
a = np.ones((40, 40), "f")
begun = threading.Barrier(4)
def forever():
    x = a if kind == "host" else cl_array.to_device(queue, a)
    first = True
    while True:
        clgemm.sgemm(1.0, x, x)
        if first: begun.wait()
        first = False
for _ in range(3): threading.Thread(target=forever, daemon=True).start()
begun.wait()
time.sleep(seconds)
"""


@pytest.mark.parametrize("kind", ["host", "device"])
@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_process_ends_cleanly_while_daemon_threads_multiply(device, kind, seconds):
    """Its exit status is 0 and it prints nothing: Python and C++ do not abort it."""
    arguments = repr((kind, list(identity(device)), seconds))
    done = subprocess.run(
        [sys.executable, "-c", DAEMONS, arguments], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert find(identity(device)).cl_device == device.cl_device


def test_functions_of_the_program_run_before(device):
    """A program's own function at exit may wait for a thread's product."""
    program = """
import atexit, threading
import numpy as np
import clgemm
a = np.ones((40, 40), "f")
go, done = threading.Event(), threading.Event()
def later():
    go.wait()
    clgemm.sgemm(1.0, a, a)
    done.set()
threading.Thread(target=later, daemon=True).start()
def finish():
    go.set()
    print(done.wait(30))
atexit.register(finish)
clgemm.sgemm(1.0, a, a)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


class Space:
    """What enqueues commands, by a queue that may fail."""

    def __init__(self, queue):
        self.queue, self.lock = queue, threading.RLock()


class BrokenQueue:
    """A queue that refuses all commands."""

    def flush(self):
        raise cl.RuntimeError("lost")


@pytest.fixture
def spaces(monkeypatch):
    """Return the queues that are stopped at exit: none but the test's."""
    found = set()
    monkeypatch.setattr(process_exit, "_spaces", found)
    return found


def other_thread():
    """Start a thread that ends when the returned event is set."""
    over = threading.Event()
    threading.Thread(target=over.wait, daemon=True).start()
    return over


def test_without_other_threads_nothing_happens(spaces, monkeypatch):
    """No lock is taken and nothing is waited for."""
    spaces.add(space := Space(None))
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread()])
    monkeypatch.setattr(process_exit, "_places", None)
    process_exit.stop()
    assert space.lock.acquire(blocking=False)


def test_other_threads_find_the_locks_taken(spaces, device):
    """And the main thread can go on with products of its own."""
    spaces.add(space := Space(device.queue))
    over, got = other_thread(), []
    process_exit.stop()
    thread = threading.Thread(target=lambda: got.append(space.lock.acquire(timeout=0.05)))
    thread.start()
    thread.join()
    over.set()
    assert got == [False]
    assert space.lock.acquire(blocking=False)


def test_a_lost_device_and_a_held_lock_do_not_keep_the_process(spaces, monkeypatch):
    """Its end is delayed by EXIT_SECONDS at most."""
    monkeypatch.setattr(process_exit, "EXIT_SECONDS", 0.1)
    monkeypatch.setattr(cl, "enqueue_marker", lambda queue: queue.flush())
    held = Space(None)
    spaces.update((Space(BrokenQueue()), held))
    release = threading.Event()

    def hold():
        with held.lock:
            release.wait()

    threading.Thread(target=hold, daemon=True).start()
    start = time.monotonic()
    process_exit.stop()
    assert time.monotonic() - start < 10
    release.set()
