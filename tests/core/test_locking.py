"""Tests of which parts of an array are page-locked, and of tiles that start early, no device."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.locking import Locking, is_locked_region, runs
from clgemm.core.tile_order import ramped, square_order


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


@given(
    size=st.integers(0, 5000),
    step=st.integers(1, 800),
    halvings=st.integers(0, 4),
    least=st.integers(1, 300),
)
def test_ramped_slices_cover_the_axis(size, step, halvings, least):
    """Slices follow one another, none is longer than the step, and the ends are not the longest."""
    found = ramped(size, step, halvings, 16, least)
    assert [s.start for s in found] == [0, *(s.stop for s in found[:-1])]
    assert found[-1].stop == size
    assert max(s.stop - s.start for s in found) <= step
    if size:
        assert all(s.stop > s.start for s in found)


def test_a_ramp_of_tiles():
    """Two halvings: a quarter and a half of a tile first, and last in reverse."""
    found = ramped(4096, 1024, 2, 128, 256)
    assert [s.stop - s.start for s in found] == [256, 512, 1024, 1024, 512, 512, 256]
    assert ramped(4096, 1024, 0, 128, 256) == [slice(i, i + 1024) for i in range(0, 4096, 1024)]


def test_a_short_axis_keeps_the_shortest_tiles():
    """Where a whole ramp does not fit, its longer tiles are left out."""
    found = ramped(1536, 1024, 2, 128, 256)
    assert [s.stop - s.start for s in found] == [256, 1024, 256]


def test_square_order():
    """Each block of A and B comes once, and every block of C that it allows follows at once."""
    assert list(square_order(2, 3)) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    for rows, columns in ((1, 1), (4, 4), (5, 2), (1, 7)):
        order = list(square_order(rows, columns))
        assert sorted(order) == [(i, j) for i in range(rows) for j in range(columns)]
        steps = [max(i, j) for i, j in order]
        assert steps == sorted(steps)
