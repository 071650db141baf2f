"""Shape classes: where one ends and the next begins, so that every shape has one."""

from __future__ import annotations

import pytest

from clgemm.core.shapes import SHAPE_CLASSES, Shape, fresh, shape_class


@pytest.mark.parametrize(
    ("inside", "outside", "name", "other"),
    [
        ((32, 32, 32), (32, 32, 33), "tiny", "small"),
        ((1, 40, 900), (2, 40, 500), "vector", "deep"),
        ((64, 64, 512), (64, 64, 511), "deep", "small"),
        ((512, 64, 64), (511, 64, 64), "tall", "small"),
        ((64, 512, 64), (64, 511, 64), "wide", "small"),
        ((256, 256, 256), (256, 256, 257), "small", "medium"),
        ((1536, 1536, 1536), (1536, 1536, 1537), "medium", "large"),
        ((256, 256, 256, 2), (256, 256, 257, 2), "batched", "medium"),
        ((8, 8, 8, 2), (8, 8, 8, 1), "batched", "tiny"),
    ],
)
def test_a_class_ends_where_it_says(inside, outside, name, other):
    """The last shape of a class, and the first beyond it."""
    assert shape_class(*inside) == name
    assert shape_class(*outside) == other


def test_a_shape_counts_its_work_and_halves_its_longest_side():
    """Multiply-adds of all matrices; shrunk() and fresh() give a smaller shape, of at least 1."""
    shape = Shape(3, 5, 40, 2)
    assert (shape.work, shape.label) == (1200, "2x3x5x40")
    assert shape.gflop == pytest.approx(2.4e-6)
    assert shape.shrunk() == (3, 5, 20, 2)
    assert Shape(1, 1, 1).shrunk() == (1, 1, 1, 1)
    assert Shape(7, 7, 7).label == "7"
    assert fresh(Shape(7, 8, 100)) == (7, 7, 87, 1)


def test_every_shape_has_a_class():
    """Whatever the sizes."""
    for m, n, k, matrices in ((1, 1, 1, 1), (5000, 1, 1, 1), (7, 9, 100_000, 3), (900, 800, 9, 1)):
        assert shape_class(m, n, k, matrices) in SHAPE_CLASSES
