"""Tests of the products that a GPU makes faster than NumPy's loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.planning.gpu_choice import suits_batch, suits_copied, suits_elements
from clgemm.planning.host_times import BatchKind

OWN_B, ONE_B, FOLDED = BatchKind


@pytest.mark.parametrize(
    ("sizes", "kind", "expected"),
    [
        # m, n, k and matrices, as measured on an H100: microseconds of NumPy and of the GPU.
        ((234, 17, 104, 1554), ONE_B, True),  # 32000, 6300
        ((5, 109, 501, 557), ONE_B, True),  # 7700, 2100
        ((240, 42, 74, 1351), OWN_B, True),  # 35000, 5600
        ((52, 5, 275, 2523), OWN_B, True),  # 19200, 6300
        ((475, 94, 10, 13), ONE_B, False),  # 190, 930
        ((17, 37, 9, 658), OWN_B, False),  # 210, 1160
        ((140, 3, 440, 11), OWN_B, False),  # 170, 1160
        ((4000, 4000, 4000, 1), OWN_B, False),  # no loop
        ((500, 1, 500, 1000), OWN_B, False),  # a matrix times a vector
        ((4096, 16, 4096, 100), OWN_B, False),  # large matrices
    ],
)
def test_long_loops_suit_a_gpu(sizes, kind, expected):
    """Where NumPy's calls of BLAS take longer than the transfers."""
    assert suits_batch(*sizes, 1.0, kind) == expected


@given(
    m=st.integers(1, 500),
    n=st.integers(1, 500),
    k=st.integers(1, 500),
    matrices=st.integers(1, 3000),
    sent=st.floats(0, 1),
)
def test_what_is_not_sent_speaks_for_the_gpu(m, n, k, matrices, sent):
    """How A lies does not matter."""
    suits = suits_batch(m, n, k, matrices, sent)
    assert suits_batch(m, n, k, matrices, sent / 2) >= suits
    assert suits_batch(m, n, k, matrices, sent, FOLDED) == suits_batch(
        m, n, k, matrices, sent, ONE_B
    )


def test_a_gpu_sums_sooner_than_numpy_from_a_time_on():
    """It is longer for larger operands."""
    assert not suits_elements(100, 100, 100, 1.0, 75.0)
    assert suits_elements(100, 100, 100, 1.0, 300.0)
    assert not suits_elements(3000, 3000, 100, 1.0, 1000.0)
    assert suits_elements(3000, 3000, 100, 0.0, 1000.0)


@pytest.mark.parametrize(
    ("sizes", "copied", "expected"),
    [
        # m, n and k, as measured on an H200 and an H100: microseconds of NumPy and of the GPU.
        ((1475, 17, 1465), 2_160_875, True),  # 2800, 1400
        ((1698, 277, 5463), 9_276_174, True),  # 41600, 4200
        ((390, 958, 999), 1_346_652, True),  # 2200, 1600
        ((2725, 1207, 268), 730_300, True),  # 2300, 1100
        ((2085, 8, 123), 984, False),  # 29, 320
        ((11, 378, 1161), 451_629, False),  # 340, 440
        ((145, 49, 1398), 271_212, False),  # 260, 340
        ((10, 38, 5680), 272_640, False),  # 410, 580
        ((1475, 17, 1465), 0, False),
        ((7, 3000, 3000), 9_000_000, False),  # not measured
    ],
)
def test_copies_that_numpy_makes_suit_a_gpu(sizes, copied, expected):
    """Where they and the product take longer than the transfers."""
    assert suits_copied(*sizes, 1.0, copied) == expected
