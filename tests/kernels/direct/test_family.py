"""The direct family: which products are small."""

from __future__ import annotations

import pytest
from planned import LIMITS, TWO_CORES, traits_with

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.direct.family import DIRECT

CPU, GPU = traits_with(TWO_CORES, "CPU"), traits_with(LIMITS)


@pytest.mark.parametrize(
    ("shape", "suits"),
    [((32, 32, 32), True), ((33, 32, 32), False), ((32, 32, 32, 50), True), ((900, 7, 900), False)],
)
def test_small_products_need_no_packing(shape, suits):
    """Each product of a batch counts."""
    assert DIRECT.suits(Problem.of(Shape(*shape), "strict"), GPU) == suits


def test_samples_of_a_gpu_are_larger():
    """A GPU may make larger products directly: it takes the plan that is expected to be fastest."""
    assert "small" in DIRECT.samples("GPU")
    assert "small" not in DIRECT.samples("CPU")
    for shape in (shape for shapes in DIRECT.samples("CPU").values() for shape in shapes):
        assert DIRECT.suits(Problem.of(shape, "strict"), CPU)
    for shape in (shape for shapes in DIRECT.samples("GPU").values() for shape in shapes):
        assert DIRECT.candidates(Problem.of(shape, "strict"), GPU)
    assert not DIRECT.candidates(Problem.of(Shape(500, 500, 500), "strict"), GPU)
