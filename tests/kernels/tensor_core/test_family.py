"""The families of tensor cores: configs, expected times, which products suit, what is tried."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import traits_with
from strategies import GPU_LIMITS as LIMITS
from strategies import rows

import clgemm
from clgemm.core.config import variant_of
from clgemm.core.problem import Problem, Shape
from clgemm.kernels.common.family import Choice
from clgemm.kernels.tensor_core import family as tensor
from clgemm.kernels.tensor_core.family import (
    MMA,
    NARROW_TILES,
    WGMMA,
    WIDE_TILES,
    adds_coarsely,
    inexact,
    wgmma_configs,
)
from clgemm.kernels.tensor_core.narrow import NARROW, narrow_us
from clgemm.kernels.tensor_core.plan import (
    MmaConfig,
    MmaVariant,
    WgmmaConfig,
    WgmmaVariant,
    best_cuts,
    split_us,
    uncut,
)
from clgemm.planning import planner

WIDE = WgmmaVariant(swizzle=16, guard=True, tile_n=256, stages=2)
SLIM = WgmmaVariant(swizzle=3, guard=True, tile_n=128, stages=3)
IN_BYTES = replace(WIDE, guard=False, int8=True)
MMA_VARIANT = MmaVariant(swizzle=2, guard=True)


HUNDRED_UNITS = replace(LIMITS, compute_units=100)
TILE = 128 * 128


def test_a_last_round_that_is_not_full_costs_more_than_its_share():
    """Up to a whole round; full rounds take their number of times."""
    one, two = (
        uncut(100, 10, 1.0, TILE, HUNDRED_UNITS).us,
        uncut(200, 10, 1.0, TILE, HUNDRED_UNITS).us,
    )
    assert two == pytest.approx(2 * one)
    assert 1.01 * one < uncut(101, 10, 1.0, TILE, HUNDRED_UNITS).us <= two
    assert uncut(100, 20, 1.0, TILE, HUNDRED_UNITS).us == pytest.approx(2 * one)


def test_few_tiles_of_a_long_sum_are_cut():
    """So that all compute units have work; a slice has two steps at least."""
    cuts = best_cuts(10, 500, 1.0, TILE, HUNDRED_UNITS)
    assert (cuts.whole, cuts.slices) == (0, 10)
    assert cuts.all_slices == 100
    assert cuts.us < uncut(10, 500, 1.0, TILE, HUNDRED_UNITS).us / 5
    assert best_cuts(10, 3, 9.0, TILE, HUNDRED_UNITS).slices == 1


def test_full_rounds_of_tiles_are_not_cut():
    """Those of a last one are, if that saves more than the slices cost."""
    assert best_cuts(300, 100, 1.0, TILE, HUNDRED_UNITS) == uncut(
        300, 100, 1.0, TILE, HUNDRED_UNITS
    )
    cuts = best_cuts(310, 100, 1.0, TILE, HUNDRED_UNITS)
    assert cuts.whole == 300
    assert cuts.slices > 2
    assert best_cuts(310, 3, 1.0, TILE, HUNDRED_UNITS).slices == 1


@given(tiles=st.integers(1, 3000), depths=st.integers(1, 999), step_us=st.floats(0.01, 10))
def test_cuts_cover_every_tile_and_every_step(tiles, depths, step_us):
    """With scratch memory that is bounded; no slice is empty."""
    cuts = best_cuts(tiles, depths, step_us, TILE, HUNDRED_UNITS)
    assert cuts.tiles == tiles
    assert 0 <= cuts.whole <= tiles
    assert cuts.us <= uncut(tiles, depths, step_us, TILE, HUNDRED_UNITS).us
    if cuts.whole < tiles:
        assert cuts.whole % HUNDRED_UNITS.compute_units == 0
        assert cuts.all_slices <= 4 * HUNDRED_UNITS.compute_units
        deep = -(-depths // cuts.slices)
        assert deep * (cuts.slices - 1) < depths <= deep * cuts.slices


def test_operands_without_a_unit_stride_are_split_more_slowly():
    """Splitting reads and writes each element once."""
    assert split_us(2000, False, HUNDRED_UNITS) == pytest.approx(
        2 * split_us(1000, False, HUNDRED_UNITS)
    )
    assert split_us(1000, True, HUNDRED_UNITS) > split_us(1000, False, HUNDRED_UNITS)


def test_slices_shorten_a_long_sum_of_few_tiles():
    """Adding up costs something for each slice."""
    alone = narrow_us(4, 64, 16384, 1, 0, False, HUNDRED_UNITS)
    cut = narrow_us(4 * 16, 64, 1024, 16, 0, False, HUNDRED_UNITS)
    assert cut < alone / 4
    few = narrow_us(4, 64, 64, 1, 0, False, HUNDRED_UNITS)
    assert narrow_us(4, 64, 64, 2, 0, False, HUNDRED_UNITS) > few
    assert narrow_us(4, 64, 64, 1, 0, True, HUNDRED_UNITS) > few


def test_all_work_groups_pack_together():
    """Chunk after chunk, so that few of them take longer."""
    alone, together = (narrow_us(n, 64, 64, 1, 64, False, HUNDRED_UNITS) for n in (1, 64))
    assert alone > together > narrow_us(64, 64, 64, 1, 0, False, HUNDRED_UNITS)


UNITS = LIMITS.compute_units


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        (Shape(128 * UNITS, 256, 4096), WIDE_TILES),  # one whole round
        (Shape(128 * UNITS, 128, 4096), NARROW_TILES),  # half of each wide tile would be empty
        (Shape(128 * (UNITS // 2), 256, 4096), NARROW_TILES),  # half of the units would be idle
        (Shape(8192, 8192, 8192), WIDE_TILES),
    ],
)
def test_few_compute_units_are_idle(shape, config):
    """Wide tiles come first unless narrow ones need fewer than two rounds for each of theirs."""
    configs = wgmma_configs(shape, LIMITS)
    assert configs[0] == config
    assert set(configs) == {NARROW_TILES, WIDE_TILES}


def test_the_matrices_of_a_batch_count():
    """A batch fills the rounds that one of its matrices leaves empty."""
    shape = Shape(128 * (UNITS // 2), 256, 4096)
    assert wgmma_configs(shape, LIMITS)[0] == NARROW_TILES
    assert wgmma_configs(shape._replace(matrices=2), LIMITS)[0] == WIDE_TILES


TRAITS = traits_with(LIMITS, is_nvidia=True, capability=(9, 0))


class Able:
    """A device with wgmma units."""

    kind, limits, traits = "GPU", LIMITS, TRAITS


def config_of(device, precision, *sizes):
    """The config of a product on tensor cores; None if another family makes it."""
    problem = sizes[0] if isinstance(sizes[0], Problem) else Problem.of(Shape(*sizes), precision)
    family, choice = planner.choose(device, problem)
    return family.variant_for(problem, choice.config) if family is WGMMA else None


@pytest.fixture
def no_records(monkeypatch):
    """Defaults serve, and wgmma works."""
    monkeypatch.setattr(planner, "instructions_of", lambda _: "wgmma")
    monkeypatch.setattr(planner, "tuned", lambda *_: None)


def test_strict_and_small_products_stay_plain(no_records):
    """Only the others ask for the tensor cores."""
    able, big = Able(), (4096, 4096, 4096)
    assert config_of(able, "float32", *big) == WIDE
    assert config_of(able, "fast", *big) == IN_BYTES
    assert config_of(able, "fast", 4096, 4096, 2047) == replace(WIDE, guard=False)
    assert config_of(able, "float32", 1024, 1024, 1024).guard
    assert config_of(able, "strict", *big) is None
    assert config_of(able, "fast", 8192, 8192, 32)
    assert config_of(able, "fast", 8192, 8192, 31) is None  # other kernels are as fast
    assert config_of(able, "fast", 200, 200, 300) is None
    assert config_of(able, "fast", 1024, 1024, 1024, 1000)
    assert config_of(able, "float32", 200, 200, 300, 2) is None
    assert config_of(able, "float32", 512, 512, 512, 20)
    assert config_of(able, "fast", 64, 128, 65536) is None  # too few tiles
    assert config_of(able, "fast", 1024, 1024, 16384)


@pytest.mark.parametrize(("parts", "takes"), [(256, True), (1000, False)])
def test_batches_of_many_launches_stay_plain(no_records, parts, takes):
    """Each part of a batch whose loops do not join takes its own launches."""
    x = rows(parts, 2, 1024, 1024)
    apart = x._replace(strides=(x.strides[0] + 8, *x.strides[1:]))
    assert bool(config_of(Able(), "fast", Problem(apart, apart, apart, "fast"))) == takes


def test_a_record_serves_where_its_tiles_do(monkeypatch):
    """With each call's own precision; not where its tiles would leave most of a device idle."""
    able, found, asked = Able(), WgmmaConfig(swizzle=4, tile_n=256, stages=2), []
    monkeypatch.setattr(planner, "instructions_of", lambda _: "wgmma")

    def tuned_of(_, family, *key):
        asked.append((family, key[0]))
        return Choice(found) if family == "tensor" else None

    monkeypatch.setattr(planner, "tuned", tuned_of)
    tuned = replace(WIDE, swizzle=4)
    big = 4096, 4096, 4096
    assert config_of(able, "float32", *big) == tuned
    assert config_of(able, "fast", *big) == replace(tuned, guard=False, int8=True)
    assert ("tensor", "large") in asked
    narrow = config_of(able, "float32", 1408, 1408, 1408)
    assert (narrow.tile_n, narrow.swizzle) == (128, 16)
    assert ("tensor", "medium") in asked


