"""The constants of expected times, and how times that overlap are joined."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.costs import H200, joined

TIMES = st.lists(st.floats(0, 1e6), min_size=1, max_size=4)


@given(times=TIMES, power=st.floats(1, 20))
def test_joined_times_lie_between_the_longest_and_the_sum(times, power):
    """What overlaps takes as long as the longest at least, and as all at most."""
    found = joined(power, *times)
    assert max(times) <= found * (1 + 1e-9)
    assert found <= sum(times) * (1 + 1e-9)


def test_equal_times_overlap_by_the_power():
    """A power of 1 adds them up; a large one takes the longest."""
    assert joined(1.0, 3.0, 4.0) == pytest.approx(7.0)
    assert joined(2.0, 3.0, 4.0) == pytest.approx(5.0)
    assert joined(50.0, 3.0, 4.0) == pytest.approx(4.0, rel=1e-3)
    assert joined(2.0, 0.0) == 0.0


def test_every_constant_is_above_zero():
    """They are times, rates and factors."""
    assert all(value > 0 and math.isfinite(value) for value in asdict(H200).values())
