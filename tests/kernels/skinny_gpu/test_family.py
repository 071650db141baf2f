"""The skinny_gpu family: which products have few rows."""

from __future__ import annotations

import pytest
from planned import LIMITS, TWO_CORES, traits_with

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.skinny_gpu.family import SKINNY_GPU

GPU, NVIDIA = traits_with(LIMITS), traits_with(LIMITS, is_nvidia=True)


@pytest.mark.parametrize(
    ("shape", "suits"),
    [
        ((2, 1000, 1000), True),
        ((1000, 2, 1000), True),
        ((3, 1000, 1000), False),  # tiles in local memory are faster
        ((1, 64, 64), False),
    ],
)
def test_one_or_two_rows_or_columns_suit(shape, suits):
    """Its kernels can make up to eight, but tiles make three faster."""
    problem = Problem.of(Shape(*shape), "strict")
    assert SKINNY_GPU.suits(problem, GPU) == suits
    assert SKINNY_GPU.fits(problem)


def test_nvidias_caches_serve_few_rows():
    """A is read in place there, with so many loads in flight for all rows together."""
    (plain,) = SKINNY_GPU.defaults(Shape(2, 900, 900), GPU)
    (nvidia,) = SKINNY_GPU.defaults(Shape(2, 900, 900), NVIDIA)
    assert plain.config.chunk > 0
    assert nvidia.config.chunk == 0
    (one,) = SKINNY_GPU.defaults(Shape(1, 900, 900), NVIDIA)
    assert one.config.rows * one.config.ahead == nvidia.config.rows * nvidia.config.ahead


def test_it_runs_on_lanes():
    """CPUs have a family of their own for few rows."""
    assert SKINNY_GPU.runs_on(GPU)
    assert not SKINNY_GPU.runs_on(traits_with(TWO_CORES, "CPU"))
    assert SKINNY_GPU.plainest(GPU).config.width == 1


def test_edge_shapes_are_beside_what_is_loaded_at_a_time():
    """Without a chunk of A in local memory, that is as much as is in flight."""
    for traits in (GPU, NVIDIA):
        (choice,) = SKINNY_GPU.defaults(Shape(2, 900, 900), traits)
        config = choice.config
        depth = config.chunk or config.ahead * config.width
        shapes = SKINNY_GPU.edge_shapes(config)
        assert {depth - 1, depth, 2 * depth + 1} <= {shape.k for shape in shapes}
        assert all(shape.work for shape in shapes)
