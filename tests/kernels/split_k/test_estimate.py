"""The expected time of adding up partial products."""

from __future__ import annotations

import pytest

from clgemm.core.costs import H200
from clgemm.kernels.split_k.estimate import reduce_us


def test_every_slice_is_read_and_the_sum_is_written_once():
    """Besides a fixed time, slices and elements add their own."""
    one, two, three = (reduce_us(10**6, slices, H200) for slices in (1, 2, 3))
    assert three - two == pytest.approx(two - one)
    assert two - one == pytest.approx(10**6 / H200.reduce_elements)
    assert reduce_us(0, 5, H200) == H200.reduce_us
