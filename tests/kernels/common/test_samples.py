"""Tests of the shapes on which families time and check their configs."""

from __future__ import annotations

import pytest

from clgemm.core.shapes import SHAPE_CLASSES, fresh, shape_class
from clgemm.kernels import FAMILIES
from clgemm.kernels.common.samples import tile_edges


@pytest.mark.parametrize("name", SHAPE_CLASSES)
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_samples_stand_for_their_class(name, kind):
    """Each is of its class, and so is what the winner is checked on again."""
    every = [family.samples(kind).get(name, ()) for family in FAMILIES]
    assert any(every)
    for shape in {shape for shapes in every for shape in shapes}:
        assert shape_class(*shape) == shape_class(*fresh(shape)) == name
        assert fresh(shape) != shape


def test_edges_of_a_tile_are_beside_it():
    """Each side of C is beside one and two tiles; there is a batch, and a sum of odd length."""
    shapes = tile_edges(128, 64, 16)
    assert {127, 129, 255, 256} <= {shape.m for shape in shapes}
    assert {63, 65, 127, 128} <= {shape.n for shape in shapes}
    assert any(shape.matrices > 1 for shape in shapes)
    assert any(shape.k % 2 and shape.k > 16 for shape in shapes)
