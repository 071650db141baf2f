"""Tests of accelerated NumPy when something fails: results are right or errors are raised."""

from __future__ import annotations

import gc
import inspect
import itertools
import logging
import pickle
import signal
import sys
import threading
import time
import tracemalloc

import numpy as np
import pyopencl as cl
import pytest

import clgemm
from clgemm.accel import enabled, hooks, inside, report, routing
from clgemm.accel.failures import is_near_recursion_limit
from clgemm.accel.inside import RunningProducts

RANDOM = np.random.default_rng(0)
A, B = (RANDOM.integers(1, 9, (32, 32)).astype(np.float32) for _ in range(2))
EXACT = A.astype(np.float64) @ B.astype(np.float64)

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


class PlantedError(Exception):
    pass


def plant(monkeypatch, error):
    """Make every product on a device raise an error."""

    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr(hooks, "multiply", fail)
    monkeypatch.setattr(hooks, "contracted", fail)


# Near the recursion limit.


@pytest.mark.parametrize("name", CALLS)
def test_no_result_near_the_recursion_limit_is_memory_as_found(name, device):
    """At every depth of the stack a product is right, or the call raises RecursionError."""
    call = CALLS[name]

    def descend(depth):
        return call(A, B) if depth == 0 else descend(depth - 1)

    depths = itertools.count(sys.getrecursionlimit() - len(inspect.stack()) - 200)
    found = []
    with enabled(threshold=0):
        for depth in depths:
            _ = np.full(A.shape, 1234, np.float32)  # fill memory that the result may reuse
            del _
            try:
                result = descend(depth)
            except RecursionError:
                found.append(depth)
                if len(found) > 5:
                    break
            else:
                np.testing.assert_array_equal(result, EXACT)
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
            np.testing.assert_array_equal(CALLS[name](A, B), EXACT)
        for _ in range(100):
            time.sleep(1e-4)
        assert report().stayed == {routing.ERROR: 3}
        monkeypatch.undo()
        np.testing.assert_array_equal(CALLS[name](A, B), EXACT)
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
            CALLS[name](A, B)
        monkeypatch.undo()
        np.testing.assert_array_equal(CALLS[name](A, B), EXACT)
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

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        monkeypatch.setattr(hooks, "multiply", interrupt)
        monkeypatch.setattr(hooks, "contracted", interrupt)
        with enabled(threshold=0):
            with pytest.raises(error, match="planted"):
                CALLS[name](A, B)
            assert report().left_out == ()
            monkeypatch.undo()
            np.testing.assert_array_equal(CALLS[name](A, B), EXACT)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert report().offloaded == 1


def test_a_failing_log_costs_no_product(device, monkeypatch):
    """An exception in a logging handler does not stop a product."""

    class Handler(logging.Handler):
        def emit(self, record):  # noqa: ARG002 - logging's protocol
            raise OSError("disk full")

    handler = Handler()
    logging.getLogger("clgemm").addHandler(handler)
    plant(monkeypatch, cl.RuntimeError("planted"))
    try:
        with enabled(threshold=0):
            np.testing.assert_array_equal(A @ B, EXACT)
            np.testing.assert_array_equal(np.dot(A, B), EXACT)
    finally:
        logging.getLogger("clgemm").removeHandler(handler)
    assert report().stayed == {routing.FAILED: 2}


# A product within a product, and at the exit.


@pytest.mark.parametrize("outer", UNARY)
def test_a_product_within_a_product_is_numpys(outer, device, monkeypatch):
    """NumPy makes a product that starts inside another product of the same thread."""
    multiply, contracted, within = hooks.multiply, hooks.contracted, []

    def around(function):
        def call(*arguments, **keywords):
            within.append(B @ A)
            return function(*arguments, **keywords)

        return call

    monkeypatch.setattr(hooks, "multiply", around(multiply))
    monkeypatch.setattr(hooks, "contracted", around(contracted))
    with enabled(threshold=0):
        np.testing.assert_array_equal(CALLS[outer](A, B), EXACT)
    np.testing.assert_array_equal(within, [B.astype(float) @ A])
    assert report().offloaded == 1
    assert report().stayed == {inside.BUSY: 1}


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


