"""How blocks of C are divided among cores."""

from __future__ import annotations

import pytest

from clgemm.core.steps import ceil_div, round_up
from clgemm.kernels.blocked.defaults import register_config
from clgemm.kernels.blocked.estimate import FEW_PANELS, SMALLEST_SLICE, cuts_k, register_spread

CONFIG = register_config(16, can_prefetch=True, fma=False)
BLOCK_K = CONFIG.block_k


def spread(m, n, k, matrices=1, units=8):
    """Return the blocks of a product."""
    return register_spread(CONFIG, m, n, k, matrices, BLOCK_K, units)


@pytest.mark.parametrize("units", [1, 2, 8, 64])
@pytest.mark.parametrize(
    "size", [(4096, 4096, 4096), (100, 5000, 300), (5000, 100, 300), (64, 64, 100_000)]
)
def test_blocks_are_within_the_configs(size, units):
    """No block is larger than the config allows, and no list is without a column of blocks."""
    found = spread(*size, units=units)
    _, n, k = size
    assert 1 <= found.block_m <= CONFIG.block_m
    assert CONFIG.width <= found.block_n <= CONFIG.block_n * CONFIG.tile_n
    columns = ceil_div(n, found.block_n) * ceil_div(k, found.slice_k)
    assert 1 <= found.lists <= min(units, columns)


@pytest.mark.parametrize("units", [2, 8, 64])
@pytest.mark.parametrize("size", [(4096, 4096, 512), (64, 64, 100_000), (512, 512, 512)])
def test_every_core_gets_a_block(size, units):
    """There are as many blocks as cores, unless C is small and k is short."""
    m, n, k = size
    found = spread(*size, units=units)
    blocks = ceil_div(ceil_div(m, CONFIG.tile_m), found.block_m) * ceil_div(n, found.block_n)
    assert blocks * ceil_div(k, found.slice_k) >= units


def test_only_the_sum_of_a_small_c_is_cut():
    """Slices of k are whole blocks of k and not too short; a large C is not sliced."""
    deep = spread(64, 64, 100_000)
    assert deep.slice_k < 100_000
    assert deep.slice_k % BLOCK_K == 0
    assert deep.slice_k >= SMALLEST_SLICE
    assert spread(4096, 4096, 100_000).slice_k == 100_000


def test_k_is_cut_below_so_many_panels_per_core():
    """A batch has as many panels as all of its matrices."""
    m, n = CONFIG.tile_m * FEW_PANELS, CONFIG.tile_n
    assert not cuts_k(CONFIG, m, n, 1, 1)
    assert cuts_k(CONFIG, m, n, 1, 2)
    assert not cuts_k(CONFIG, m, n, 2, 2)
    assert cuts_k(CONFIG, m - CONFIG.tile_m, n, 1, 1)


@pytest.mark.parametrize("k", [4, 10, 64, 300])
def test_a_short_k_has_wide_blocks(k):
    """Rows of C are written in few pieces; the second-level cache still holds a block of B."""
    depth = round_up(k, 16)
    found = register_spread(CONFIG, 3000, 3000, k, 1, depth, 2)
    most = CONFIG.block_n * CONFIG.tile_n * BLOCK_K // depth
    assert found.block_n <= round_up(most, CONFIG.width)
    assert found.block_n >= min(3000, most) / 2
