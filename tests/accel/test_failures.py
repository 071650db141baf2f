"""Tests of accelerated NumPy when something fails: results are right or errors are raised."""

from __future__ import annotations

import inspect
import itertools
import logging
import signal
import sys
import time

import numpy as np
import pyopencl as cl
import pytest
from accelerated import OTHER, SQUARE, SQUARE_EXACT, PlantedError

from clgemm.accel import enabled, hooks, report, routing
from clgemm.accel.failures import is_near_recursion_limit

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


def plant(monkeypatch, error):
    """Make every product on a device raise an error."""

    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr(hooks, "multiply_into", fail)
    monkeypatch.setattr(hooks, "dot_of", fail)


# Near the recursion limit.


@pytest.mark.parametrize("name", CALLS)
def test_no_result_near_the_recursion_limit_is_memory_as_found(name, device):
    """At every depth of the stack a product is right, or the call raises RecursionError."""
    call = CALLS[name]

    def descend(depth):
        return call(SQUARE, OTHER) if depth == 0 else descend(depth - 1)

    depths = itertools.count(sys.getrecursionlimit() - len(inspect.stack()) - 200)
    found = []
    with enabled(threshold=0):
        for depth in depths:
            _ = np.full(SQUARE.shape, 1234, np.float32)  # fill memory that the result may reuse
            del _
            try:
                result = descend(depth)
            except RecursionError:
                found.append(depth)
                if len(found) > 5:
                    break
            else:
                np.testing.assert_array_equal(result, SQUARE_EXACT)
    assert report().stayed[routing.DEEP] > 50
    assert routing.FAILED not in report().stayed


def test_the_recursion_limit_is_told_from_afar():
    """is_near_recursion_limit is true before the stack is too deep for a product on a device."""

    def descend(depth):
        return is_near_recursion_limit() if depth == 0 else descend(depth - 1)

    depth = len(inspect.stack())
    assert not is_near_recursion_limit()
    assert not descend(sys.getrecursionlimit() - depth - 170)
    assert descend(sys.getrecursionlimit() - depth - 130)


# Errors that are not the device's.


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(
    "error",
    [TypeError("planted"), KeyError("planted"), BytesWarning("planted"), ZeroDivisionError()],
    ids=lambda error: type(error).__name__,
)
def test_an_error_inside_clgemm_leaves_the_product_to_numpy(
    name, error, device, monkeypatch, caplog
):
    """An error inside clgemm is counted and logged once with its traceback; NumPy multiplies."""
    plant(monkeypatch, error)
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(CALLS[name](SQUARE, OTHER), SQUARE_EXACT)
        for _ in range(100):
            time.sleep(1e-4)
        assert report().stayed == {routing.ERROR: 3}
        monkeypatch.undo()
        np.testing.assert_array_equal(CALLS[name](SQUARE, OTHER), SQUARE_EXACT)
    assert report().offloaded == 1  # the device is not to blame
    assert [type(error).__name__ in record.message for record in caplog.records] == [True]
    assert caplog.records[0].exc_info[1] is error


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("error", [PlantedError(), KeyboardInterrupt(), SystemExit()])
def test_an_interruption_is_raised_at_the_call(name, error, device, monkeypatch):
    """An interruption is raised at the call that it hits, and at no other."""
    plant(monkeypatch, error)
    with enabled(threshold=0):
        with pytest.raises(type(error)):
            CALLS[name](SQUARE, OTHER)
        monkeypatch.undo()
        np.testing.assert_array_equal(CALLS[name](SQUARE, OTHER), SQUARE_EXACT)
    assert report().offloaded == 1


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals as POSIX has them")
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("error", [TimeoutError, RuntimeError, ValueError, MemoryError])
def test_a_signal_handlers_exception_is_never_taken_for_the_devices(
    name, error, device, monkeypatch
):
    """SQUARE signal handler's exception is raised at the call, and never blamed on the device."""

    def handler(number, frame):
        raise error("planted")

    def interrupt(*arguments, **keywords):
        signal.raise_signal(signal.SIGUSR1)

    with enabled(threshold=0):  # Intel's compiler installs handlers of its own at first
        CALLS[name](SQUARE, OTHER)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(hooks, "multiply_into", interrupt)
        monkeypatch.setattr(hooks, "dot_of", interrupt)
        with enabled(threshold=0):
            with pytest.raises(error, match="planted"):
                CALLS[name](SQUARE, OTHER)
            assert report().left_out == ()
            monkeypatch.undo()
            np.testing.assert_array_equal(CALLS[name](SQUARE, OTHER), SQUARE_EXACT)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert report().offloaded == 1


def test_a_failing_log_costs_no_product(device, monkeypatch):
    """An exception in a logging handler does not stop a product."""

    class Handler(logging.Handler):
        def emit(self, _):
            raise OSError("disk full")

    handler = Handler()
    logging.getLogger("clgemm").addHandler(handler)
    plant(monkeypatch, cl.RuntimeError("planted"))
    try:
        with enabled(threshold=0):
            np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
            np.testing.assert_array_equal(np.dot(SQUARE, OTHER), SQUARE_EXACT)
    finally:
        logging.getLogger("clgemm").removeHandler(handler)
    assert report().stayed == {routing.FAILED: 2}
