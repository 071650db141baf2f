"""Tests of the copies that products use in place of operands."""

from __future__ import annotations

import numpy as np
import pytest
from staged import integers

import clgemm
from clgemm.runtime import copying, loans, regions
from clgemm.runtime.loans import lend

pytestmark = pytest.mark.usefixtures("small_pieces", "nothing_stays")


def test_without_the_check_nothing_is_compared(tiled, monkeypatch):
    """Nor is it for memory that nobody can write to; another object may ask for it later."""
    with monkeypatch.context() as patch:
        patch.setattr(copying, "digests", None)
        w, x = integers(30, 30), integers(30, 30)
        fixed = np.frombuffer(w.tobytes(), np.float32).reshape(30, 30)
        held = clgemm.resident(w, check=False)
        with clgemm.resident(fixed) as other:
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
            np.testing.assert_array_equal(clgemm.dot(x, fixed), x @ w)
        assert (held.uses, other.uses) == (1, 1)
    held.release()
    before = w[:]
    with clgemm.resident(w, check=False), clgemm.resident(w):
        np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        before[0, 0] = 100
        with pytest.warns(RuntimeWarning):
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)


def test_a_flag_that_the_program_sets_back_ends_the_use_of_the_copy(tiled):
    """The product reads the array as it is now."""
    w, x = integers(30, 30), integers(30, 30)
    with clgemm.resident(w, check=False) as held:
        w.flags.writeable = True
        w += 1
        np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert held.uses == 0
    assert w.flags.writeable


def test_a_product_within_another_makes_no_copy(tiled):
    """Of a signal handler or a finalizer: it uses copies that are there."""
    w, x = integers(30, 30), integers(30, 30)
    with clgemm.resident(w):
        assert lend(tiled, x, w, is_nested=True).kept[1] is not None
        regions.make_room(tiled)
        assert lend(tiled, x, w, is_nested=True).kept == (None, None)
        assert lend(tiled, x, w).kept[1] is not None


def test_loans_without_resident_arrays_cost_nothing(tiled):
    """One object serves them all."""
    x = integers(4, 4)
    assert lend(tiled, x, x) is loans.NOTHING_KEPT
