"""Tests of the assertions about matrix products, and of the bounds on their errors."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest

import clgemm
from clgemm.testing import (
    assert_bitwise_repeatable,
    assert_exact_product,
    assert_product,
    error_bound,
    gamma,
)
from clgemm.testing.assertions import SMALLEST_NORMAL
from clgemm.testing.problems import made

RNG = np.random.default_rng(27)


def test_the_message_names_the_worst_element():
    """The message has place, both values, the error in units of the bound, row and column."""
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    wrong = (a @ b).astype(np.float32)
    wrong[1, 2] += 1
    wrong[0, 0] += 0.001
    with pytest.raises(AssertionError) as caught:
        assert_product(wrong, a, b, precision="strict")
    text = str(caught.value)
    units = 1 / (gamma(5) * (a @ b)[1, 2])
    assert "m=2, n=4, k=3, alpha=1, beta=0, precision='strict'" in text
    assert "2 of 8 elements are wrong" in text
    assert f"C[1, 2] is {wrong[1, 2]:.9g} instead of {(a @ b)[1, 2]:.9g}" in text
    assert f"its error is {units:.4g} times the bound" in text
    assert "row 1 of op(A): [3. 4. 5.]" in text
    assert "column 2 of op(B): [ 2.  6. 10.]" in text


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (np.ones((2, 2), np.float32), "has shape \\(2, 2\\), not \\(1, 1\\)"),
        (np.ones((1, 1)), "has dtype float64, not float32"),
        (np.full((1, 1), np.nan, np.float32), "is nan instead of 1"),
        (np.full((1, 1), np.inf, np.float32), "is inf instead of 1"),
    ],
)
def test_wrong_results_of_other_kinds_are_named(result, words):
    """A wrong shape, a wrong dtype and a NaN or infinity too many are named."""
    with pytest.raises(AssertionError, match=words):
        assert_product(result, [[1.0]], [[1.0]])


def test_special_values_must_stand_where_ieee_puts_them():
    """NaN, and an infinity of that sign; "fast" promises neither, and overflow is not compared."""
    a, b = np.float32([[np.inf, 1.0], [2.0, 3.0]]), np.ones((2, 1), np.float32)
    assert_product(np.float32([[np.inf], [5.0]]), a, b)
    assert_product(np.float32([[np.nan], [5.0]]), a, b, precision="fast")
    for wrong in (np.nan, -np.inf, 1.0):
        with pytest.raises(AssertionError, match="instead of inf"):
            assert_product(np.float32([[wrong], [5.0]]), a, b)
    huge = np.full((1, 1), 2.0**100, np.float32)
    assert_product(np.float32([[np.inf]]), huge, huge)
    assert_product(np.float32([[0.0]]), huge, huge * np.nan, alpha=0.0)


def test_products_of_every_kind_are_compared(opencl_device):
    """Transposes, batches, C and device arrays are compared as sgemm and matmul make them."""
    a, b, c = (made("normal", RNG, s) for s in ((5, 3), (4, 5), (3, 4)))
    result = clgemm.sgemm(2.0, a, b, -1.0, c, trans_a=1, trans_b=1)
    assert_product(result, a, b, 2.0, -1.0, c, trans_a=1, trans_b=1)
    with pytest.raises(AssertionError, match=r"C\[\d, \d\] before: "):
        assert_product(result, a, b, 2.0, 1.0, c, trans_a=1, trans_b=1)
    x, y = made("wide", RNG, (2, 1, 5, 3)), made("wide", RNG, (3, 3, 4))
    assert_product(clgemm.matmul(x, y), x, y)
    wrong = clgemm.matmul(x, y)
    wrong[1, 2, 3, 1] *= 2
    with pytest.raises(AssertionError, match=r"C\[1, 2, 3, 1\] is"):
        assert_product(wrong, x, y)
    on_device = [cl_array.to_device(opencl_device.queue, np.ascontiguousarray(m)) for m in (a, c)]
    assert_product(clgemm.matmul(*on_device), *on_device)


def test_a_repeated_call_must_give_the_same_bits():
    """A function that returns other bits is caught, though the values compare equal."""
    values = iter([0.0, -0.0])
    with pytest.raises(AssertionError, match=r"1 of 4 elements; the first is \(1, 0\): "):
        assert_bitwise_repeatable(
            lambda: np.array([[np.nan, 1], [next(values), 2]], np.float32), repeats=2
        )
    with pytest.raises(ValueError, match="repeats=1 is less than 2"):
        assert_bitwise_repeatable(np.ones, 3, repeats=1)
    sizes = iter([3, 4])
    with pytest.raises(AssertionError, match=r"returned float64 \(4,\), call 1 float64 \(3,\)"):
        assert_bitwise_repeatable(lambda: np.ones(next(sizes)), repeats=2)
    counts = iter([1, 2])
    with pytest.raises(AssertionError, match="call 2 returned 2 arrays, call 1 1"):
        assert_bitwise_repeatable(lambda: (np.ones(1),) * next(counts), repeats=2)


def test_what_a_function_writes_to_is_put_back_before_each_call(opencl_device):
    """An operand that is updated has its first values in every call."""
    a, c = made("normal", RNG, (30, 30)), made("normal", RNG, (30, 30))
    before = c.copy()
    result = assert_bitwise_repeatable(clgemm.sgemm, 1.0, a, a, 1.0, c, overwrite_c=1)
    assert_product(result, a, a, 1.0, 1.0, before)
    on_device = cl_array.to_device(opencl_device.queue, a)
    assert_bitwise_repeatable(clgemm.matmul, on_device, on_device)
    assert_bitwise_repeatable(lambda x: (x, [1.0]), a)


@pytest.mark.parametrize(("precision", "roundings"), [("strict", 2), ("float32", 64)])
def test_the_bound_is_higham_s(precision, roundings):
    """error_bound is gamma(k + 2 or 64) (|alpha| |A| |B| + |beta| |C|), batches included."""
    a, b, c = (RNG.standard_normal(s) for s in ((2, 1, 5, 7), (3, 7, 4), (5, 4)))
    expected = gamma(7 + roundings) * (2 * (abs(a) @ abs(b)) + 3 * abs(c))
    found = error_bound(a, b, -2.0, 3.0, c, precision=precision)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with clgemm.precision(precision):
        np.testing.assert_array_equal(error_bound(a, b, -2.0, 3.0, c), found)


def test_the_bound_of_fast_is_for_whole_rows():
    """In "fast", the largest elements of each 64 along k count for all of them."""
    a, b = np.ones((1, 70)), np.ones((70, 1))
    a[0, 3] = 5.0
    expected = gamma(70 + 128) * (64 * 5 + 64)
    np.testing.assert_allclose(error_bound(a, b, precision="fast"), [[expected]])


def test_the_bound_allows_for_underflow_where_it_may_happen():
    """What is lost below 2**-126 is allowed for small operands only; NaN counts as 0."""
    small, large = np.full((1, 1), 2.0**-70), np.full((1, 1), 2.0**-40)
    assert error_bound(small, small)[0, 0] >= SMALLEST_NORMAL
    assert error_bound(large, large, precision="strict")[0, 0] == gamma(3) * 2.0**-80
    assert error_bound([[np.nan, 1.0]], [[1.0], [2.0]], precision="strict") == gamma(4) * 2
    assert error_bound([[1.0]], [[1.0]], 0.0, 0.0, precision="strict") == 0


def test_exact_products_of_integers_and_booleans():
    """Sums wrap around in the dtype of the result; booleans are ors of ands."""
    a, b = np.full((3, 4), 100, np.int8), np.full((4, 5), 3, np.int8)
    assert_exact_product(a @ b, a, b)
    assert_exact_product([[7]], [[3, 1]], [[2], [1]])
    assert_exact_product(np.matmul(a, b, dtype=np.int32), a, b)
    assert_exact_product((a @ b) != 0, a != 0, b != 0)
    wrong = a @ b
    wrong[2, 1] += 1
    with pytest.raises(AssertionError, match=r"1 of 15 .* first at \(2, 1\): -79 in place of -80"):
        assert_exact_product(wrong, a, b)
    with pytest.raises(AssertionError, match=r"shape \(3, 4\), not \(3, 5\)"):
        assert_exact_product(a, a, b)
    with pytest.raises(AssertionError, match="dtype float64"):
        assert_exact_product(np.zeros((3, 5)), a, b)
    with pytest.raises(TypeError, match="a has dtype float32"):
        assert_exact_product(a @ b, a.astype(np.float32), b)
