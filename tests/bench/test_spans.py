"""Tests of the spans of a timeline."""

from __future__ import annotations

from clgemm.bench import spans
from clgemm.bench.spans import CALLER, COMPUTE, DOWN, UP, Span, Timeline, busy_ns, contributors


def test_busy_time_counts_overlapping_spans_once():
    """The union of intervals, whatever their order."""
    made = [Span("x", "", *interval) for interval in ((5, 9), (0, 4), (2, 6), (20, 21), (3, 4))]
    assert busy_ns(made) == 10
    assert busy_ns([]) == 0


def test_the_critical_path_follows_data_and_lanes():
    """A copy, its transfer, the kernel, the result and its copy: each waited for the one before."""
    thread = "clgemm-copy_0"
    line = Timeline(
        (
            Span(thread, "copy in", 0, 10, 100, part=1),
            Span("clgemm-copy_1", "copy in", 0, 4, 100, part=2),
            Span(UP, "", 4, 6, 100, part=2, enqueued_ns=4),
            Span(UP, "", 12, 20, 100, part=1, enqueued_ns=11),
            Span(COMPUTE, "multiply", 21, 50, enqueued_ns=15),
            Span(DOWN, "", 50, 60, 50, part=3, enqueued_ns=16),
            Span(thread, "copy out", 62, 70, 50, part=3),
            Span(CALLER, "wait", 16, 71),
        ),
        0,
        71,
        1000,
    )
    path = [(s.lane, s.start_ns) for s in spans.critical_path(line)]
    assert path == [(thread, 62), (DOWN, 50), (COMPUTE, 21), (UP, 12), (thread, 0)]
    found = {(p.lane, p.what): p.time_ns for p in contributors(line)}
    assert found == {
        (COMPUTE, ""): 29,
        (DOWN, ""): 10,
        ("copying threads", "copy in"): 10,
        (UP, ""): 8,
        ("copying threads", "copy out"): 8,
        ("", "latency and caller"): 6,
    }
    assert line.limits() == {UP: 10, COMPUTE: 29, DOWN: 10}
    assert line.limit_ns == 29


def test_what_the_caller_waited_for_is_on_the_path():
    """What it enqueues after a wait leads to the copy that ended the wait."""
    line = Timeline(
        (
            Span("clgemm-copy_0", "copy in", 10, 40, 10, part=6),
            Span("clgemm-copy_1", "copy in", 10, 43, 10, part=5),
            Span(CALLER, "enqueue kernels", 0, 5),
            Span(CALLER, "wait", 5, 41),
            Span(CALLER, "copy out", 41, 50, 10, part=7),
        ),
        0,
        50,
        10,
    )
    assert [s.what for s in spans.critical_path(line)] == ["copy out", "copy in"]
    assert spans.critical_path(line)[1].part == 6
    assert sum(p.time_ns for p in contributors(line)) == line.time_ns
