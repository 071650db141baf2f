"""Tests of BLAS storage as a matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.blas import smallest_leading, storage_size, window

SIDES = st.integers(0, 6)


@given(SIDES, SIDES, st.integers(0, 3), st.sampled_from("FC"), st.sampled_from([1, 2, -1]))
def test_a_window_is_the_matrix_in_the_storage(rows, columns, gap, order, step):
    """Element (i, j) is i + j ld elements from the start, or i ld + j by rows; it is a view."""
    leading = smallest_leading(rows, columns, order) + gap
    size = storage_size(rows, columns, leading, order)
    whole = np.arange(abs(step) * size, dtype=np.float32)
    x = whole[::step][:size]
    found = window(x, "a", rows, columns, leading, order)
    assert found.shape == (rows, columns)
    for (i, j), value in np.ndenumerate(found):
        assert value == x[i + j * leading if order == "F" else i * leading + j]
    assert not found.size or np.shares_memory(found, whole)


def test_two_dimensional_storage_is_read_in_the_order_of_its_memory():
    """A Fortran-ordered array is the same storage as its transpose."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = np.arange(12, dtype=np.float32).reshape(6, 2).T
    for storage in (x, x.T):
        np.testing.assert_array_equal(window(storage, "a", 2, 6, 2, "F"), expected)


@pytest.mark.parametrize(
    ("size", "leading", "order", "message"),
    [
        (100, 3, "F", "lda=3 is less than the 4 rows of a"),
        (100, 4, "C", "lda=4 is less than the 5 columns of a"),
        (23, 5, "F", "a has 23 elements, but 4 x 5 with lda=5 needs 24"),
        (22, 6, "C", "a has 22 elements, but 4 x 5 with lda=6 needs 23"),
    ],
)
def test_storage_that_is_too_small_is_named(size, leading, order, message):
    """The last column, or row, needs no gap behind it."""
    with pytest.raises(ValueError, match=message):
        window(np.zeros(size, np.float32), "a", 4, 5, leading, order)
    window(np.zeros(24, np.float32), "a", 4, 5, 5, "F")


def test_views_with_gaps_are_no_storage():
    """The error has the shape and the strides."""
    x = np.zeros((8, 9), np.float32)[:, ::2]
    with pytest.raises(ValueError, match=r"shape \(8, 5\) and strides \(36, 8\)"):
        window(x, "a", 2, 2, 2, "F")
