"""Tests of exceptions, signals and nested products in the middle of a call."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from injection import TRANSFER, outcomes
from whole_numbers import whole

import clgemm
from clgemm.core.cache import recall
from clgemm.core.nesting import NestedCallError, non_reentrant
from clgemm.hardware.choice import devices
from clgemm.records import verdicts
from clgemm.runtime import call_cache, launch, programs, waiting
from clgemm.runtime.transfer.staging import Staging, staging

PLACES = 12  # of each case; tests/injection.py tries all
CASES = [
    ("deep", False, "KeyboardInterrupt"),
    ("deep", True, "MemoryError"),
    ("updated", False, "RecursionError"),
    ("through", False, "KeyboardInterrupt"),
    ("device", False, "UserWarning"),
    ("deep", False, "same"),
    ("strided", True, "matmul"),
    ("device", False, "sgemm"),
    ("device, out of order", False, "same"),
    ("through", False, "transfers"),
]
needs_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that signals")


class Stop(BaseException):
    """The exception of the tests' signal handlers."""


@pytest.fixture
def stopped_after_a_moment(monkeypatch):
    """Treat every product as long; the returned function starts a signal that raises Stop."""
    monkeypatch.setattr(launch, "LONG_WORK", 0)
    monkeypatch.setattr(launch, "LONG_IF_SLOW", 0)
    monkeypatch.setattr(call_cache, "_calls", {})

    def stop(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.2)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def never(device):
    """Return an event that is not complete until a test completes it."""
    gate = cl.UserEvent(device.context)
    yield gate
    if gate.command_execution_status > cl.command_execution_status.COMPLETE:
        gate.set_status(cl.command_execution_status.COMPLETE)


def let(gate):
    gate.set_status(cl.command_execution_status.COMPLETE)


def join_waiters():
    for thread in threading.enumerate():
        if thread.name == "clgemm-wait":
            thread.join(20)
            assert not thread.is_alive()


@pytest.mark.parametrize(("kind", "cold", "injection"), CASES)
def test_no_failure_and_no_nested_product_does_harm(kind, cold, injection, device):
    """After an exception or a nested product at any place, all results are right."""
    if device is not devices()[0] or "Oclgrind" in device.name:
        pytest.skip("the child process uses the first device")
    count, found = outcomes(kind, cold, injection, PLACES)
    assert len(found) > min(count, PLACES) // 2
    assert not [each for each in found if each[0].startswith("!")]


@needs_timer
def test_a_signal_is_answered_before_a_long_product_is_over(device, never, stopped_after_a_moment):
    """A signal ends the wait for a product, whose arrays stay alive; the next product is right.

    Without the signal, this test would not end.
    """
    if not device.shares_host_memory:
        pytest.skip("what goes through transfers has its own test")
    a, b, c = whole(90, 80), whole(80, 70), np.full((90, 70), np.nan, np.float32)
    expected = a @ b
    clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1)  # builds the programs
    stopped_after_a_moment()
    with pytest.raises(Stop):
        clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1, wait_for=[never])
    alive = [weakref.ref(x) for x in (a, b, c)]
    sys.last_value = sys.last_exc = None
    copies = a.copy(), b.copy()
    del a, b, c
    gc.collect()
    assert all(ref() is not None for ref in alive)
    let(never)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, *copies), expected)
    join_waiters()


@needs_timer
def test_borrowed_memory_is_waited_for(device, never, stopped_after_a_moment):
    """If an operand borrows its memory, the signal's exception comes after the commands."""
    if not device.shares_host_memory:
        pytest.skip("what goes through transfers is in memory of our own")

    class Borrowed:
        def __init__(self, array):
            self.__array_interface__ = array.__array_interface__

    a, b, c = whole(90, 80), whole(80, 70), np.full((90, 70), np.nan, np.float32)
    over = []

    def later():
        over.append(True)
        let(never)

    clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1)  # builds the programs
    threading.Timer(0.6, later).start()
    stopped_after_a_moment()
    with pytest.raises(Stop):
        clgemm.sgemm(*(1.0, a, b, 0.0, np.asarray(Borrowed(c))), overwrite_c=1, wait_for=[never])
    assert over


