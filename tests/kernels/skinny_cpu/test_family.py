"""The skinny_cpu family: which products have few rows."""

from __future__ import annotations

import pytest
from planned import LIMITS, TWO_CORES, dense, traits_with

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.kernels.skinny_cpu.family import SKINNY_CPU

CPU = traits_with(TWO_CORES, "CPU", is_vector_compiler=True)


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        ((64, 1100, 1000), True),
        ((1100, 64, 1000), True),
        ((65, 1000, 1000), False),
        ((1, 3, 2), True),
        ((1000, 65, 1), False),
    ],
)
def test_few_rows_or_columns_are_compared(shape, fits):
    """At most 64: one choice, which the planner compares with those of other families."""
    problem = Problem.of(Shape(*shape), "strict")
    choices = SKINNY_CPU.candidates(problem, CPU)
    assert choices == (SKINNY_CPU.defaults(problem.shape, CPU) if fits else ())


def test_the_large_operand_is_read_in_place():
    """Neither its rows nor its columns are contiguous: the product is another family's."""
    b = dense(500, 600)._replace(strides=(1200, 2))
    problem = Problem(dense(4, 500), b, dense(4, 600), "strict")
    assert not SKINNY_CPU.fits(problem)
    assert not SKINNY_CPU.takes_any_strides
    assert not SKINNY_CPU.runs_on(traits_with(LIMITS))


def test_the_operand_of_few_rows_is_copied_row_by_row():
    """Every choice copies by panels of one row."""
    for choice in (*SKINNY_CPU.defaults(Shape(4, 900, 900), CPU), SKINNY_CPU.plainest(CPU)):
        assert not list(SKINNY_CPU.problems(choice, TWO_CORES))
        assert [pack.panel for pack in choice.pack] == [1]


def test_edge_shapes_are_beside_a_strip_and_a_chunk():
    """All of them have few rows, and columns on both sides of a strip."""
    (choice,) = SKINNY_CPU.defaults(Shape(4, 900, 900), CPU)
    shapes, strip = SKINNY_CPU.edge_shapes(choice.config), choice.config.strip
    assert all(shape.m <= 8 for shape in shapes)
    assert {shape.n < strip for shape in shapes} == {True, False}
