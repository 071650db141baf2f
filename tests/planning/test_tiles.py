"""Tests of the cutting of products into tiles of C."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.layout import Layout
from clgemm.core.transfer import cuts
from clgemm.planning import tiles
from clgemm.planning.tiles import Party, cut, is_faster_spread, matrix_blocks, spread_grid

CPU = Party(compute_units=2, in_place=True)
GPU = Party(compute_units=132, in_place=False)

sizes = st.integers(1, 5000)


@given(
    batch=st.lists(st.integers(1, 5), max_size=2),
    m=sizes,
    n=sizes,
    k=sizes,
    most=st.integers(1, 10**9),
)
def test_tiles_have_about_the_work_that_was_asked_for(batch, m, n, k, most):
    """A tile has little more work than asked for, unless its sides have the least length."""
    shape = (*batch, m, n)
    steps = cut(shape, k, most)
    assert len(steps) == len(shape)
    assert all(1 <= step <= size for step, size in zip(steps, shape, strict=True))
    smallest = k * (tiles.LEAST_SIDE + tiles.GRAIN) ** 2
    # A side is rounded up to whole grains, by half of the shortest side at most.
    assert k * math.prod(steps) <= max(3 * most, 2 * smallest)


def test_batches_are_cut_by_matrix_before_matrices_are():
    """A matrix of a batch is cut only if it is too large by itself."""
    assert cut((8, 512, 512), 512, 512**3) == (1, 512, 512)
    assert cut((8, 512, 512), 512, 2 * 512**3) == (2, 512, 512)
    assert cut((5, 512, 512), 512, 3 * 512**3) == (3, 512, 512)
    assert cut((3, 1024, 1024), 512, 512**3) == (1, 512, 512)


def test_no_small_part_is_left_at_the_end_of_an_axis():
    """The last tile of an axis has at least half of the length of the others."""
    steps = cut((60_000, 60_000), 60_000, 2**36)
    assert 60_000 % steps[0] > steps[0] // 2


def test_small_products_are_not_spread():
    """A product that one device ends before another has begun is not spread."""
    assert spread_grid((256, 256), 256, [CPU, CPU]) is None
    assert spread_grid((2048, 2048), 2048, [GPU, GPU]) is None
    assert spread_grid((4096, 4096), 4096, [CPU, GPU]) is None
    assert spread_grid((4096, 4096), 4096, [CPU, CPU]) is not None
    assert spread_grid((16384, 16384), 16384, [GPU, GPU]) is not None


def test_k_is_never_cut():
    """The work of a tile is a multiple of k, and a deep product of few elements has no grid."""
    assert spread_grid((100, 100), 10**8, [CPU, CPU]) is None
    grid = spread_grid((4096, 4096), 300, [CPU, CPU])
    assert grid is not None
    assert grid.work(grid.bands[0][0]) % 300 == 0


@pytest.mark.parametrize(
    ("shape", "depth", "parties"),
    [
        ((5000, 3000), 2000, [CPU, CPU]),
        ((5001, 2999), 2000, [CPU, CPU, CPU]),
        ((40, 700, 600), 500, [CPU, CPU]),
        ((3, 5, 900, 800), 500, [CPU, CPU]),
        ((33_000, 20_001), 20_000, [GPU, GPU, GPU, GPU, CPU]),
        ((20, 8192, 8192), 8192, [GPU, GPU]),
    ],
)
def test_tiles_cover_c_once(shape, depth, parties):
    """Every element of C is in exactly one tile."""
    grid = spread_grid(shape, depth, parties)
    assert grid is not None
    boxes = [box for band in grid.bands for box in band]
    assert len(boxes) >= len(parties)
    assert sum(map(grid.work, boxes)) == depth * math.prod(shape)
    corners = {tuple(s.start for s in box) for box in boxes}
    assert len(corners) == len(boxes)
    assert all(
        0 <= s.start < s.stop <= size for box in boxes for s, size in zip(box, shape, strict=True)
    )


@pytest.mark.parametrize(
    ("shape", "depth", "rows"),
    [
        ((33_000, 20_000), 20_000, 1408),  # a 24th of all, in whole grains
        ((64_000, 8192), 200_000, 2688),
        ((5000, 5000), 100_000, tiles.LEAST_SIDE),
    ],
)
def test_tiles_through_transfers_take_all_columns_of_a_band(shape, depth, rows):
    """Tiles have the width of their band, and as many rows as make the work, or the least side."""
    grid = spread_grid(shape, depth, [GPU, GPU])
    assert grid is not None
    assert (len(grid.bands), grid.rows) == (1, rows)
    assert grid.bands[0][0][1] == slice(0, shape[1])


def test_neighbours_of_a_band_join():
    """A run of tiles of a band is one block, whose tiles keep their borders."""
    grid = spread_grid((40_000, 20_000), 20_000, [GPU] * 4)
    assert grid is not None
    assert len(grid.bands) == 2
    assert grid.joins
    block = grid.joined(1, 2, 5)
    assert block[0] == slice(2 * grid.rows, 5 * grid.rows)
    assert block[1] == grid.bands[1][0][1]


def test_a_tile_takes_rows_of_a_and_columns_of_b():
    """The blocks of A and B of a tile multiply to the tile of C."""
    a = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3)
    b = np.arange(3 * 5, dtype=np.float32).reshape(1, 3, 5)
    box = (slice(1, 2), slice(1, 3), slice(2, 5))
    layouts = [Layout(x.shape, tuple(s // 4 for s in x.strides)) for x in (a, b)]
    block_a, block_b = matrix_blocks(box, *layouts)
    np.testing.assert_array_equal(a[block_a] @ b[block_b], (a @ b)[box])


def test_an_axis_is_cut_into_equal_parts_and_a_rest():
    """The parts of an axis are equal, and the rest is the last one."""
    assert cuts(10, 4) == [slice(0, 4), slice(4, 8), slice(8, 10)]


@pytest.mark.parametrize(
    ("shape", "depth", "copied", "faster"),
    [
        ((16384, 16384), 16384, 1e12, True),  # the devices are the limit
        ((16384, 16384), 16384, 1e10, False),  # the host is
        ((64, 4096, 4096), 4096, 1e10, False),
        ((64, 4096, 4096), 4096, 1e12, True),
        ((200_000, 200_000), 200_000, 1e10, True),
    ],
)
def test_several_devices_share_a_product_only_if_that_is_expected_to_be_faster(
    shape, depth, copied, faster
):
    """Two of 1e14 multiply-adds a second each, and so many elements that the host copies."""
    assert is_faster_spread(shape, depth, [1e14, 1e14], copied, 2) == faster
    assert not is_faster_spread(shape, depth, [1e14], copied, 1)
    assert not is_faster_spread(shape, depth, [1e14, 1e12], copied, 1)


@pytest.mark.parametrize(
    ("batch", "devices", "copies_of_b", "again"),
    [
        ((), 2, 1, 0),  # one copy serves both
        ((), 2, 2, 1),
        ((), 3, 3, 2),
        ((4,), 2, 2, 0),  # each matrix of a batch goes to one device
    ],
)
def test_what_is_copied_again_counts(batch, devices, copies_of_b, again):
    """Square matrices, where the host copies just fast enough, or not."""
    size, rate, least = 8192, 1e14, tiles.LEAST_GAIN
    shape = (*batch, size, size)
    # With work = size / rate:
    # least**2 * (work**2 + (3 / copied)**2) = (work / devices)**2 + ((3 + again) / copied)**2
    ratio = ((3 + again) ** 2 - 9 * least**2) / (least**2 - 1 / devices**2)
    enough = math.sqrt(ratio) * rate / size
    arguments = shape, size, [rate] * devices
    assert is_faster_spread(*arguments, 1.01 * enough, copies_of_b)
    assert not is_faster_spread(*arguments, 0.99 * enough, copies_of_b)
