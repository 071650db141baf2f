"""Tests of the quick tests for products that NumPy makes."""

from __future__ import annotations

import numpy as np
import pytest

from clgemm.accel.routing import Router
from clgemm.accel.settings import Settings
from clgemm.accel.small import is_small_matmul, small_or_other
from clgemm.accel.tally import Tally
from clgemm.runtime import turns

F = np.float32


@pytest.fixture
def router(monkeypatch):
    """A router that leaves products below 4,096,000 multiply-adds to NumPy, and no spinning."""
    monkeypatch.delenv("CLGEMM_THRESHOLD", raising=False)
    turns.forget()
    yield Router(Settings(), np.matmul)
    turns.forget()


@pytest.mark.parametrize(
    ("a", "b", "small"),
    [
        ((0, 5), (5, 0), True),
        ((3, 0), (0, 4), True),
        ((100, 100), (100, 100), True),
        ((159, 160), (160, 160), True),
        ((160, 160), (160, 160), False),
        ((10, 8, 8), (10, 8, 8), True),
        ((400, 32, 32), (400, 32, 32), False),
        ((5000,), (5000, 2000), False),
    ],
)
def test_small_products_are_told_quickly(a, b, small, router):
    """By the multiply-adds of a product of matrices, or by a bound of them."""
    x, y = np.ones(a, F), np.ones(b, F)
    tally = Tally()
    assert is_small_matmul(router, tally)(x, y) == small
    assert small_or_other(router, tally, "dot")(x, y) == small


def test_other_operands_of_dot_are_numpys(router):
    """Scalars, lists and other dtypes."""
    is_numpys = small_or_other(router, Tally(), "dot")
    large = np.ones((3000, 3000), F)
    assert is_numpys(np.float32(3), large)
    assert is_numpys(np.ones((), F), large)
    assert is_numpys(large.astype("d"), large)
    assert is_numpys([[1.0]], large)


@pytest.mark.parametrize("make", [is_small_matmul, lambda *x: small_or_other(*x, "dot")])
def test_a_program_that_leans_on_the_device_compares_smaller_products(make, router, monkeypatch):
    """Those that NumPy's BLAS would make by several threads."""
    is_small = make(router, Tally())
    threaded, single = np.ones((100, 100), F), np.ones((50, 50), F)
    monkeypatch.setattr(turns._turns, "is_leaning", True)
    assert not is_small(threaded, threaded)
    assert is_small(single, single)
    monkeypatch.setattr(turns._turns, "is_leaning", False)
    monkeypatch.setattr(turns._turns, "has_begun", True)
    before = turns._turns.end
    assert is_small(single, single)
    assert turns._turns.end == before
    assert is_small(threaded, threaded)
    assert turns._turns.end > before
