"""Tests of what is remembered of products that are repeated."""

from __future__ import annotations

import numpy as np
import pytest

from clgemm.accel import known_sides
from clgemm.accel.known_sides import KnownSide, KnownSides, key_of


def test_not_more_is_remembered_than_a_bound(monkeypatch):
    """Then all is forgotten, and the next is remembered."""
    monkeypatch.setattr(known_sides, "MOST", 2)
    known, side = KnownSides(), KnownSide("size", 5, None, None)
    for number in range(3):
        known.note((number,), side)
    assert [known.find((number,)) for number in range(3)] == [None, None, side]
    known.clear()
    assert known.find((2,)) is None


class Special(np.ndarray):
    """A subclass, whose products mean what it says."""


A, STACK = np.ones((4, 5), np.float32), np.ones((3, 4, 5), np.float32)
NO_KEY = {
    "another dtype": (A, A.T.astype(np.float64)),
    "a list": (A, A.T.tolist()),
    "a subclass": (A.view(Special), np.ones((5, 2), np.float32)),
    "its own transpose": (A, A.T),
    "its own transposes": (STACK, STACK.swapaxes(1, 2)),
}


@pytest.mark.parametrize("case", NO_KEY)
def test_some_products_have_no_key(case):
    """More than shapes and strides tells their side."""
    assert key_of("dot", *NO_KEY[case]) is None


def test_products_with_one_key_have_equal_shapes_and_strides():
    """And one function."""
    others = np.ones((5, 6), np.float32), np.ones((6, 5), np.float32).T
    keys = [key_of(name, A, b) for name in ("dot", "matmul") for b in others]
    assert len(set(keys)) == 4
    assert key_of("dot", A.copy(), others[0].copy()) == keys[0]


def test_the_transpose_of_another_array_is_as_any_other():
    """Though it has the shape and the strides of the array's own."""
    key = key_of("matmul", A, A.copy().T)
    assert key is not None
    assert key == key_of("matmul", A.copy(), A.T)
    assert key_of("dot", A[0], A[0]) is not None
