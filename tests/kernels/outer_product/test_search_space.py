"""The search space of the outer_product family."""

from __future__ import annotations

from planned import LIMITS, traits_with

from clgemm.core.shapes import Shape
from clgemm.kernels.outer_product.family import OUTER_PRODUCT

TRAITS = traits_with(LIMITS)


def test_coarse_values_are_values():
    """The coarse grid lies in the space, and so does the default."""
    (default,) = OUTER_PRODUCT.defaults(Shape(100, 100, 2), TRAITS)
    space = OUTER_PRODUCT.search_space(default, TRAITS)
    for names, rows in space.coarse.items():
        for row in rows:
            assert all(x in space.values[name] for name, x in zip(names, row, strict=True))
    point = space.read(default)
    assert all(value in space.values[name] for name, value in point.items())
    assert space.make(point) == default


def test_the_tuner_leaves_it_alone():
    """No shape class has a short k alone."""
    assert OUTER_PRODUCT.samples("GPU") == {}