@needs_timer
def test_a_signal_is_answered_while_operands_are_on_their_way(device, stopped_after_a_moment):
    """After a signal, no other call gets pinned memory in use; the next product is right."""
    if device.kind != "CPU":
        pytest.skip("a GPU's tiles are short, and are waited for to their end")
    own = clgemm.Device(device.cl_device, transfer=TRANSFER)
    a, b = whole(300, 200), whole(200, 100)
    with clgemm.device(own):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
        gate = cl.UserEvent(own.context)
        pool = staging(own, TRANSFER)
        before = len(pool._free)
        stopped_after_a_moment()
        with pytest.raises(Stop):
            clgemm.sgemm(1.0, a, b, wait_for=[gate])
        assert len(pool._free) < before
        let(gate)
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    join_waiters()


def test_other_threads_wait_as_before(device, monkeypatch):
    """Threads other than the main thread, where no signal handler runs, wait by themselves."""
    monkeypatch.setattr(launch, "LONG_WORK", 0)
    monkeypatch.setattr(waiting, "_Waiter", None)
    a, b, found = whole(90, 80), whole(80, 70), []
    thread = threading.Thread(target=lambda: found.append(clgemm.sgemm(1.0, a, b)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], a @ b)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_a_process_that_is_interrupted_ends_as_one(device):
    """After Ctrl-C in a long product, Python reports KeyboardInterrupt and ends as usual."""
    script = """
import os, signal, threading
import numpy as np
import clgemm
from clgemm.runtime import launch

launch.LONG_WORK = launch.LONG_IF_SLOW = 0
a = np.ones((64, 64), "f")
clgemm.sgemm(1.0, a, a)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
while True:
    assert (clgemm.sgemm(1.0, a, a) == 64).all()
"""
    if device is not devices()[0]:
        pytest.skip("the child process uses the first device")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr


def test_a_product_while_programs_are_built(device, monkeypatch):
    """In a nested call NumPy makes host products; sgemm and device arrays raise an error."""
    a, b = whole(70, 60), whole(60, 50)
    fresh = clgemm.Device(device.cl_device)
    placed = [cl_array.to_device(fresh.queue, x) for x in (a, b)]
    build, errors, results = programs.build, [], []

    def building(*arguments):
        results.extend((clgemm.matmul(a, b), clgemm.dot(a, b)))
        results.extend((clgemm.tensordot(a, b, 1), clgemm.inner(a, b.T)))
        for call in (lambda: clgemm.sgemm(1.0, a, b), lambda: clgemm.matmul(*placed)):
            with pytest.raises(RuntimeError, match="while another one is being prepared") as caught:
                call()
            errors.append(caught.type)
        return build(*arguments)

    monkeypatch.setattr(programs, "build", building)
    with clgemm.device(fresh):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert errors
    assert set(errors) == {NestedCallError}
    for result in results:
        np.testing.assert_array_equal(result, a @ b)


def test_a_refusal_outlives_no_call():
    """A non-reentrant function can be called again after an exception inside it."""

    @non_reentrant
    def enter(action):
        return action()

    def interrupt():
        raise Stop

    with pytest.raises(Stop) as kept:  # and with it the frames
        enter(interrupt)
    assert enter(lambda: 1) == 1
    assert kept.type is Stop
    with pytest.raises(NestedCallError):
        enter(lambda: enter(lambda: 1))


def test_an_interrupted_trial_says_nothing_about_its_choice(device, monkeypatch):
    """An interrupted validation stores no verdict, so that the next call repeats it."""
    from clgemm.hardware.identity import identify
    from clgemm.kernels import family_named

    who, choice = identify(device), family_named("direct").plainest(device.traits)
    monkeypatch.setattr(verdicts, "_key", lambda *_: "an interrupted trial")

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verdicts.validated_on(who, choice, interrupted)
    assert recall("an interrupted trial") is None


def test_a_nested_call_does_not_wait_for_pinned_memory(device):
    """A nested call raises instead of waiting for pinned memory that the outer call holds."""
    pool = Staging(device, TRANSFER)
    lock = threading.RLock()
    most = TRANSFER.pool_chunks
    with (
        pool.lent(most, lock),
        pytest.raises(NestedCallError),
        pool.lent(1, lock, is_nested=True),
    ):
        pass
    with pool.lent(1, lock, is_nested=True) as chunks:
        assert len(chunks) == 1


def test_what_an_exception_has_lost_of_the_pinned_memory_is_made_anew(device):
    """Chunks that a call does not return are not counted, so that new ones are made."""
    pool = Staging(device, TRANSFER)
    lock = threading.RLock()
    for _ in range(3):
        with pool.lent(TRANSFER.pool_chunks, lock) as chunks:
            chunks.clear()
    assert pool._made() == 0
