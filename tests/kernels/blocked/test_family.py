"""The blocked family: where it runs, and its defaults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planned import LIMITS, TWO_CORES, traits_with

import clgemm
from clgemm.core.shapes import Shape
from clgemm.kernels.blocked.family import BLOCKED
from clgemm.testing import assert_product

SHAPE = Shape(1000, 1000, 1000)


def test_it_runs_where_work_items_have_vectors():
    """GPUs spread work-items over lanes and use other families."""
    assert BLOCKED.runs_on(traits_with(TWO_CORES, "CPU"))
    assert not BLOCKED.runs_on(traits_with(LIMITS))


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
