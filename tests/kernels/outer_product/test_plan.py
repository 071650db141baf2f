"""Plans of the outer_product family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, dense

from clgemm.core.steps import ceil_div
from clgemm.kernels.outer_product.config import MOST_REGISTERS
from clgemm.kernels.outer_product.defaults import outer_config
from clgemm.kernels.outer_product.plan import BLOCK, LEAST_GROUPS, make_outer_plan

CONFIG = outer_config(LIMITS)


def step_of(m, n, k, *batch):
    """The only launch of a product."""
    operands = dense(m, k, *batch), dense(k, n, *batch), dense(m, n, *batch)
    (step,) = make_outer_plan(*operands, CONFIG, LIMITS).steps
    return step


@pytest.mark.parametrize(("k", "depth"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16)])
def test_the_depth_is_the_next_power_of_two(k, depth):
    """So there are few programs, and little is multiplied by zero."""
    config = step_of(5000, 5000, k).config
    assert config.depth == depth
    assert config.depth * config.work_n <= MOST_REGISTERS


def test_a_few_columns_take_narrow_tiles():
    """No work-item has columns past the last one alone."""
    assert step_of(5000, 30, 2).config.work_n == 1
    assert step_of(5000, 33, 2).config.work_n == 2
    assert step_of(5000, 500, 2).config.work_n == CONFIG.work_n


def test_few_work_groups_take_low_tiles():
    """Every compute unit has some, if there are as many tiles of the lowest height."""
    for m, n, batch in ((600, 600, ()), (100, 9000, ()), (40, 40, (50,))):
        step = step_of(m, n, 2, *batch)
        enough = step.groups >= LEAST_GROUPS * LIMITS.compute_units
        assert enough or step.config.work_m == 1
    assert step_of(20_000, 20_000, 8).config.work_m == CONFIG.work_m
    assert step_of(20_000, 20_000, 2).config.work_m == CONFIG.work_m // 2
    assert step_of(20_000, 20_000, 9).config.work_m == 2 * CONFIG.work_m


@pytest.mark.parametrize(
    ("n", "alignment", "is_cut", "align"),
    [
        (777, 256, False, BLOCK),  # rows begin anywhere
        (776, 256, False, 1),
        (776, 4, False, BLOCK),  # the first row does
        (776, 256, True, BLOCK),  # matrices of a batch do
    ],
)
def test_neighbours_write_whole_blocks_of_memory(n, alignment, is_cut, align):
    """Where rows of C begin between blocks, tiles begin earlier, and may be one more."""
    a, b, c = dense(1000, 3, 5), dense(3, n, 5), dense(1000, n, 5)
    strides = ((1000 * n + 4 if is_cut else 1000 * n), *c.strides[1:])
    c = c._replace(alignment_bytes=alignment, strides=strides)
    (step,) = make_outer_plan(a, b, c, CONFIG, LIMITS).steps
    assert step.config.align == align
    tile_m, tile_n = step.config.tile
    assert step.groups == 5 * ceil_div(1000, tile_m) * ceil_div(n + align - 1, tile_n)


def test_rows_of_a_work_item_begin_alike():
    """Otherwise, and where neighbours in a row are apart, elements are written as they come."""
    a, b, c = dense(1000, 3), dense(3, 777), dense(1000, 777)
    turned = b.transposed(), a.transposed(), c.transposed()
    for operands, config in (((a, b, c), replace(CONFIG, items_m=4)), (turned, CONFIG)):
        (step,) = make_outer_plan(*operands, config, LIMITS).steps
        assert step.config.align == 1


def test_rows_of_a_tile_fit_local_memory():
    """Whatever the depth; a device may have little of it."""
    for k in (8, 16):
        operands = dense(20_000, k), dense(k, 20_000), dense(20_000, 20_000)
        limits = replace(LIMITS, local_memory_bytes=2**14)
        (step,) = make_outer_plan(*operands, CONFIG, limits).steps
        step.config.require(limits)
