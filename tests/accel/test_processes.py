"""Tests of arrays from other processes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from clgemm.accel import enabled, report

A = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    "product",
    [np.dot, np.inner, np.matmul, np.tensordot, lambda a, b: a.dot(b), lambda a, b: a @ b],
    ids=["dot", "inner", "matmul", "tensordot", "ndarray.dot", "operator"],
)
@pytest.mark.parametrize("copied", ["both", "first", "second"])
def test_an_array_that_was_pickled_is_float32(product, copied, device):
    """Pickled arrays have a dtype object of their own, and their products run on the device."""
    a, b = A, (A if product is np.inner else A.T)
    axes = {"axes": 1} if product is np.tensordot else {}
    expected = product(a, b, **axes)
    if copied != "second":
        a = pickle.loads(pickle.dumps(a))
        assert a.dtype is not A.dtype
    if copied != "first":
        b = pickle.loads(pickle.dumps(b))
    with enabled(threshold=0, device=device):
        found = product(a, b, **axes)
    assert report().offloaded == 1
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("product", [np.dot, np.matmul, lambda a, b: a @ b])
def test_a_double_array_that_was_pickled_is_counted(product, device):
    """A product of pickled float64 arrays is counted on the host, for its dtype."""
    a = pickle.loads(pickle.dumps(A.astype(np.float64)))
    with enabled(threshold=0, device=device):
        product(a, A.T)
        product(a, a.T)
    assert report().stayed == {"dtype": 2}


def test_the_report_tells_the_size_of_what_was_offloaded(device):
    """The report counts the bytes of offloaded operands and results, anew each time."""
    stack = np.ones((5, 4, 3), np.float32)
    with enabled(threshold=0, device=device):
        np.dot(A, A.T)
        A.astype("d") @ A.T
    assert report().offloaded_bytes == 4 * (12 + 12 + 9)
    with enabled(threshold=0, device=device):
        np.matmul(A, stack)
    assert report().offloaded_bytes == 4 * (12 + 60 + 45)
