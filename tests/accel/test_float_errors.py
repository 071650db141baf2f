"""Tests of symmetric results and floating-point errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from accelerated import RANDOM, integers, offloading
from hypothesis import given
from hypothesis import strategies as st
from staged import TINY

import clgemm
from clgemm.accel import hooks, report
from clgemm.hardware.device import Device
from clgemm.runtime import finite
from clgemm.runtime.finite import is_finite
from clgemm.testing import gamma


@pytest.mark.parametrize("n", [7, 130, 600])
def test_products_by_the_own_transpose_are_symmetric(n, device):
    """A product of a matrix by its own transpose is symmetric bit for bit, as in NumPy."""
    a = RANDOM.standard_normal((n, 70)).astype(np.float32)
    stack = RANDOM.standard_normal((3, 20, 15)).astype(np.float32)
    with offloading(6):
        for x in (a @ a.T, np.dot(a.T, a), a.dot(a.T), np.inner(a, a), np.matmul(a.T, a)):
            np.testing.assert_array_equal(x, x.T)
        x = stack @ stack.swapaxes(1, 2)
    np.testing.assert_array_equal(x, x.swapaxes(1, 2))
    wide = stack.astype(np.float64)
    exact, sizes = (y @ y.swapaxes(1, 2) for y in (wide, abs(wide)))
    assert (abs(x - exact) <= gamma(15 + 2) * sizes).all()


def overflowing():
    return np.full((40, 40), 3e38, np.float32), np.full((40, 40), 2, np.float32)


def invalid():
    x = integers(40, 40)
    x[3, 5] = np.inf
    return x, np.zeros((40, 40), np.float32)


def harmless():
    x = integers(40, 40)
    x[3, 5], x[4, 7] = np.inf, np.nan
    return x, integers(40, 40)


PRODUCTS = {"matmul": np.matmul, "operator": lambda a, b: a @ b, "dot": np.dot}


def test_operands_that_are_converted_warn_once(device):
    """An element that float32 cannot hold is a warning of the conversion, as in NumPy, alone."""
    a, b = np.full((40, 30), 1e300), np.ones((30, 20), np.float32)

    def messages():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            np.matmul(a, b, dtype=np.float32, casting="unsafe")
        # NumPy's BLAS may call infinity times its padding invalid.
        return [text for text in (str(each.message) for each in found) if "overflow" in text]

    plain = messages()
    assert plain == ["overflow encountered in cast"]
    with offloading(1):
        assert messages() == plain


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("operands", [overflowing, invalid, harmless])
def test_floating_point_warnings(product, operands, device):
    """A product on the device gives the same floating-point warnings as NumPy's."""
    a, b = operands()

    def warned():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            PRODUCTS[product](a, b)
        return {str(warning.message) for warning in caught}

    expected = warned()
    with offloading(1):
        assert warned() == expected


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_result_that_the_device_has_seen_is_not_read_again(product, device, monkeypatch):
    """Where results are sent, the host looks only at those that may not be finite."""
    staged, looks = Device(device.cl_device, transfer=TINY), []

    def looked(c, _device):
        looks.append(c)
        return is_finite(c, _device)

    monkeypatch.setattr(finite, "is_finite", looked)
    a, b = integers(300, 40), integers(40, 300)
    with clgemm.device(staged), offloading(2):
        np.testing.assert_array_equal(PRODUCTS[product](a, b), a.astype("d") @ b)
        assert looks == []
        a[7, 7] = np.nan
        assert np.isnan(PRODUCTS[product](a, b)).sum() == 300
    assert len(looks) == 1


def test_the_error_state(device):
    """np.errstate works for products on the device; with underflow reported NumPy multiplies."""
    a, b = overflowing()
    with offloading(3):
        with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
            a @ b
        calls = []
        with np.errstate(over="call", call=lambda *error: calls.append(error)):
            np.matmul(a, b)
        assert len(calls) == 1
        with np.errstate(all="ignore"):
            assert np.isinf(a @ b).all()
        with np.errstate(under="warn"):
            integers(20, 20) @ integers(20, 20)
    assert report().stayed == {hooks.UNDERFLOW: 1}


@given(
    st.floats(0, 20),
    st.floats(0, 20),
    st.sampled_from([None, np.nan, np.inf, -np.inf]),
    st.booleans(),
)
def test_what_cannot_overflow_does_not(of_a, of_b, value, in_a):
    """Where it is said, the product is finite; it is said of ordinary operands."""
    a, b = RANDOM.standard_normal((9, 6)), RANDOM.standard_normal((6, 11))
    a, b = (a * 10**of_a).astype(np.float32), (b * 10**of_b).astype(np.float32)
    if value is not None:
        (a if in_a else b)[3, 4] = value
    with np.errstate(all="ignore"):
        if hooks.cannot_overflow(a, b):
            assert np.isfinite(a @ b).all()
            assert value is None
        else:
            assert value is not None or of_a + of_b > 30 or max(of_a, of_b) > 15


@pytest.mark.parametrize("product", PRODUCTS)
def test_small_operands_tell_for_a_large_result(product, device, monkeypatch):
    """The result is looked at only where they cannot."""
    looks = []
    monkeypatch.setattr(finite, "is_finite", lambda *of: looks.append(of) or is_finite(*of))
    a, b = integers(50, 4), integers(4, 50)
    with offloading(2), np.errstate(over="ignore"):
        np.testing.assert_array_equal(PRODUCTS[product](a, b), a.astype("d") @ b)
        assert looks == []
        assert np.isinf(PRODUCTS[product](a * 3e37, b * 3e37)).any()
    assert len(looks) == 1
