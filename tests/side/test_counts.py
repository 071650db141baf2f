"""Tests of the counts of products."""

from __future__ import annotations

import threading

import pytest

from clgemm.side.counts import DEVICE, DTYPE, SMALL, UNKNOWN, Counts, Row


def test_calls_are_added_by_function_and_reason():
    """Calls and times are sums by function and reason, the longest first, untimed calls last."""
    counts = Counts()
    counts.add("dot", SMALL, 1.0)
    counts.add("dot", DEVICE, 0.5, size_bytes=100)
    counts.add("dot", DEVICE, 1.0, 2, size_bytes=10)
    counts.add("matmul", SMALL, 0.25)
    count = counts.counter("inner", DTYPE)
    count.add(), count.add()
    counts.counter("matmul", DTYPE)
    assert counts.rows() == [
        Row("dot", DEVICE, 3, 1.5),
        Row("dot", SMALL, 1, 1.0),
        Row("matmul", SMALL, 1, 0.25),
        Row("inner", DTYPE, 2, None),
    ]
    assert counts.moved() == [110, 0, 0, 0]


def test_further_calls_are_added():
    """Timed calls are added to the timed ones of their function and reason, others to the rest."""
    counts = Counts()
    counts.add("dot", DEVICE, 1.0)
    counts.counter("dot", SMALL).add()
    more = [("dot", DEVICE, 2, 0.25), ("dot", SMALL, 3, 0.0), ("inner", UNKNOWN, 4, 1.0)]
    assert counts.rows(more) == [
        Row("inner", UNKNOWN, 4, 4.0),
        Row("dot", DEVICE, 3, 1.5),
        Row("dot", SMALL, 4, None),
    ]


def test_all_counts_begin_anew():
    """A reset sets all counts to zero."""
    counts = Counts()
    counts.add("dot", DEVICE, 1.0, size_bytes=100)
    counts.add_moved(0, 1, 2, 3)
    assert counts.moved() == [100, 1, 2, 3]
    counts.counter("dot", SMALL).add()
    counts.reset()
    assert counts.rows() == []
    assert counts.moved() == [0, 0, 0, 0]
    counts.counter("dot", SMALL).add()
    assert counts.rows() == [Row("dot", SMALL, 1, None)]


def test_a_timed_call_that_fails_is_counted():
    """A timed function returns what the original returns, and counts what raises, too."""
    counts = Counts()
    call = counts.timed("dot", DTYPE, lambda x, *, y: x / y)
    assert call(6, y=2) == 3
    with pytest.raises(ZeroDivisionError):
        call(1, y=0)
    assert [row[:3] for row in counts.rows()] == [("dot", DTYPE, 2)]


def test_no_call_is_lost_among_threads():
    """Calls of many threads are all counted."""
    counts = Counts()
    quick = counts.counter("dot", SMALL)

    def work():
        for _ in range(2000):
            quick.add()
            counts.add("dot", DEVICE, 0.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row.calls for row in counts.rows()] == [8000, 8000]


def test_a_count_may_be_interrupted_by_another():
    """A signal's handler may count a product while the same thread counts another one."""
    counts = Counts()
    with counts._lock:
        counts.add("dot", DEVICE, 1.0)
    assert [row.calls for row in counts.rows()] == [1]