# A device that fails is not used for a while.


def test_a_device_that_failed_gets_another_chance(device, monkeypatch, caplog):
    """A device that failed is tried again after a growing pause, which log and report name."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        plant(monkeypatch, cl.RuntimeError("planted"))
        for failures, pause in enumerate((10, 20, 40), 1):
            for _ in range(3):
                np.testing.assert_array_equal(A @ B, EXACT)
            (left_out,) = report().left_out
            assert (left_out.device, left_out.failures) == (device.name, failures)
            assert 0 < left_out.until - time.time() <= pause
            assert len(caplog.records) == failures
            now[0] += pause - 1
            A @ B
            assert len(caplog.records) == failures
            now[0] += 1
        until = time.strftime("%H:%M:%S", time.localtime(left_out.until))
        for text in (str(report()), caplog.records[-1].message):
            assert f"not used until {until}, since it failed 3 times in a row" in text
            assert "planted" in text
        monkeypatch.undo()
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        np.testing.assert_array_equal(A @ B, EXACT)
        assert report().left_out == ()
        assert report().offloaded == 1
    assert "is used again" in caplog.records[-1].message
    assert report().stayed == {routing.FAILED: 12}


def test_a_pause_has_an_end(device):
    """The pause has a limit, however often a device fails in a row."""
    router = routing.Router(routing.Settings(0), np.matmul)
    for _ in range(2000):
        router.failed(device, cl.RuntimeError("planted"))
    (left_out,) = router.left_out()
    assert left_out.until - time.time() <= routing.LONGEST_PAUSE_SECONDS


# What a program can see of the replacements.


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("path", ["ndarray.dot", "ndarray.__matmul__", "dot", "inner", "matmul"])
def test_functions_are_pickled_by_name(path, protocol, device):
    """A function is pickled by NumPy's name, so that it can be loaded without clgemm."""

    def named():
        found = np
        for part in path.split("."):
            found = getattr(found, part)
        return found

    with enabled(threshold=0):
        pickled = pickle.dumps(named(), protocol)
        assert pickle.loads(pickled) == named()
    assert pickle.loads(pickled) == named()
    assert b"clgemm" not in pickled


@pytest.mark.parametrize("name", ["dot", "__matmul__"])
def test_methods_keep_their_documentation(name, device):
    """Replaced methods have NumPy's name, docstring and signature."""

    def described():
        method = getattr(np.ndarray, name)
        try:
            signature = str(inspect.signature(method))
        except ValueError:
            signature = None
        return (
            *(method.__name__, method.__qualname__, method.__doc__, signature),
            getattr(method, "__text_signature__", None),
        )

    plain = described()
    with enabled(threshold=0):
        ours = described()
    if plain[3] is None:  # NumPy before 2.4
        plain, ours = ((*x[:3], x[4]) for x in (plain, ours))
    assert ours == plain


