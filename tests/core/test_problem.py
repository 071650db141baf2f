"""Tests of a product as numbers."""

from __future__ import annotations

import pytest

from clgemm.core.layout import Layout
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape


@pytest.mark.parametrize("shape", [Shape(3, 5, 7), Shape(3, 5, 7, 4), Shape(1, 1, 1)])
def test_a_product_of_a_shape_has_that_shape(shape):
    """Its matrices are dense and row-major; a batch of one is no batch."""
    problem = Problem.of(shape, "strict")
    assert problem.shape == shape
    assert all(len(x.batch) == (shape.matrices > 1) for x in problem.layouts)
    for x in problem.layouts:
        elements = x.rows * x.columns * shape.matrices
        assert x.extent == (0, elements - 1)


def test_the_transposed_product_exchanges_operands_and_sides():
    """Transposed twice, it is the product itself."""
    problem = Problem.of(Shape(3, 5, 7, 2), "strict")
    other = problem.transposed()
    assert other.shape == Shape(5, 3, 7, 2)
    assert other.a == problem.b.transposed()
    assert other.transposed() == problem


def test_a_scaling_reads_neither_operand():
    """It is a product with k = 0 and without a precision."""
    problem = Problem.of(Shape(3, 5, 7, 2), "strict").scaling()
    assert problem.shape == Shape(3, 5, 0, 2)
    assert problem.precision is None


def test_a_batch_that_shares_b_is_one_taller_product():
    """Broadcast operands of a dense batch fold; the work stays the same."""
    a, b = Layout((4, 3, 7), (21, 7, 1)), Layout((7, 5), (5, 1))
    problem = Problem(a, b, Layout((4, 3, 5), (15, 5, 1)), "strict").broadcast()
    assert problem.b == Layout((4, 7, 5), (0, 5, 1))
    assert problem.folded().shape == Shape(12, 5, 7)
    assert problem.folded().shape.work == problem.shape.work
