"""The direct family: which products are small."""

from __future__ import annotations

import pytest
from planned import LIMITS, TWO_CORES, traits_with

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.direct.family import DIRECT

CPU, GPU = traits_with(TWO_CORES, "CPU"), traits_with(LIMITS)


@pytest.mark.parametrize(
    ("traits", "shape", "suits"),
    [
        (CPU, (32, 32, 32), True),
        (CPU, (33, 32, 32), False),
        (CPU, (32, 32, 32, 50), True),
        (CPU, (1000, 7, 1000), True),  # panels would be mostly padding
        (CPU, (1000, 8, 1000), False),
        (GPU, (96, 96, 96), True),
        (GPU, (97, 96, 96), False),
        (GPU, (16, 16, 16, 50), True),
        (GPU, (17, 16, 16, 50), False),  # tiles keep a GPU busy
        (GPU, (1000, 7, 1000), False),
    ],
)
def test_small_products_need_no_packing(traits, shape, suits):
    """Small is less in a batch on a GPU; on a CPU, a product with a short side is small too."""
    assert DIRECT.suits(Problem.of(Shape(*shape), "strict"), traits) == suits


def test_samples_of_a_gpu_are_larger():
    """A GPU makes larger products directly, and smaller ones in batches."""
    assert "small" in DIRECT.samples("GPU")
    assert "small" not in DIRECT.samples("CPU")
    for kind, traits in (("CPU", CPU), ("GPU", GPU)):
        shapes = [shape for shapes in DIRECT.samples(kind).values() for shape in shapes]
        assert all(DIRECT.suits(Problem.of(shape, "strict"), traits) for shape in shapes)