def test_tiles_are_searched_where_the_config_has_them():
    """mma has tiles of one size; only their order is searched."""
    wgmma = WGMMA.search_space(Choice(WgmmaConfig(swizzle=16, tile_n=256, stages=2)), TRAITS)
    mma = MMA.search_space(Choice(MmaConfig(swizzle=8)), TRAITS)
    assert set(wgmma.values) == {"tile_n", "stages", "swizzle"}
    assert set(mma.values) == {"swizzle"}
    assert not mma.couples


def test_how_operands_are_split_is_not_searched():
    """It follows from the precision of a call. The family of few rows is not tuned at all."""
    for family in (WGMMA, MMA):
        space = family.search_space(family.plainest(TRAITS), TRAITS)
        assert {"tf32", "guard", "int8"}.isdisjoint(space.values)
    assert not NARROW.search_space(NARROW.plainest(TRAITS), TRAITS).values


SHAPE = Shape(70, 90, 713)


def exact(a, b):
    """Return a product that is rounded once."""
    return (a.astype(np.float64) @ b).astype(np.float32)


def without_infinity(c):
    """Lose what overflowed."""
    return np.where(np.isinf(c), 0, c)


def off_by_bits(c):
    """Err as products of halves do."""
    return c * np.float32(1 + 2.0**-10)


