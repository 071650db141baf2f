"""Tests of what is found out about results, and told of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from clgemm.runtime import finite
from clgemm.runtime.finite import is_finite, watch, watched


def test_only_those_who_ask_are_told():
    """The innermost of this thread, while its block lasts."""
    seen = []
    assert watch() is None
    with watched() as outer:
        assert watch() is outer
        with watched(is_wanted=False):
            assert watch() is None
        with watched() as inner:
            assert watch() is inner
            thread = threading.Thread(target=lambda: seen.append(watch()))
            thread.start()
            thread.join()
        assert watch() is outer
    assert watch() is None
    assert seen == [None]
    assert outer.elements == inner.elements == 0


LARGE = np.ones((30, 40, 50), np.float32)
VIEWS = {
    "dense": LARGE,
    "transposed": LARGE.transpose(2, 0, 1),
    "reversed": LARGE[::-1, :, ::-1],
    "with gaps": LARGE[:, 3:30:2, 5:],
    "small": LARGE[0, 0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("where", ["host", "device"])
def test_an_element_that_is_not_finite_is_found(view, where, device, monkeypatch):
    """In any layout, by the host and by a device that reads host arrays."""
    monkeypatch.setattr(finite, "LEAST_ON_DEVICE", 1 if where == "device" else 2**40)
    c = VIEWS[view]
    assert is_finite(c, device)
    for place in ((0,) * c.ndim, (-1,) * c.ndim, tuple(n // 2 for n in c.shape)):
        for value in (np.nan, np.inf, -np.inf):
            c[place] = value
            assert not is_finite(c, device)
            c[place] = 1
    assert is_finite(c, device)


def test_every_number_of_float16_is_told_apart(device):
    """Of all 65,536 numbers of float16, those are finite that NumPy calls finite."""
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    assert all(is_finite(x, device) == np.isfinite(x).all() for x in every[:, None])
    assert is_finite(every[np.isfinite(every)][::-3], device)
    assert is_finite(np.full(2**12, 60000, np.float16), device)
    assert is_finite(every[:0], device)
