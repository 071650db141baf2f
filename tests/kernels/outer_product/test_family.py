"""The outer_product family: which products have a short k."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, TWO_CORES, traits_with

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.outer_product.family import OUTER_PRODUCT
from clgemm.planning import planner

MANY_UNITS = replace(LIMITS, compute_units=132)
GPU = traits_with(MANY_UNITS, is_nvidia=True)


class Gpu:
    """A device without records."""

    kind, limits, traits = "GPU", MANY_UNITS, GPU


def test_it_runs_on_lanes():
    """A CPU's work-item writes whole vectors by itself."""
    assert OUTER_PRODUCT.runs_on(GPU)
    assert not OUTER_PRODUCT.runs_on(traits_with(TWO_CORES, "CPU"))


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
