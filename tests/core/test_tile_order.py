"""Tests of the order of tiles and of their sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.tile_order import ramped, square_order


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
