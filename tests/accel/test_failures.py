"""Tests of accelerated NumPy when something fails: results are right or errors are raised."""

from __future__ import annotations

import inspect
import itertools
import logging
import signal
import sys
import threading
import time

import numpy as np
import pyopencl as cl
import pytest
from accelerated import OTHER, SQUARE, SQUARE_EXACT, PlantedError, expect, forget_products, integers

from clgemm import numpy_rules
from clgemm.accel import enabled, failures, install, report, uninstall
from clgemm.accel.failures import Failures, RunningProducts, is_near_recursion_limit
from clgemm.hardware import choice
from clgemm.hardware.choice import BrokenDeviceError, NoDeviceError
from clgemm.runtime.readiness import NotReadyError
from clgemm.side import counts, decision, preparation

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

    monkeypatch.setattr(numpy_rules, "_multiply", fail)


@pytest.fixture
def failing_log():
    """A logging handler that raises."""

    class Handler(logging.Handler):
        def emit(self, _):
            raise OSError("disk full")

    handler = Handler()
    logging.getLogger("clgemm").addHandler(handler)
    yield
    logging.getLogger("clgemm").removeHandler(handler)


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
    assert report().stayed[failures.DEEP] > 50
    assert failures.FAILED not in report().stayed


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
        assert report().stayed == {failures.ERROR: 3}
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
    """A signal handler's exception is raised at the call, and never blamed on the device."""

    def handler(number, frame):
        raise error("planted")

    def interrupt(*arguments, **keywords):
        signal.raise_signal(signal.SIGUSR1)

    with enabled(threshold=0):  # Intel's compiler installs handlers of its own at first
        CALLS[name](SQUARE, OTHER)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(numpy_rules, "_multiply", interrupt)
        with enabled(threshold=0):
            with pytest.raises(error, match="planted"):
                CALLS[name](SQUARE, OTHER)
            assert report().left_out == ()
            monkeypatch.undo()
            np.testing.assert_array_equal(CALLS[name](SQUARE, OTHER), SQUARE_EXACT)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert report().offloaded == 1


def test_a_failing_log_costs_no_product(device, monkeypatch, failing_log):
    """An exception in a logging handler does not stop a product."""
    plant(monkeypatch, cl.RuntimeError("planted"))
    with enabled(threshold=0):
        np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
        np.testing.assert_array_equal(np.dot(SQUARE, OTHER), SQUARE_EXACT)
    assert report().stayed == {failures.FAILED: 2}


# Errors of the device.


@pytest.mark.parametrize("product", UNARY)
def test_a_failing_device(product, device, monkeypatch, caplog):
    """After a failure on the device NumPy multiplies, with one warning for all later products."""
    plant(monkeypatch, cl.RuntimeError("planted"))
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(CALLS[product](SQUARE, OTHER), SQUARE_EXACT)
    assert len(caplog.records) == 1
    assert report().stayed == {failures.FAILED: 3}


@pytest.mark.parametrize("error", [MemoryError("planted"), cl.MemoryError("planted")])
def test_a_failing_device_that_is_merely_full(error, device, monkeypatch, caplog):
    """A device that was out of memory makes the next product, and one warning names it."""
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(2):
            with monkeypatch.context() as patch:
                plant(patch, error)
                np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
            np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
        assert report().left_out == ()
    assert report().offloaded == 2
    assert report().stayed == {failures.FAILED: 2}
    (record,) = caplog.records
    assert record.getMessage().startswith(f"a product failed on {device.name}, and NumPy repeats")


def test_no_device(monkeypatch, caplog):
    """Without a device, NumPy makes all products, with one warning."""

    def none():
        raise RuntimeError("no OpenCL device was found")

    with enabled(threshold=0):
        SQUARE @ OTHER  # the caches know the way to the device
    monkeypatch.setattr(choice, "chosen", none)
    plant(monkeypatch, RuntimeError("no OpenCL device was found"))
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
            np.testing.assert_array_equal(np.dot(SQUARE, OTHER), SQUARE_EXACT)
    assert [record.message for record in caplog.records] == [
        "NumPy is not accelerated: no OpenCL device was found"
    ]
    assert report().stayed == {failures.NO_DEVICE: 6}


def test_a_missing_pyopencl_is_no_device(monkeypatch, caplog):
    """Where pyopencl cannot be imported, NumPy makes all products, with one warning."""
    missing = ImportError("libOpenCL.so.1: cannot open shared object file")
    plant(monkeypatch, missing)
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
    assert report().stayed == {failures.NO_DEVICE: 3}
    (record,) = caplog.records
    assert record.getMessage().startswith("NumPy is not accelerated: ")


