"""The expected times of products on tensor cores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import GPU_LIMITS

from clgemm.kernels.tensor_core.estimate import best_cuts, narrow_us, split_us, uncut

LIMITS = replace(GPU_LIMITS, compute_units=100)
TILE = 128 * 128


def test_a_last_round_that_is_not_full_costs_more_than_its_share():
    """Up to a whole round; full rounds take their number of times."""
    one, two = uncut(100, 10, 1.0, TILE, LIMITS).us, uncut(200, 10, 1.0, TILE, LIMITS).us
    assert two == pytest.approx(2 * one)
    assert 1.01 * one < uncut(101, 10, 1.0, TILE, LIMITS).us <= two
    assert uncut(100, 20, 1.0, TILE, LIMITS).us == pytest.approx(2 * one)


def test_few_tiles_of_a_long_sum_are_cut():
    """So that all compute units have work; a slice has two steps at least."""
    cuts = best_cuts(10, 500, 1.0, TILE, LIMITS)
    assert (cuts.whole, cuts.slices) == (0, 10)
    assert cuts.all_slices == 100
    assert cuts.us < uncut(10, 500, 1.0, TILE, LIMITS).us / 5
    assert best_cuts(10, 3, 9.0, TILE, LIMITS).slices == 1


def test_full_rounds_of_tiles_are_not_cut():
    """Those of a last one are, if that saves more than the slices cost."""
    assert best_cuts(300, 100, 1.0, TILE, LIMITS) == uncut(300, 100, 1.0, TILE, LIMITS)
    cuts = best_cuts(310, 100, 1.0, TILE, LIMITS)
    assert cuts.whole == 300
    assert cuts.slices > 2
    assert best_cuts(310, 3, 1.0, TILE, LIMITS).slices == 1


@given(tiles=st.integers(1, 3000), depths=st.integers(1, 999), step_us=st.floats(0.01, 10))
def test_cuts_cover_every_tile_and_every_step(tiles, depths, step_us):
    """With scratch memory that is bounded; no slice is empty."""
    cuts = best_cuts(tiles, depths, step_us, TILE, LIMITS)
    assert cuts.tiles == tiles
    assert 0 <= cuts.whole <= tiles
    assert cuts.us <= uncut(tiles, depths, step_us, TILE, LIMITS).us
    if cuts.whole < tiles:
        assert cuts.whole % LIMITS.compute_units == 0
        assert cuts.all_slices <= 4 * LIMITS.compute_units
        deep = -(-depths // cuts.slices)
        assert deep * (cuts.slices - 1) < depths <= deep * cuts.slices


def test_operands_without_a_unit_stride_are_split_more_slowly():
    """Splitting reads and writes each element once."""
    assert split_us(2000, False, LIMITS) == pytest.approx(2 * split_us(1000, False, LIMITS))
    assert split_us(1000, True, LIMITS) > split_us(1000, False, LIMITS)


def test_slices_shorten_a_long_sum_of_few_tiles():
    """Adding up costs something for each slice."""
    alone = narrow_us(4, 64, 16384, 1, 0, False, LIMITS)
    cut = narrow_us(4 * 16, 64, 1024, 16, 0, False, LIMITS)
    assert cut < alone / 4
    few = narrow_us(4, 64, 64, 1, 0, False, LIMITS)
    assert narrow_us(4, 64, 64, 2, 0, False, LIMITS) > few
    assert narrow_us(4, 64, 64, 1, 0, True, LIMITS) > few


def test_all_work_groups_pack_together():
    """Chunk after chunk, so that few of them take longer."""
    alone, together = (narrow_us(n, 64, 64, 1, 64, False, LIMITS) for n in (1, 64))
    assert alone > together > narrow_us(64, 64, 64, 1, 0, False, LIMITS)
