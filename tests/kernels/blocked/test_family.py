"""The blocked family: its configs, how it divides C, what the planner and the tuner ask of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planned import TWO_CORES, traits_with

import clgemm
from clgemm.core.plan import ceil_div, round_up
from clgemm.core.problem import Shape
from clgemm.kernels.blocked.family import (
    BLOCKED,
    FEW_PANELS,
    SMALLEST_SLICE,
    cuts_k,
    register_config,
    register_spread,
)
from clgemm.testing import assert_product

CONFIG = register_config(16, can_prefetch=True, fma=False)


def test_blocks_are_no_macros():
    """The kernel gets its blocks as arguments: configs that differ in them share a program."""
    others = replace(CONFIG, block_m=1, block_n=2, block_k=3, aliasing=4)
    assert others.macros() == CONFIG.macros()
    assert replace(CONFIG, work_m=4).macros() != CONFIG.macros()


@pytest.mark.parametrize(("work_m", "rows", "columns"), [(8, 8, 16), (6, 2, 2), (16, 16, 16)])
def test_panels_are_packed_by_the_widest_vectors_that_divide_them(work_m, rows, columns):
    """The macros say how many rows and columns of A are transposed together."""
    macros = dict(replace(CONFIG, work_m=work_m).macros())
    assert (macros["VECTOR_ROWS_A"], macros["VECTOR_COLUMNS_A"]) == (rows, columns)
    assert CONFIG.tile_n % macros["VECTOR_ROWS_B"] == 0


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


REGISTERS = {16: 32, 8: 16, 4: 16}  # of AVX-512, AVX and SSE, by the floats of each


@pytest.mark.parametrize("fma", [False, True])
@pytest.mark.parametrize("width", REGISTERS)
def test_accumulators_leave_registers_for_the_operands(width, fma):
    """The registers hold the accumulators, a row of B and an element of A."""
    config = register_config(width, can_prefetch=True, fma=fma)
    needed = config.work_m * config.vectors + config.vectors + 1
    assert config.width == width
    assert needed <= REGISTERS[width]
    assert needed + fma * (width == 8) <= REGISTERS[width]  # Intel's compiler needs one more


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_blocks_do_not_depend_on_the_registers(width):
    """A block has about 4096 rows of A and 144 columns of B, whatever the panels are."""
    config = register_config(width, can_prefetch=False, fma=False)
    assert 4096 - config.tile_m < config.block_m * config.tile_m <= 4096
    assert 144 - config.tile_n < config.block_n * config.tile_n <= 144
    assert config.prefetch == config.prefetch_a == 0


SHAPE = Shape(1000, 1000, 1000)


def test_many_cores_do_not_pack_for_the_cache():
    """Rows that share sets of a cache are packed on few cores only."""
    few = traits_with(TWO_CORES, "CPU")
    many = traits_with(replace(TWO_CORES, compute_units=64), "CPU")
    (on_few,), (on_many,) = (BLOCKED.defaults(SHAPE, traits) for traits in (few, many))
    assert on_few.config.aliasing > 0
    assert on_many.config == replace(on_few.config, aliasing=0)


def test_panels_of_a_are_packed_as_high_as_the_registers():
    """The packing of every choice makes the panels that its kernel reads."""
    traits = traits_with(TWO_CORES, "CPU")
    for choice in (*BLOCKED.defaults(SHAPE, traits), BLOCKED.plainest(traits)):
        assert not list(BLOCKED.problems(choice, TWO_CORES))
        assert [pack.panel for pack in choice.pack] == [choice.config.tile_m]


def test_edge_shapes_are_larger_than_a_block():
    """There is a shape beyond a block's columns, one beyond its depth, and a batch."""
    (choice,) = BLOCKED.defaults(SHAPE, traits_with(TWO_CORES, "CPU"))
    config, shapes = choice.config, BLOCKED.edge_shapes(choice.config)
    assert any(shape.n > config.block_n * config.tile_n for shape in shapes)
    assert any(shape.k > config.block_k for shape in shapes)
    assert any(shape.matrices > 1 for shape in shapes)


@pytest.mark.parametrize("size", [(701, 21, 62), (1500, 47, 45), (333, 5, 40), (96, 49, 33)])
def test_narrow_products_pack_each_panel_of_a_alone(size, device):
    """Where A is contiguous along m. All panels that follow were once packed with each."""
    m, n, k = size
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((k, m), np.float32).T, rng.standard_normal((k, n), np.float32)
    out = np.full((m, n), np.nan, np.float32)
    clgemm.sgemm(1.0, a, b, 0.0, out, overwrite_c=1, order="C")
    assert_product(out, a, b)


def space_of(width, compiles_vectors):
    """Return the space of a CPU whose vectors have so many floats."""
    limits = replace(TWO_CORES, vector_width=width)
    traits = traits_with(limits, "CPU", is_vector_compiler=compiles_vectors)
    return BLOCKED.search_space(BLOCKED.plainest(traits), traits)


def test_vectors_are_as_wide_as_the_devices_at_most():
    """Wider ones would be taken apart by the compiler."""
    assert space_of(16, True).values["width"] == (4, 8, 16)
    assert space_of(8, True).values["width"] == (4, 8)
    assert space_of(2, True).values["width"] == (2,)


def test_prefetches_are_tried_where_the_compiler_has_them():
    """Elsewhere the only distance is 0."""
    for name in ("prefetch", "prefetch_a", "pack_prefetch"):
        assert len(space_of(8, True).values[name]) > 1
        assert space_of(8, False).values[name] == (0,)


def test_a_point_has_blocks_in_rows_and_columns():
    """Panels of another height keep the block's rows: only their number changes."""
    space = space_of(8, True)
    point = {name: values[0] for name, values in space.values.items()}
    point |= {"vectors": 1, "width": 8, "block_rows": 512, "block_columns": 96, "pack_rows": 128}
    for work_m in (4, 8):
        choice = space.make(point | {"work_m": work_m})
        assert choice.config.block_m * work_m == 512
        assert choice.config.block_n * 8 == 96
        assert choice.pack[0].panel * choice.pack[0].panels == 128
        assert space.read(choice) == point | {"work_m": work_m}
