"""Tests of what each thread runs."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from clgemm.core.frames import current_frames


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
from clgemm.core.frames import current_frames

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