WRONG = {
    "no array": lambda: np.ndarray.dot(),
    "another type": lambda: np.ndarray.dot(3),
    "no operand": lambda: A.dot(),
    "too many operands": lambda: A.dot(A, A, A),
    "an unknown keyword": lambda: np.ndarray.dot(A, c=3),
    "the operator without arrays": lambda: np.ndarray.__matmul__(),
    "the operator of another type": lambda: np.ndarray.__matmul__(3, A),
    "the operator without an operand": lambda: A.__matmul__(),
    "the operator's keyword": lambda: A.__matmul__(value=A),
    "the operator of text": lambda: A @ "text",
    "too many for the operator": lambda: np.ndarray.__matmul__(A, A, A),
    "matmul without operands": lambda: np.matmul(),
    "matmul's keyword": lambda: np.matmul(A, A, unknown=1),
    "inner's keyword": lambda: np.inner(a=A, b=A),
    "a text as dot's result": lambda: np.dot(A, A, out="text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_do_not_name_our_functions(name, device):
    """The error of a wrong call has NumPy's own message."""
    with pytest.raises(Exception) as plain:  # noqa: PT011 - whatever NumPy raises
        WRONG[name]()
    with enabled(threshold=0), pytest.raises(type(plain.value)) as ours:
        WRONG[name]()
    assert str(ours.value) == str(plain.value)


def test_other_ufuncs_are_as_they_were(device):
    """Only the call of np.matmul is patched, and ``np.ufunc.__call__`` looks the same."""
    with enabled(threshold=0):
        assert np.ufunc.__call__.__objclass__ is np.ufunc
        np.testing.assert_array_equal(np.add.__call__(A, B), A + B)
        np.testing.assert_array_equal(np.matmul.__call__(A, B), EXACT)
    assert report().offloaded == 1


@pytest.mark.parametrize("order", ["K", "A", "C", "F"])
def test_results_are_laid_out_as_numpys(order, device):
    """Results have NumPy's strides and own their data, for operands of any layout."""
    for _ in range(50):
        batch = tuple(RANDOM.integers(2, 4, RANDOM.integers(0, 4)))
        operands = []
        for core in ((4, 5), (5, 6)):
            axes = RANDOM.permutation(len(batch) + 2)
            shape = (*batch, *core)
            x = RANDOM.integers(1, 9, [shape[i] for i in axes]).astype(np.float32)
            operands.append(x.transpose(np.argsort(axes)))
        plain = np.matmul(*operands, order=order)
        with enabled(threshold=0):
            found = np.matmul(*operands, order=order)
            assert report().offloaded == 1
        np.testing.assert_array_equal(found, plain)
        assert found.strides == plain.strides
        assert found.flags.owndata


STACK = RANDOM.integers(1, 9, (3, 5, 4)).astype(np.float32)
OWNED = {
    "operator": ("accel", lambda: A @ B),
    "stacks": ("accel", lambda: np.matmul(STACK, STACK[0].T)),
    "np.dot": ("accel", lambda: np.dot(A, B)),
    "np.dot of a vector": ("accel", lambda: np.dot(A, B[0])),
    "np.dot of stacks": ("accel", lambda: np.dot(STACK, STACK[0].T)),
    "ndarray.dot": ("accel", lambda: A.dot(B)),
    "np.inner": ("accel", lambda: np.inner(A, B)),
    "np.linalg.multi_dot": ("accel", lambda: np.linalg.multi_dot([A, B, A])),
    "np.tensordot": ("accel", lambda: np.tensordot(STACK, STACK[0].T, 1)),
    "dot": ("clgemm", lambda: clgemm.dot(A, B)),
    "inner": ("clgemm", lambda: clgemm.inner(A, B)),
    "matmul": ("clgemm", lambda: clgemm.matmul(STACK, STACK[0].T)),
    "multi_dot": ("clgemm", lambda: clgemm.multi_dot([A, B, A])),
    "tensordot": ("clgemm", lambda: clgemm.tensordot(STACK, STACK[0].T, 1)),
}


@pytest.mark.parametrize("name", OWNED)
def test_results_own_their_data(name, device):
    """Results own their data where NumPy's do, so that they can be resized."""
    side, call = OWNED[name]
    plain = call()
    for _ in range(2):  # the second call is from the call cache
        if side == "accel":
            with enabled(threshold=0):
                found = call()
            assert found.flags.owndata == plain.flags.owndata
        else:
            found = call()
            assert found.flags.owndata == ("tensordot" not in name)
        if found.flags.owndata:
            found.resize((found.size + 1,), refcheck=False)
            assert found[-1] == 0


def test_settings_that_come_and_go_keep_no_memory(device):
    """Memory does not grow with the number of thresholds that are used."""

    def use(thresholds):
        for threshold in thresholds:
            with enabled(threshold=threshold):
                A @ B, np.dot(A, B)

    tracemalloc.start()
    try:
        use(range(100))
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        use(range(10**6, 10**6 + 300))
        gc.collect()
        grown_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown_bytes < 300 * 200
