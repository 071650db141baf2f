"""Tests of the times of a product of accelerated NumPy on either side."""

from __future__ import annotations

import numpy as np
import pytest

from clgemm.accel import task
from clgemm.accel.task import CALL_US, compared
from clgemm.planning.crossovers import Work
from clgemm.runtime import staying
from clgemm.runtime.turns import Product

A = np.ones((8, 8), np.float32)
WORK = Work(8, 8, 8)


def given(monkeypatch, is_hosts, product):
    """Let these be the sides that `clgemm.matmul` would find, and return what is compared."""
    told = []

    def compare(*arguments, **how):
        told.append((arguments, how))
        return is_hosts, product

    monkeypatch.setattr(staying, "compared", compare)
    return told


def test_a_product_takes_longer_than_one_of_matmul(monkeypatch):
    """So it is NumPy's if the device is hardly faster."""
    for host_us, is_hosts in ((901.0 + CALL_US, False), (900.0 + CALL_US, True)):
        told = given(monkeypatch, False, Product(False, host_us, 900.0, True, 70.0))
        found = compared(WORK, A, A, 0.5, {"is_new": True})
        assert found == Product(is_hosts, host_us, 900.0 + CALL_US, True, 70.0)
        assert told == [((A, A, (8, 8, 8, 1), 0.5), {"is_new": True})]


def test_numpy_makes_a_symmetric_product_in_half_the_time(monkeypatch):
    """It is a matrix times its own transpose."""
    given(monkeypatch, False, Product(False, 1000.0, 700.0, True))
    found = compared(WORK._replace(symmetric=True), A, A.T, 1.0, {})
    assert found == Product(True, 500.0, 700.0 + CALL_US, True)


@pytest.mark.parametrize("is_hosts", [True, False])
def test_no_times(is_hosts, monkeypatch):
    """Then products before it do not count."""
    given(monkeypatch, is_hosts, None)
    assert compared(WORK, A, A, 1.0, {}) is None
    assert task.Task(WORK, None, False).compare is None
