"""The expected time of adding up partial products."""

from __future__ import annotations

from clgemm.core.costs import H200
from clgemm.kernels.split_k.estimate import reduce_us


def test_more_elements_and_more_slices_take_longer():
    """The launch has a time of its own, however little it adds up."""
    assert reduce_us(1, 2, H200) >= H200.reduce_us
    times = [
        reduce_us(elements, slices, H200)
        for elements, slices in ((10**4, 2), (10**6, 2), (10**6, 20))
    ]
    assert times == sorted(times)
    assert times[2] > 3 * times[1] > 9 * times[0] > 0
