"""Tests of accelerated products that are repeated."""

from __future__ import annotations

import numpy as np
import pytest
from accelerated import integers, offloading

import clgemm

PRODUCTS = {
    "matmul": lambda a, b: np.matmul(a, b),
    "operator": lambda a, b: a.T @ b,
    "stack": lambda a, b: np.stack([a, a]) @ b,
    "a vector": lambda a, b: a @ b[:, 0],
    "dot": lambda a, b: np.dot(a, b),
    "dot of more axes": lambda a, b: np.dot(np.stack([a, a]), np.stack([b, b])),
    "method": lambda a, b: a[::-1].dot(b[:, ::2]),
    "out": lambda a, b: np.matmul(a, b, out=np.empty((33, 33), np.float32)),
    "dot with out": lambda a, b: np.dot(a, b, out=np.empty((33, 33), np.float32)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_repeated_is_planned_once(name, device, planned):
    """The products are those of the operands at hand, and each is counted."""
    product = PRODUCTS[name]
    for _ in range(3):
        a, b = integers(33, 33), integers(33, 33)
        expected = product(a, b)
        with clgemm.device(device), offloading(1):
            found = product(a, b)
        np.testing.assert_array_equal(found, expected)
    assert len(planned) == 1


def test_a_result_that_overlaps_an_operand_is_right_each_time(device):
    """Such a call is not repeated without checks."""
    a = integers(33, 33)
    with clgemm.device(device), offloading():
        for _ in range(3):
            b = integers(33, 33)
            expected = a.astype(np.int64) @ b.astype(np.int64)
            np.matmul(a, b, out=b)
            np.testing.assert_array_equal(b, expected)


def test_another_precision_is_another_call(device, planned):
    """Its plan may be another one."""
    a = integers(33, 33)
    with clgemm.device(device), offloading():
        for precision in ("strict", "float32", "strict", "float32"):
            with clgemm.precision(precision):
                np.testing.assert_array_equal(a @ a, a.astype(np.int64) @ a.astype(np.int64))
    assert len(planned) == 2


def test_a_wrong_precision_of_the_environment_is_no_products_fault(device, monkeypatch):
    """NumPy makes the product then."""
    a = integers(33, 33)
    with clgemm.device(device), offloading():
        assert (a @ a).any()
        monkeypatch.setenv("CLGEMM_PRECISION", "good")
        np.testing.assert_array_equal(a @ a, a.astype(np.int64) @ a.astype(np.int64))
