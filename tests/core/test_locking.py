"""Tests of which parts of an array are page-locked, without a device."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.locking import Locking, is_locked_region, runs


@given(
    address=st.integers(0, 300).map(lambda n: 4 * n),
    count=st.integers(0, 500),
    most=st.integers(1, 90),
    region=st.sampled_from([4, 64, 256]),
    share=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_runs_cover_an_array_and_lock_whole_regions_only(address, count, most, region, share):
    """Runs follow one another without gaps; locked ones are aligned, others are short enough."""
    found = list(runs(address, count, 4, most, region, share))
    assert [first for first, _, _ in found] == [
        sum(size for _, size, _ in found[:i]) for i in range(len(found))
    ]
    assert sum(size for _, size, _ in found) == count
    for first, size, locked in found:
        assert size > 0
        if locked:
            assert (address + 4 * first) % region == 0
            assert 4 * size == region
        else:
            assert size <= most
    number = address // region + count * 4 // region + 2
    whole = [
        i
        for i in range(number)
        if address <= i * region and (i + 1) * region <= address + 4 * count
    ]
    expected = sum(is_locked_region(i, share) for i in whole)
    assert sum(locked for *_, locked in found) == expected


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_the_share_of_locked_regions(share):
    """Of a hundred regions, as many as the share says are locked, and they are spread evenly."""
    chosen = [is_locked_region(i, share) for i in range(100)]
    assert abs(sum(chosen) - 100 * share) <= 1
    assert abs(sum(chosen[:20]) - 20 * share) <= 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loads": 1.5}, "loads=1.5 is not between 0 and 1"),
        ({"results": -0.1}, "results=-0.1 is not between 0 and 1"),
        ({"transfer": "dma"}, "transfer='dma' is not 'pointer', 'map' or 'buffer'"),
        ({"region_bytes": 2**30}, "region_bytes=1073741824 is not between 1 and held_bytes="),
    ],
)
def test_wrong_limits_are_refused(values, message):
    """The error names the value."""
    with pytest.raises(ValueError, match=re.escape(message)):
        Locking(**values)
