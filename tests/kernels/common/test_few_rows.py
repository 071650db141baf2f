"""How products of a few rows are cut along k."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clgemm.kernels.common.few_rows import slice_of_k


@given(k=st.integers(1, 10**6), most=st.integers(0, 1000), width=st.sampled_from([1, 2, 4, 8, 16]))
def test_no_slice_cuts_a_vector(k, most, width):
    """Slices are whole vectors along k, so that loads of vectors do not cross into the next slice."""
    slice_k = slice_of_k(k, most, width)
    assert slice_k >= 1
    assert slice_k % width == 0
