"""Tests of the products that a GPU makes faster than NumPy's loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.planning.gpu_choice import suits_batch, suits_elements


@pytest.mark.parametrize(
    ("sizes", "shares_b", "expected"),
    [
        # m, n, k and matrices, as measured on an H100: microseconds of NumPy and of the GPU.
        ((234, 17, 104, 1554), True, True),  # 32000, 6300
        ((5, 109, 501, 557), True, True),  # 7700, 2100
        ((240, 42, 74, 1351), False, True),  # 35000, 5600
        ((52, 5, 275, 2523), False, True),  # 19200, 6300
        ((475, 94, 10, 13), True, False),  # 190, 930
        ((17, 37, 9, 658), False, False),  # 210, 1160
        ((140, 3, 440, 11), False, False),  # 170, 1160
        ((4000, 4000, 4000, 1), False, False),  # no loop
        ((500, 1, 500, 1000), False, False),  # a matrix times a vector
        ((4096, 16, 4096, 100), False, False),  # large matrices
    ],
)
def test_long_loops_suit_a_gpu(sizes, shares_b, expected):
    """Where NumPy's calls of BLAS take longer than the transfers."""
    assert suits_batch(*sizes, 1.0, shares_b) == expected


@given(
    m=st.integers(1, 500),
    n=st.integers(1, 500),
    k=st.integers(1, 500),
    matrices=st.integers(1, 3000),
    sent=st.floats(0, 1),
)
def test_what_is_not_sent_speaks_for_the_gpu(m, n, k, matrices, sent):
    """So does a B for all matrices."""
    suits = suits_batch(m, n, k, matrices, sent)
    assert suits_batch(m, n, k, matrices, sent / 2) >= suits
    assert suits_batch(m, n, k, matrices, sent, shares_b=True) >= suits


def test_a_gpu_sums_sooner_than_numpy_from_a_time_on():
    """It is longer for larger operands."""
    assert not suits_elements(100, 100, 100, 1.0, 75.0)
    assert suits_elements(100, 100, 100, 1.0, 300.0)
    assert not suits_elements(3000, 3000, 100, 1.0, 1000.0)
    assert suits_elements(3000, 3000, 100, 0.0, 1000.0)
