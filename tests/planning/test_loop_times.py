"""Tests of how long NumPy takes for a batch."""

from __future__ import annotations

from clgemm.planning.loop_times import LoopTimes


def test_each_part_counts():
    """The call, the multiply-adds, and the elements of the three matrices."""
    assert LoopTimes(5.0, 1.0, 0.0, 0.0, 0.0).of(2, 3, 4) == 5 + 24
    assert LoopTimes(0.0, 0.0, 100.0, 10.0, 1.0).of(2, 3, 4) == 100 * 8 + 10 * 12 + 6
