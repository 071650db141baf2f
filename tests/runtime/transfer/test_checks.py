"""Tests of what the device sees of a result before it is sent."""

from __future__ import annotations

import numpy as np
import pytest
from staged import TINY, integers

import clgemm
from clgemm.core.threads import is_within
from clgemm.runtime.finite import watched
from clgemm.runtime.transfer import pipeline, share

pytestmark = pytest.mark.usefixtures("small_pieces")
SHAPES = {
    "rows": ((90, 40), (40, 300)),
    "columns": ((300, 40), (40, 280)),
    "stack": ((5, 40, 30), (5, 30, 260)),
    "depth": ((9, 3000), (3000, 270)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("value", [1.0, np.nan, np.inf, -np.inf])
def test_a_result_is_known_to_be_finite_only_if_it_is(shape, value, tiled):
    """Wherever the element is that is not."""
    a, b = (integers(*each) for each in SHAPES[shape])
    for place in ((0, 0), (a.shape[-2] - 1, a.shape[-1] - 1), (a.shape[-2] // 2, 3)):
        whole = a[0] if a.ndim > 2 else a
        before, whole[place] = whole[place], value
        with watched() as seen, np.errstate(invalid="ignore"):
            result = clgemm.matmul(a, b)
            np.testing.assert_array_equal(result, a @ b)
        whole[place] = before
        assert seen.elements == (result.size if np.isfinite(value) else 0)


def test_large_numbers_are_not_taken_for_infinite(tiled):
    """Although a sum of them overflows."""
    a, b = np.full((300, 1), 3e38, np.float32), np.ones((1, 300), np.float32)
    with watched() as seen:
        assert np.isfinite(clgemm.matmul(a, b)).all()
    assert seen.elements == 300 * 300


def test_what_is_not_asked_for_is_not_checked(tiled, monkeypatch):
    """Nor what is made within another product, which it does not tell of."""
    made, new = [], share.Checks
    monkeypatch.setattr(share, "Checks", lambda *given: made.append(new(*given)) or made[-1])
    a, b = integers(300, 50), integers(50, 300)
    clgemm.matmul(a, b)
    monkeypatch.setattr(pipeline, "is_within", lambda _: True)
    with watched() as seen:
        clgemm.matmul(a, b)
    assert (made, seen.elements) == ([], 0)
    monkeypatch.setattr(pipeline, "is_within", is_within)
    with watched() as seen:
        clgemm.matmul(a, b)
        clgemm.matmul(a, b)
    assert len(made) == 2
    assert seen.elements == 2 * 300 * 300
    assert TINY.tiles > 1
