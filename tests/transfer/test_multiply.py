"""Tests of one product from checked operands."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from injection import TRANSFER
from whole_numbers import FUNCTIONS, whole

import clgemm
from clgemm import accel, blas, numpy_rules, products
from clgemm.transfer import call_cache, multiply


@pytest.fixture
def counted(monkeypatch):
    """Count how often a call resolves its precision and makes its signature."""
    counts = collections.Counter()

    def counting(name, function):
        def call(*arguments):
            counts[name] += 1
            return function(*arguments)

        return call

    for module in (blas, numpy_rules, products, multiply, call_cache):
        for name in ("chosen_precision", "call_signature"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    monkeypatch.setattr(call_cache, "_calls", {})
    return counts


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_call_resolves_its_precision_once_and_has_one_signature(counted, placed, function):
    """First and repeated calls resolve the precision once and make one signature.

    The same device arrays for the fourth time need none.
    """
    a, b, out = placed(whole(20, 30)), placed(whole(30, 10)), placed(whole(20, 10))
    for target, again in ((None, 0), (None, 0), *((out, i) for i in range(5))):
        counted.clear()
        FUNCTIONS[function](a, b, target)
        signatures = 0 if again > 2 and not isinstance(a, np.ndarray) else 1
        assert (counted["chosen_precision"], counted["call_signature"]) == (1, signatures)


def test_calls_that_are_never_repeated_resolve_their_precision_once(counted, placed):
    """Calls without a cache (inner, flat mode, overlaps, scaling) resolve precision once."""
    a, b = placed(whole(20, 20)), placed(whole(20, 20))
    flat = placed(whole(400))
    calls = (
        lambda: clgemm.inner(a, b),
        lambda: clgemm.tensordot(a, b, 1),
        lambda: clgemm.matmul(a, b, out=a),
        lambda: clgemm.sgemm(0.0, a, b),
        lambda: clgemm.sgemm(1.0, flat, flat, m=20, n=20, k=20, lda=20),
    )
    for call in calls:
        counted.clear()
        call()
        assert counted["chosen_precision"] == 1


def test_tiles_and_accelerated_products_resolve_their_precision_once(counted, device):
    """Products through transfers and products of accelerated NumPy resolve it once."""
    a, b = whole(300, 300), whole(300, 300)
    with clgemm.device(clgemm.Device(device.cl_device, transfer=TRANSFER)):
        clgemm.sgemm(1.0, a, b)
    assert counted["chosen_precision"] == 1
    with clgemm.device(device), accel.enabled(threshold=0):
        for product in (lambda: a @ b, lambda: np.dot(a, b), lambda: np.inner(a, b)):
            counted.clear()
            product()
            assert counted["chosen_precision"] == 1
