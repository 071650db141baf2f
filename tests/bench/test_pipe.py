"""Tests of the pipe to a worker process, which may die."""

from __future__ import annotations

import os
import signal
import time

import pytest
from bench_workers import gone, scripted

from clgemm.bench.pipe import Worker, WorkerDiedError, environment


def test_a_killed_worker_is_reported_and_replaced(worker):
    """The error names the signal that killed a worker, and the next request starts another."""
    worker.ask("about")
    killed = worker.process_id
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match=r"clgemm's process died \(signal SIGKILL\)"):
        worker.ask("about")
    assert gone(killed)
    assert worker.ask("about")
    assert worker.process_id != killed


def test_a_dying_workers_last_words_are_kept():
    """The error for a worker that dies has the line in which it names the error."""
    words = "import sys; print('LLVM ERROR: Cannot select', file=sys.stderr); sys.exit(3)"
    with scripted(words) as dying, pytest.raises(WorkerDiedError) as death:
        dying.ask("about")
    assert str(death.value) == ("clgemm's process died (exit status 3): LLVM ERROR: Cannot select")


def test_no_child_is_left():
    """A worker's process ends with its block, also after an interruption in a long call."""
    with Worker("NumPy", ["", "", "0"], environment(1)) as counting:
        counting.ask("about")
        first = counting.process_id
    assert gone(first)
    begin = time.monotonic()
    sleeping = scripted("import time; time.sleep(600)")
    second = sleeping._started().pid
    with pytest.raises(KeyboardInterrupt), sleeping:
        raise KeyboardInterrupt
    assert gone(second)
    assert time.monotonic() - begin < 60  # not the ten minutes
