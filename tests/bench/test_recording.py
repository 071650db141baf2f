"""Tests of the recording of one product of host arrays."""

from __future__ import annotations

import threading
from itertools import pairwise

from clgemm.bench.recording import Recorder
from clgemm.bench.spans import CALLER


def test_the_callers_spans_do_not_overlap():
    """One inside another interrupts it; another thread's span has its own lane."""
    recorder = Recorder()
    recorder.begin()

    def copy():
        with recorder.span("copy in", 4, 9):
            pass

    with recorder.span("outer"), recorder.span("inner", 8, 5):
        thread = threading.Thread(target=copy, name="other")
        thread.start()
        thread.join()
    line = recorder.end(1, lambda: 0)
    own = line.lane(CALLER)
    assert [s.what for s in own] == ["outer", "inner", "outer"]
    assert all(first.end_ns <= second.start_ns for first, second in pairwise(own))
    assert [(s.lane, s.size_bytes, s.part) for s in line.lane("other")] == [("other", 4, 9)]
    assert line.start_ns <= own[0].start_ns
