"""Tests of install, uninstall and enabled, in threads and after a fork."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
import tracemalloc

import numpy as np
import pytest
from accelerated import EXACT, OTHER, SQUARE, A, B, PlantedError, numpy_contents, offloading

import clgemm
from clgemm.accel import enabled, install, report, session, uninstall
from clgemm.accel.failures import NO_DEVICE
from clgemm.side.counts import counts


def test_blocks_nest(device):
    """The innermost enabled block is in force, and outside of all blocks `install` is."""
    install(threshold=10**12)
    with contextlib.suppress(PlantedError), enabled(threshold=0):
        A @ B
        with enabled(threshold=10**12):
            A @ B
        A @ B
        raise PlantedError
    A @ B
    assert report().offloaded == 2
    assert report().stayed == {"size": 2}
    uninstall()
    uninstall()
    A @ B
    assert report().stayed == {"size": 2}


@pytest.mark.parametrize("begin", [install, lambda: enabled(threshold=0).__enter__()])
def test_a_beginning_that_fails_changes_nothing(begin, device, monkeypatch):
    """Neither at once nor when a later block ends."""

    def fail(*_):
        raise PlantedError

    before = numpy_contents()
    with monkeypatch.context() as patch:
        patch.setattr(session._Replacements, "put", fail)
        with pytest.raises(PlantedError):
            begin()
    assert numpy_contents() == before
    with offloading(1):
        A @ B
    assert numpy_contents() == before


def test_blocks_may_end_in_any_order(device):
    """As those of two threads do: the one that is still open stays in force."""
    for later, offloaded in ((10**12, 0), (0, 1)):
        first, second = enabled(threshold=10**12 - later), enabled(threshold=later)
        first.__enter__()
        second.__enter__()
        first.__exit__()
        A @ B
        second.__exit__()
        assert report().offloaded == offloaded


@pytest.mark.parametrize(
    ("rule", "offloaded"),
    [
        ({"side": "device"}, 1),
        ({"side": "host"}, 0),
        ({"side": "host", "threshold": 0}, 1),
        ({"side": "device", "threshold": 10**12}, 0),
    ],
    ids=str,
)
def test_a_side_can_be_named(rule, offloaded, device, monkeypatch):
    """The argument `side` sends all products to a side, unless a threshold is given, too."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", str(offloaded * 10**12))  # the arguments go first
    with enabled(**rule):
        np.testing.assert_array_equal(A @ B, EXACT)
    assert report().offloaded == offloaded


def test_an_unknown_side_is_refused():
    """A side that does not exist is refused, also beside a threshold, and nothing is changed."""
    for threshold in (None, 0):
        with pytest.raises(ValueError, match="side='gpu' is not one of auto, host, device"):
            install(threshold, side="gpu")
    before = report().offloaded
    A @ B
    assert report().offloaded == before


def test_a_decorator(device):
    """A decorated function is accelerated, also in recursive calls."""

    @enabled(threshold=0)
    def product(depth):
        return product(depth - 1) if depth else A @ B

    np.testing.assert_array_equal(product(3), EXACT)
    np.testing.assert_array_equal(product(0), EXACT)
    assert report().offloaded == 1  # since the outermost call


def test_a_device_can_be_named(device):
    """enabled and install take a device and a threshold, and refuse wrong ones."""
    with enabled(threshold=0, device=device):
        A @ B
    assert report().device == device.name
    with pytest.raises(ValueError, match="names no OpenCL device"):
        install(device="no such")
    for threshold in (-1, "many", 1.5):
        with pytest.raises(ValueError, match="not a whole number"):
            install(threshold=threshold)
    with enabled(threshold=1e6):  # a whole float is allowed
        pass


def test_threads(device):
    """Products are right if many threads multiply and enter blocks at once."""
    failures = []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(15):
            x, y = (random.integers(-9, 9, (20, 20)).astype(np.float32) for _ in range(2))
            with enabled(threshold=0):
                results = x @ y, np.dot(x, y), np.matmul(x, y), x.dot(y)
            if any((z != x.astype(float) @ y.astype(float)).any() for z in results):
                failures.append(seed)

    with offloading():
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_numpy(device):
    """A forked child has plain NumPy, even if another thread held locks, and sgemm says why."""
    locks = [
        session._state.lock,
        counts._lock,
        clgemm.runtime.workspace.workspace(device.queue).lock,
    ]
    held, done = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            done.wait(20)

    before = numpy_contents()
    with enabled(threshold=0):
        A @ B
        threading.Thread(target=hold).start()
        held.wait(20)
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                assert numpy_contents() == before
                assert (A @ B == EXACT).all()
                with enabled(threshold=0):
                    assert (A @ B == EXACT).all()
                    assert (np.dot(A, B) == EXACT).all()
                assert report().stayed == {NO_DEVICE: 2}
                with pytest.raises(RuntimeError, match="forked"):
                    clgemm.sgemm(1.0, A, B)
                code = 0
            os._exit(code)
        deadline = time.monotonic() + 20
        ended, status = 0, 0
        while not ended and time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        done.set()
    assert ended, "the child hangs"
    assert os.waitstatus_to_exitcode(status) == 0
    np.testing.assert_array_equal(A @ B, EXACT)


def test_settings_that_come_and_go_keep_no_memory(device):
    """Memory does not grow with the number of thresholds that are used."""

    def use(thresholds):
        for threshold in thresholds:
            with enabled(threshold=threshold):
                SQUARE @ OTHER, np.dot(SQUARE, OTHER)

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