def without_a_column(c):
    """Leave out the last column."""
    c[:, -1] = 0
    return c


def in_halves(a, b):
    """Return a product whose operands lose the range of float32."""
    with np.errstate(over="ignore"):
        return exact(a.astype(np.float16).astype(np.float32), b.astype(np.float16))


def test_products_of_float32_pass(device):
    """Products by multiply-adds in float32 are right on every device."""

    def multiply(a, b):
        return clgemm.sgemm(1.0, a, b, precision="strict")

    assert inexact(multiply, SHAPE, is_guarded=True) == ""


@pytest.mark.parametrize("lost", [without_infinity, off_by_bits, without_a_column])
def test_a_wrong_product_does_not_pass(lost):
    """A lost infinity, too few bits or an unwritten column is found; exact products pass."""
    with np.errstate(invalid="ignore"):
        assert inexact(exact, SHAPE, is_guarded=True) == ""
        found = inexact(lambda a, b: lost(exact(a, b)), SHAPE, is_guarded=True)
    assert f" at {SHAPE.label}" in found


def test_data_of_wide_range_are_tried_only_where_they_must_be_right():
    """Products that need not hold wide ranges pass without infinities and tiny elements."""

    def multiply(a, b):
        assert np.isfinite(a).all()
        assert np.isfinite(b).all()
        assert max(np.abs(a).max(), np.abs(b).max()) < 10
        return exact(a, b)

    assert inexact(multiply, SHAPE, is_guarded=False) == ""


@pytest.mark.parametrize("tf32", [False, True])
def test_sums_of_24_bits_do_not_pass(tf32):
    """They lose all products of 2**-25 beside a larger one; sums of 26 bits keep them."""

    def added(a, b, last):
        products = a[:, :, None].astype(np.float64) * b
        total = (np.trunc(products / last) * last).sum(axis=1)
        return (np.trunc(total * 2**23) / 2**23).astype(np.float32)

    for last, passes in ((2.0**-23, False), (2.0**-24, False), (2.0**-25, True)):
        assert (adds_coarsely(partial(added, last=last), tf32) == "") == passes


@pytest.mark.parametrize("family", [WGMMA, NARROW])
def test_a_config_that_loses_the_range_of_float32_is_at_fault(family):
    """A family's trial finds operands that were rounded to halves, and passes exact products."""
    shape = Shape(700, 64, 713) if family is NARROW else Shape(700, 900, 713)
    problem = Problem.of(shape, "float32")
    choice = family.defaults(shape, TRAITS)[0]
    with np.errstate(invalid="ignore"):
        assert family.fault(problem, choice, exact) == ""
        assert family.fault(problem, choice, in_halves) != ""


def test_all_of_the_products_are_cut_along_k():
    """Those of a trial are cut with every config."""
    for shape in (tensor.TRIAL, tensor.DEEP_TRIAL):
        for config in wgmma_configs(shape, LIMITS):
            variant = variant_of(WgmmaVariant, config, guard=True)
            tiles = variant.tiles(1, shape.m, shape.n)
            assert variant.cuts(tiles, shape.k, LIMITS).slices > 1
