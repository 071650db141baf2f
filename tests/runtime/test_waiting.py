"""Tests of waiting for commands while signal handlers can run."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import weakref

import numpy as np
import pyopencl as cl
import pytest
from injection import TRANSFER
from whole_numbers import whole

import clgemm
from clgemm.runtime import call_cache, launch, waiting
from clgemm.runtime.transfer.staging import staging

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