def test_a_device_that_failed_gets_another_chance(device, monkeypatch, caplog):
    """A device that failed is tried again after a growing pause, which log and report name."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        with monkeypatch.context() as patch:
            plant(patch, cl.RuntimeError("planted"))
            for times, pause in enumerate((10, 20, 40), 1):
                for _ in range(3):
                    np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
                (left_out,) = report().left_out
                assert (left_out.device, left_out.failures) == (device.name, times)
                assert 0 < left_out.until - time.time() <= pause
                assert len(caplog.records) == times
                now[0] += pause - 1
                SQUARE @ OTHER
                assert len(caplog.records) == times
                now[0] += 1
            until = time.strftime("%H:%M:%S", time.localtime(left_out.until))
            for text in (str(report()), caplog.records[-1].message):
                assert f"not used until {until}, since it failed 3 times in a row" in text
                assert "planted" in text
        np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
        assert report().left_out == ()
        assert report().offloaded == 1
    assert "is used again" in caplog.records[-1].message
    assert report().stayed == {failures.FAILED: 12}


def test_a_pause_has_an_end(device):
    """The pause has a limit, however often a device fails in a row."""
    found = Failures(device)
    for _ in range(2000):
        assert found.add(cl.RuntimeError("planted"), True, None) == failures.FAILED
    (left_out,) = found.failed()
    assert left_out.failures == 2000
    assert left_out.until - time.time() <= preparation.LONGEST_PAUSE_S
    assert found.pauses()


def test_the_device_of_the_settings_is_the_one_that_fails(device):
    """The device that `install` was given is named, whichever is chosen otherwise."""

    class Named:
        name = "the other one"

    found = Failures(Named())
    found.add(OSError("planted"), True, None)
    assert found.failed()[0].device == "the other one"


def test_a_new_acceleration_forgets_failures(device, monkeypatch, caplog):
    """A new `install` or block uses a device at once that failed before, and warns anew."""
    with caplog.at_level(logging.WARNING, "clgemm"):
        for times in (1, 2):
            install(threshold=0)
            with monkeypatch.context() as patch:
                plant(patch, cl.RuntimeError("planted"))
                SQUARE @ OTHER, SQUARE @ OTHER
            assert len(caplog.records) == times
            assert report().left_out[0].failures == 1
            uninstall()
        with enabled(threshold=0):
            np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
            assert report().offloaded == 1


def test_warnings_are_remembered_up_to_a_bound(caplog, monkeypatch):
    """Not more warnings are remembered than a bound, after which they may be repeated."""
    monkeypatch.setattr(failures, "MOST_WARNINGS", 2)
    found = Failures(None)
    with caplog.at_level(logging.WARNING, "clgemm"):
        for text in ("a", "b", "a", "b", "c", "a"):
            assert found.add(TypeError(text), False, None) == failures.ERROR
    said = [record.getMessage()[-1] for record in caplog.records]
    assert said == ["a", "b", "c", "a"]


# Failures of products whose side measured times decide.

LEFT, RIGHT = integers(128, 128), integers(128, 128)
LARGE_EXACT = LEFT.astype(float) @ RIGHT


def decide_for_the_device():
    """Let the device make the product of the large operands, which NumPy has made once."""
    with enabled(threshold=0):
        LEFT @ RIGHT  # builds
    install()
    LEFT @ RIGHT
    return expect(host_us=1e6, device_us=10.0)


def test_a_device_that_fails_where_times_decide_pauses(ready, monkeypatch, caplog):
    """If the device fails at a product that it is faster at, NumPy makes this and later ones."""
    decide_for_the_device()
    with caplog.at_level(logging.WARNING, "clgemm"), monkeypatch.context() as patch:
        plant(patch, cl.RuntimeError("planted"))
        for _ in range(3):
            np.testing.assert_array_equal(LEFT @ RIGHT, LARGE_EXACT)
    assert report().stayed == {counts.UNKNOWN: 1, failures.FAILED: 3}
    assert report().left_out[0].failures == 1
    assert len(caplog.records) == 1


def test_a_device_that_is_not_ready_is_no_failure(ready, monkeypatch, caplog):
    """If the device is not ready for a product, NumPy makes it and nothing is logged."""
    entry = decide_for_the_device()
    with caplog.at_level(logging.WARNING, "clgemm"), monkeypatch.context() as patch:
        plant(patch, NotReadyError("planted"))
        np.testing.assert_array_equal(LEFT @ RIGHT, LARGE_EXACT)
    assert report().stayed == {counts.UNKNOWN: 1, counts.BEING_PREPARED: 1}
    assert report().left_out == ()
    assert not caplog.records
    assert not entry.is_ready


@pytest.mark.parametrize("error", [BrokenDeviceError("it is broken"), NoDeviceError("it is gone")])
def test_a_device_that_turns_out_to_be_broken_is_given_up(error, ready, monkeypatch, caplog):
    """If the device turns out to be broken, NumPy multiplies, with one warning for all products."""
    preparation._warn_once.cache_clear()
    decide_for_the_device()
    plant(monkeypatch, error)
    with caplog.at_level(logging.WARNING, "clgemm"):
        for _ in range(3):
            np.testing.assert_array_equal(LEFT @ RIGHT, LARGE_EXACT)
    assert [str(error) in record.getMessage() for record in caplog.records] == [True]
    assert report().stayed[failures.NO_DEVICE] >= 1
    assert report().offloaded == 0
    assert preparation.state.reason == str(error)


def multiply_where_opening_fails(error, monkeypatch, caplog):
    """Multiply three times, right each time; return an item for each attempt to open a device."""
    forget_products()

    def fail():
        tried.append(True)
        raise error

    tried = []
    monkeypatch.setattr(preparation, "open_chosen", fail)
    monkeypatch.setattr(preparation, "START_US", 0.0)
    monkeypatch.setattr(preparation.State, "_pays", lambda _: True)
    with caplog.at_level(logging.WARNING, "clgemm"), enabled():
        for _ in range(3):
            np.testing.assert_array_equal(LEFT @ RIGHT, LARGE_EXACT)
    return tried


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libOpenCL.so.1: cannot open shared object file"),
        *(cl.RuntimeError("OUT_OF_RESOURCES"), OSError("planted"), NoDeviceError("none works")),
    ],
    ids=lambda error: type(error).__module__.strip("_") + "." + type(error).__name__,
)
def test_a_device_that_cannot_be_opened_is_given_up(error, ready, monkeypatch, caplog):
    """If the device cannot be opened, whatever the error is, NumPy multiplies, with one warning."""
    preparation._warn_once.cache_clear()
    multiply_where_opening_fails(error, monkeypatch, caplog)
    assert report().offloaded == 0
    assert [str(error) in record.getMessage() for record in caplog.records] == [True]
    assert str(error) in report().why_nothing


def test_a_device_without_room_is_tried_again_later(ready, monkeypatch, caplog):
    """Other processes hold its memory now: NumPy multiplies, and nothing is given up."""
    tried = multiply_where_opening_fails(MemoryError("none left"), monkeypatch, caplog)
    assert tried == [True]  # in ten seconds again: tests/side/test_preparation.py
    assert report().offloaded == 0
    assert not caplog.records
    assert not preparation.state.reason


def test_an_opening_near_the_recursion_limit_gives_no_device_up(ready, monkeypatch, caplog):
    """If the stack is too deep to open the device, NumPy multiplies, and it is opened later."""
    forget_products()
    monkeypatch.setattr(preparation, "START_US", 0.0)
    monkeypatch.setattr(decision, "UNTIMED_US", 0.0)
    monkeypatch.setattr(preparation.State, "_pays", lambda _: True)

    def fail():
        raise RecursionError("maximum recursion depth exceeded")

    with enabled(), caplog.at_level(logging.WARNING, "clgemm"):
        with monkeypatch.context() as patch:
            patch.setattr(preparation, "open_chosen", fail)
            np.testing.assert_array_equal(LEFT @ RIGHT, LARGE_EXACT)
        np.testing.assert_array_equal(LEFT @ RIGHT, LARGE_EXACT)
    assert not caplog.records
    assert preparation.state.is_open


def test_a_failing_log_of_the_preparation_costs_no_product(ready, monkeypatch, failing_log):
    """An exception in a logging handler does not stop a product when the device is given up."""
    preparation._warn_once.cache_clear()
    decide_for_the_device()
    plant(monkeypatch, NoDeviceError("it is gone"))
    np.testing.assert_array_equal(LEFT @ RIGHT, LARGE_EXACT)


# Products inside others, and at the exit.


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
    assert report().stayed == {failures.BUSY: 1}


def test_a_product_that_was_broken_off_keeps_no_later_one_out():
    """A product that an exception ended before `leave` does not stop later products."""
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

    assert outer() == failures.BUSY


def test_the_exit_waits_for_products_and_lets_no_other_begin():
    """`close` waits at most its time for other threads' products; none begins after it."""
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
    assert running.enter() == failures.CLOSED
    threading.Timer(0.05, done.set).start()
    running.close(60)
    assert done.is_set()
    thread.join()
