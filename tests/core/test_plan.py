"""Batches cut to fit launches."""

from __future__ import annotations

import pytest

from clgemm.core.plan import slices
from clgemm.core.problem import Level


def test_slices_cover_a_batch_once():
    """Any cut of any levels reaches each matrix exactly once, within both limits."""
    levels = (Level(2, (1000,)), Level(3, (300,)), Level(5, (50,)), Level(2, (20,)), Level(4, (3,)))
    everything = sorted(
        1000 * i + 300 * j + 50 * k + 20 * m + 3 * n
        for i in range(2) for j in range(3) for k in range(5) for m in range(2) for n in range(4)
    )  # fmt: skip
    for most in (1, 3, 4, 7, 8, 30, 1000):
        reached = []
        for part in slices(levels, most, 1):
            walked = [part.offsets[0]]
            for level in part.levels:
                walked = [w + i * level.strides[0] for w in walked for i in range(level.count)]
            assert len(walked) <= most
            assert len(part.levels) <= 4
            reached += walked
        assert sorted(reached) == everything


@pytest.mark.parametrize(
    ("counts", "most", "launches"),
    [((5,), 2, 3), ((6,), 2, 3), ((5, 2), 4, 3), ((5, 2), 1, 10), ((3, 5, 2), 10, 3)],
)
def test_slices_are_as_large_as_a_launch_may_be(counts, most, launches):
    """A batch is cut into the fewest launches, the last one smaller."""
    levels = tuple(Level(count, (10**i,)) for i, count in enumerate(counts))
    assert len(list(slices(levels, most, 1))) == launches
