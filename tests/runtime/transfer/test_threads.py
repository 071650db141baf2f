"""Tests of the threads that copy."""

from __future__ import annotations

import threading
import weakref
from queue import SimpleQueue

from clgemm.runtime.transfer import threads
from clgemm.runtime.transfer.threads import copying_threads


def done_by(work, count=1):
    """Return what so many threads do at once."""
    together, results = threading.Barrier(count), SimpleQueue()

    def note(value):
        together.wait(60)
        results.put(value)

    for value in range(count):
        work.put((note, value))
    return sorted(results.get(timeout=60) for _ in range(count))


def test_so_many_threads_work_at_once():
    """All calls with as many threads share them."""
    work = copying_threads(3)
    assert copying_threads(3) is work
    assert copying_threads(2) is not work
    assert done_by(work, 3) == [0, 1, 2]


def test_threads_are_made_anew_in_another_process(monkeypatch):
    """A fork takes the caller's thread only."""
    work = copying_threads(1)
    monkeypatch.setattr(threads.os, "getpid", lambda: -1)
    monkeypatch.setattr(threads, "_work", dict(threads._work))
    assert copying_threads(1) is not work
    assert done_by(copying_threads(1)) == [0]


def test_without_threads_there_is_none(monkeypatch):
    """As when the interpreter ends, or when the system gives no more; fewer serve as well."""
    monkeypatch.setattr(threads, "_work", {})
    with monkeypatch.context() as patch:
        patch.setattr(threads.sys, "is_finalizing", lambda: True)
        assert copying_threads(2) is None
    start, started = threading.Thread.start, []

    def refuse(thread):
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    allowed = 0
    assert copying_threads(2) is None
    allowed = 1
    assert done_by(copying_threads(2)) == [0]


def test_threads_keep_nothing():
    """Neither what they did nor for whom."""

    class Thing:
        pass

    thing, work, done = Thing(), copying_threads(1), threading.Event()
    kept = weakref.ref(thing)
    work.put((lambda _: None, thing))
    del thing
    work.put((lambda _: done.set(), None))
    assert done.wait(60)
    assert kept() is None
