"""Tests of the bounds on rounding errors."""

from __future__ import annotations

import numpy as np
import pytest

import clgemm
from clgemm.testing import error_bound, gamma
from clgemm.testing.bounds import SMALLEST_NORMAL

RNG = np.random.default_rng(27)


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
