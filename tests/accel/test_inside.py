"""Tests of the record of running products."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from accelerated import OTHER, SQUARE, SQUARE_EXACT

from clgemm import numpy_rules
from clgemm.accel import enabled, inside, report
from clgemm.accel.inside import RunningProducts

CALLS = {
    "operator": lambda a, b: a @ b,
    "matmul": np.matmul,
    "matmul with keywords": lambda a, b: np.matmul(a, b, order="F"),
    "matmul of float16": lambda a, b: np.matmul(a.astype(np.float16), b),
    "dot": np.dot,
    "method": lambda a, b: a.dot(b),
    "inner": lambda a, b: np.inner(a, b.T),
}


UNARY = sorted({"operator", "matmul", "dot"})


@pytest.mark.parametrize("outer", UNARY)
def test_a_product_within_a_product_is_numpys(outer, device, monkeypatch):
    """NumPy makes a product that starts inside another product of the same thread."""
    multiply, within = numpy_rules._multiply, []

    def around(*arguments):
        within.append(OTHER @ SQUARE)
        multiply(*arguments)

    monkeypatch.setattr(numpy_rules, "_multiply", around)
    with enabled(threshold=0):
        np.testing.assert_array_equal(CALLS[outer](SQUARE, OTHER), SQUARE_EXACT)
    np.testing.assert_array_equal(within, [OTHER.astype(float) @ SQUARE])
    assert report().offloaded == 1
    assert report().stayed == {inside.BUSY: 1}


def test_a_product_that_was_broken_off_keeps_no_later_one_out():
    """SQUARE product that an exception ended before `leave` does not stop later products."""
    running = RunningProducts()

    def product(ends):
        entered = running.enter()
        if ends:
            running.leave()
        return entered

    assert product(ends=False) is None
    assert product(ends=True) is None
    assert product(ends=True) is None

    def outer():
        assert running.enter() is None
        return product(ends=True)

    assert outer() == inside.BUSY


def test_the_exit_waits_for_products_and_lets_no_other_begin():
    """close waits at most its time for other threads' products, and no product begins after it."""
    running = RunningProducts()
    entered, done = threading.Event(), threading.Event()

    def product():
        assert running.enter() is None
        entered.set()
        done.wait(60)
        running.leave()

    thread = threading.Thread(target=product)
    thread.start()
    entered.wait(60)
    running.close(0.01)  # gives up
    assert running.enter() == inside.CLOSED
    threading.Timer(0.05, done.set).start()
    running.close(60)
    assert done.is_set()
    thread.join()
