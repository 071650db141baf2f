"""The direct family: which products are small."""

from __future__ import annotations

import pytest
from planned import LIMITS, TWO_CORES, traits_with

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.direct.family import DIRECT

CPU, GPU = traits_with(TWO_CORES, "CPU"), traits_with(LIMITS)
VECTORS = traits_with(TWO_CORES, "CPU", is_vector_compiler=True)


@pytest.mark.parametrize(
    ("traits", "shape", "suits"),
    [
        (CPU, (32, 32, 32), True),
        (CPU, (33, 32, 32), False),
        (CPU, (32, 32, 32, 50), True),
        (CPU, (1000, 7, 1000), True),  # panels would be mostly padding
        (CPU, (1000, 8, 1000), False),
        (VECTORS, (1000, 7, 1000), False),
        (VECTORS, (1000, 1, 1000), True),
        (GPU, (32, 32, 32), True),
        (GPU, (33, 32, 32), False),
        (GPU, (1000, 7, 1000), False),
    ],
)
def test_small_products_need_no_packing(traits, shape, suits):
    """Each product of a batch counts; with vectors, a product with a short side is small too."""
    assert DIRECT.suits(Problem.of(Shape(*shape), "strict"), traits) == suits


def test_samples_of_a_gpu_are_larger():
    """A GPU may make larger products directly: it takes the plan that is expected to be fastest."""
    assert "small" in DIRECT.samples("GPU")
    assert "small" not in DIRECT.samples("CPU")
    for shape in (shape for shapes in DIRECT.samples("CPU").values() for shape in shapes):
        assert DIRECT.suits(Problem.of(shape, "strict"), CPU)
    for shape in (shape for shapes in DIRECT.samples("GPU").values() for shape in shapes):
        assert DIRECT.candidates(Problem.of(shape, "strict"), GPU)
    assert not DIRECT.candidates(Problem.of(Shape(500, 500, 500), "strict"), GPU)
