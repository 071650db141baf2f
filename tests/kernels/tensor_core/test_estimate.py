"""The expected times of products on tensor cores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from strategies import GPU_LIMITS

from clgemm.kernels.tensor_core.estimate import narrow_us, split_us, tiles_us

LIMITS = replace(GPU_LIMITS, compute_units=100)


def test_a_last_round_that_is_not_full_costs_more_than_its_share():
    """Up to a whole round; full rounds take their number of times."""
    one, two = tiles_us(100, 640, False, LIMITS), tiles_us(200, 640, False, LIMITS)
    assert two == pytest.approx(2 * one)
    assert 1.01 * one < tiles_us(101, 640, False, LIMITS) <= two
    assert one < tiles_us(100, 640, True, LIMITS) < 2.5 * one
    assert tiles_us(100, 1280, False, LIMITS) == pytest.approx(2 * one)


def test_operands_without_a_unit_stride_are_split_more_slowly():
    """Splitting reads and writes each element once."""
    assert split_us(2000, False, LIMITS) == pytest.approx(2 * split_us(1000, False, LIMITS))
    assert split_us(1000, True, LIMITS) > split_us(1000, False, LIMITS)


def test_slices_shorten_a_long_sum_of_few_tiles():
    """Adding up costs something for each slice."""
    alone = narrow_us(4, 64, 2, 16384, 1, LIMITS)
    cut = narrow_us(4 * 16, 64, 2, 1024, 16, LIMITS)
    assert cut < alone / 4
    assert narrow_us(4, 64, 2, 64, 2, LIMITS) > narrow_us(4, 64, 2, 64, 1, LIMITS)
