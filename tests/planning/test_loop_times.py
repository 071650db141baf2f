"""Tests of how long NumPy takes for a batch."""

from __future__ import annotations

from clgemm.planning.loop_times import BatchKind, LoopTimes


def test_each_part_counts():
    """The call, the multiply-adds, and the elements of the three matrices."""
    own, one_b, folded = BatchKind
    times = LoopTimes(call=5.0, multiply_add=1.0, a=1000.0, b=100.0, one_b=10.0, c=0.5)
    assert times.of(2, 3, 4, own) == 5 + 24 + 1000 * 8 + 100 * 12 + 0.5 * 6
    assert times.of(2, 3, 4, one_b) == times.of(2, 3, 4, folded) == 5 + 24 + 8000 + 10 * 12 + 3
