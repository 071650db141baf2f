"""Tests of waiting for commands while signal handlers can run."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import numpy as np
import pyopencl as cl
import pytest
from injection import TRANSFER
from whole_numbers import whole

import clgemm
from clgemm.planning import cut
from clgemm.runtime import execute, waiting
from clgemm.transfer import call_cache


class Stop(BaseException):
    """The exception of the tests' signal handlers."""


class Alarm:
    """A timer whose signal raises Stop."""

    def after(self, seconds):
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))

    def cancel(self):
        """Stop the timer; an alarm that comes just then is lost."""
        with contextlib.suppress(Stop):
            signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def stop():
    if not hasattr(signal, "setitimer"):
        pytest.skip("no timer that signals")

    def raise_stop(*_):
        raise Stop

    alarm, before = Alarm(), signal.signal(signal.SIGALRM, raise_stop)
    yield alarm
    alarm.cancel()
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
        # One that an exception kept from starting is listed, too.
        if thread.name == "clgemm-wait" and thread.ident is not None:
            thread.join(20)
            assert not thread.is_alive()


def test_events_of_the_user_are_waited_for_before_anything_begins(device, never, stop):
    """A signal ends the wait for an event that never comes, and nothing is written later."""
    a, b, c = whole(90, 80), whole(80, 70), np.full((90, 70), np.nan, np.float32)
    stop.after(0.2)
    with pytest.raises(Stop):
        clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1, wait_for=[never])
    let(never)
    device.queue.finish()
    time.sleep(0.05)
    assert np.isnan(c).all()
    np.testing.assert_array_equal(
        clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1, wait_for=[never]), a @ b
    )


def test_an_event_of_the_user_tells_when_host_arrays_are_there(device):
    """Operands and C are read after the event, in whichever thread."""
    a, b, c = np.zeros((90, 80), np.float32), whole(80, 70), whole(90, 70)
    expected = np.ones_like(a) @ b + 1
    gate = cl.UserEvent(device.context)

    def fill():
        a[:], c[:] = 1, 1
        let(gate)

    timer = threading.Timer(0.1, fill)
    timer.start()
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b, 1.0, c, wait_for=[gate]), expected)
    timer.join()


KINDS = ["sgemm", "matmul", "dot", "scaled", "through transfers", "in tiles"]


# Python loses an exception that comes while a callback of the garbage collector's or of a weak
# reference runs, whoever's that is: then the product goes on to its end.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_after_an_interruption_nothing_is_written(device, stop, monkeypatch, kind):
    """At random times: what an exception leaves of the result stays as it is."""
    n = 150 if "Oclgrind" in device.name else 700 if device.kind == "CPU" else 6000
    a, c = np.ones((n, n), np.float32), np.zeros((n, n), np.float32)
    used = device
    if kind == "through transfers":
        used = clgemm.Device(device.cl_device, transfer=TRANSFER)
    elif kind == "in tiles":
        monkeypatch.setattr(execute, "LONG_WORK", 0)
        monkeypatch.setattr(cut, "PART_WORK", 2**24)
        monkeypatch.setattr(call_cache, "_calls", {})

    def product():
        if kind in ("matmul", "dot"):
            getattr(clgemm, kind)(a, a, out=c)
        else:
            clgemm.sgemm(1.0, a, a, float(kind == "scaled"), c, overwrite_c=1, order="C")

    with clgemm.device(used):
        product()  # builds the programs
        begun = time.perf_counter()
        product()
        seconds = time.perf_counter() - begun
        for share in np.random.default_rng().random(8):
            c[...] = -1
            try:
                stop.after(share * seconds)
                product()
                stop.cancel()
            except Stop:
                left = c.copy()
                time.sleep(2 * seconds)
                np.testing.assert_array_equal(c, left)
        c[...] = 0
        product()
        np.testing.assert_array_equal(c, n)
    join_waiters()


def test_no_lock_hides_the_exception_of_a_handler(device, monkeypatch):
    """Python raises an error of its own if a condition's lock is not held when it comes.

    Without a thread that waits, the memory that the commands write to stays.
    """

    def start(_):
        try:
            raise Stop
        finally:
            raise RuntimeError("release unlocked lock")

    monkeypatch.setattr(waiting._Waiter, "start", start)
    monkeypatch.setattr(waiting, "_kept", [])
    memory = object()
    with pytest.raises(Stop):
        waiting.wait(cl.enqueue_marker(device.queue), memory)
    assert waiting._kept == [memory]
    device.queue.finish()


def test_other_threads_wait_as_before(device, monkeypatch):
    """Threads other than the main thread, where no signal handler runs, wait by themselves."""
    monkeypatch.setattr(execute, "LONG_WORK", 0)
    monkeypatch.setattr(waiting, "_Waiter", None)
    a, b, found = whole(90, 80), whole(80, 70), []
    thread = threading.Thread(target=lambda: found.append(clgemm.sgemm(1.0, a, b)))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(found[0], a @ b)
