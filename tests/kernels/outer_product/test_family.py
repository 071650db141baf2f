"""The outer_product family: which products have a short k, its configs and its plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, dense, make_plan, traits_with

from clgemm.core.config import Launch
from clgemm.core.plan import ceil_div
from clgemm.core.problem import Problem, Shape
from clgemm.kernels.outer_product.family import (
    BLOCK,
    DEPTHS,
    LEAST_GROUPS,
    MOST_REGISTERS,
    OUTER_PRODUCT,
    OuterProductConfig,
    OuterProductVariant,
    outer_config,
)
from clgemm.planning import planner

MANY_UNITS = replace(LIMITS, compute_units=132)
GPU = traits_with(MANY_UNITS, is_nvidia=True)


class Gpu:
    """A device without records."""

    kind, limits, traits = "GPU", MANY_UNITS, GPU


@pytest.mark.parametrize(
    ("n", "k", "serves"),
    [
        *((3, 0, False), (3, 1, True), (3, 16, True), (3, 17, False)),
        *((800, 1, True), (800, 8, True), (800, 9, False)),
    ],
)
def test_a_short_k_makes_it_a_candidate(n, k, serves):
    """C may have any shape; a longer k pays where its rows begin between blocks of memory."""
    problem = Problem.of(Shape(1000, n, k), "strict")
    problem = problem._replace(c=problem.c._replace(alignment_bytes=256))
    assert bool(OUTER_PRODUCT.candidates(problem, GPU)) == serves
    assert OUTER_PRODUCT.fits(problem) == serves


def test_a_gpu_makes_large_outer_products_so(monkeypatch):
    """It is expected to be faster than tiles, which are mostly empty along k."""
    monkeypatch.setattr(planner, "tuned", lambda *_: None)
    for shape in ((3000, 3000, 1), (10_000, 1500, 6), (2000, 500, 2, 7)):
        family, _ = planner.choose(Gpu(), Problem.of(Shape(*shape), "strict"))
        assert family is OUTER_PRODUCT


def test_edge_shapes_have_every_depth():
    """And tiles that are cut off on both sides."""
    config = OUTER_PRODUCT.config_of(OUTER_PRODUCT.defaults(Shape(1, 1, 1), GPU)[0])
    shapes = OUTER_PRODUCT.edge_shapes(config)
    assert {*range(1, 9), 11, 16} == {shape.k for shape in shapes}
    assert any(shape.m % config.tile[0] and shape.n % config.tile[1] for shape in shapes)
    assert all(OUTER_PRODUCT.fits(Problem.of(shape, "strict")) for shape in shapes)


CONFIG = OuterProductConfig(items_m=4, items_n=32, work_m=16, work_n=4, fma=True)
VARIANT = OuterProductVariant(items_m=4, items_n=32, work_m=16, work_n=4, fma=True, depth=8)


def test_rows_of_a_lie_in_local_memory():
    """A config takes the local memory of its deepest variant."""
    assert VARIANT.local_memory_bytes == 4 * 64 * 8
    assert CONFIG.local_memory_bytes == 4 * 64 * DEPTHS[-1]
    assert list(CONFIG.problems_on(replace(LIMITS, local_memory_bytes=1024)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"items_m": 0}, "items_m=0 is less than 1"),
        ({"depth": 3}, r"depth=3 is not one of \(1, 2, 4, 8, 16\)"),
        ({"align": 6}, "align=6 is not a power of two"),
        ({"work_n": 16}, "depth=8 times work_n=16 exceeds 64"),
    ],
)
def test_broken_configs_say_why(changes, message):
    """Each problem names the values."""
    with pytest.raises(ValueError, match=message):
        replace(VARIANT, **changes).require(LIMITS)


def microseconds(m, n, k):
    """The expected time of one launch."""
    (step,) = make_plan(dense(m, k), dense(k, n), dense(m, n), CONFIG, None, LIMITS).steps
    return step.config.microseconds(Launch(step.groups, step.arguments, LIMITS))


def test_the_writing_of_c_takes_the_time():
    """Of many elements, four times as many take four times as long."""
    assert 3.5 < microseconds(8192, 8192, 1) / microseconds(4096, 4096, 1) < 4.5
    assert microseconds(4096, 4096, 8) > microseconds(4096, 4096, 1)


@pytest.mark.parametrize("size", [1, 16, 64, 128, 1024])
def test_work_groups_fit_the_device(size):
    """They have at most 256 work-items, those along a row first."""
    limits = replace(LIMITS, work_group_size=size)
    config = outer_config(limits)
    assert not list(config.problems_on(limits))
    assert config.items == min(size, 256)
    assert config.items_n == min(size, 32)


DEFAULT = outer_config(LIMITS)


def step_of(m, n, k, *batch):
    """The only launch of a product."""
    operands = dense(m, k, *batch), dense(k, n, *batch), dense(m, n, *batch)
    (step,) = make_plan(*operands, DEFAULT, None, LIMITS).steps
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
    assert step_of(5000, 500, 2).config.work_n == DEFAULT.work_n


def test_few_work_groups_take_low_tiles():
    """Every compute unit has some, if there are as many tiles of the lowest height."""
    for m, n, batch in ((600, 600, ()), (100, 9000, ()), (40, 40, (50,))):
        step = step_of(m, n, 2, *batch)
        enough = step.groups >= LEAST_GROUPS * LIMITS.compute_units
        assert enough or step.config.work_m == 1
    assert step_of(20_000, 20_000, 8).config.work_m == DEFAULT.work_m
    assert step_of(20_000, 20_000, 2).config.work_m == DEFAULT.work_m // 2
    assert step_of(20_000, 20_000, 9).config.work_m == 2 * DEFAULT.work_m


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
    (step,) = make_plan(a, b, c, DEFAULT, None, LIMITS).steps
    assert step.config.align == align
    tile_m, tile_n = step.config.tile
    assert step.groups == 5 * ceil_div(1000, tile_m) * ceil_div(n + align - 1, tile_n)


def test_rows_of_a_work_item_begin_alike():
    """Otherwise, and where neighbours in a row are apart, elements are written as they come."""
    a, b, c = dense(1000, 3), dense(3, 777), dense(1000, 777)
    turned = b.transposed(), a.transposed(), c.transposed()
    for operands, config in (((a, b, c), replace(DEFAULT, items_m=4)), (turned, DEFAULT)):
        (step,) = make_plan(*operands, config, None, LIMITS).steps
        assert step.config.align == 1


def test_rows_of_a_tile_fit_local_memory():
    """Whatever the depth; a device may have little of it."""
    for k in (8, 16):
        operands = dense(20_000, k), dense(k, 20_000), dense(20_000, 20_000)
        limits = replace(LIMITS, local_memory_bytes=2**14)
        (step,) = make_plan(*operands, DEFAULT, None, limits).steps
        step.config.require(limits)
