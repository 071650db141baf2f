"""The expected times of products on tensor cores."""

from __future__ import annotations

import pytest
from strategies import GPU_LIMITS as LIMITS

from clgemm.kernels.tensor_core.estimate import narrow_us, split_us, tiles_us

UNITS, COSTS = LIMITS.compute_units, LIMITS.costs


def test_the_last_round_of_tiles_counts_in_part():
    """A tile more than a round takes more than its share, and less than a whole round."""
    one, more, two = (
        tiles_us(tiles, 1024, False, LIMITS) for tiles in (UNITS, UNITS + 1, 2 * UNITS)
    )
    assert two == pytest.approx(2 * one)
    assert one * (1 + 1 / UNITS) < more < two
    assert more == pytest.approx(one * (1 + COSTS.tensor_tail + (1 - COSTS.tensor_tail) / UNITS))


def test_a_wide_tile_takes_less_than_two_narrow_ones():
    """The steps over k are of 64."""
    assert tiles_us(UNITS, 65, False, LIMITS) == tiles_us(UNITS, 128, False, LIMITS)
    narrow, wide = (tiles_us(UNITS, 1024, is_wide, LIMITS) for is_wide in (False, True))
    assert narrow < wide < 2 * narrow


def test_operands_without_unit_stride_take_longer_to_split():
    """Twice the elements take twice as long."""
    assert split_us(10**6, True, LIMITS) > split_us(10**6, False, LIMITS)
    assert split_us(2 * 10**6, False, LIMITS) == 2 * split_us(10**6, False, LIMITS)


def test_few_columns_take_rounds_and_steps():
    """Warp groups share the steps; slices are added up at a cost."""
    whole = narrow_us(UNITS, 64, 2, 4096, 1, LIMITS)
    assert narrow_us(UNITS + 1, 64, 2, 4096, 1, LIMITS) == pytest.approx(2 * whole)
    assert narrow_us(UNITS, 64, 4, 4096, 1, LIMITS) < whole
    assert narrow_us(UNITS, 16, 2, 4096, 1, LIMITS) < whole
    adding = narrow_us(UNITS, 64, 2, 4096, 3, LIMITS) - whole
    assert adding == pytest.approx(COSTS.narrow_fused_us + 3 * COSTS.narrow_slice_us)
