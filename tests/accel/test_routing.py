"""Tests of the router: which side makes a product, and for which reason."""

from __future__ import annotations

import logging
import time

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from accelerated import EXACT, OTHER, SQUARE, SQUARE_EXACT, A, B, offloading

import clgemm
from clgemm.accel import enabled, hooks, report, routing
from clgemm.planning.crossovers import Measured, Work

PRODUCTS = {"matmul": np.matmul, "operator": lambda a, b: a @ b, "dot": np.dot}


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_failing_device(product, device, monkeypatch, caplog):
    """After a failure on the device NumPy multiplies, with one warning for all later products."""

    def fail(*arguments, **keywords):
        raise cl.RuntimeError("planted")

    monkeypatch.setattr(hooks, "multiply", fail)
    monkeypatch.setattr(hooks, "contracted", fail)
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(PRODUCTS[product](A, B), EXACT)
    assert len(caplog.records) == 1
    assert report().stayed == {routing.FAILED: 3}


def test_a_failing_device_that_is_merely_full(device, monkeypatch):
    """A device that was out of memory makes the next product."""
    multiply = hooks.multiply

    def fail(*arguments, **keywords):
        monkeypatch.setattr(hooks, "multiply", multiply)
        raise MemoryError

    monkeypatch.setattr(hooks, "multiply", fail)
    with offloading(1):
        np.testing.assert_array_equal(A @ B, EXACT)
        np.testing.assert_array_equal(A @ B, EXACT)


def test_no_device(monkeypatch, caplog):
    """Without a device, NumPy makes all products, with one warning."""

    def none():
        raise RuntimeError("no OpenCL device was found")

    monkeypatch.setattr(routing, "get_device", none)
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(A @ B, EXACT)
            np.testing.assert_array_equal(np.dot(A, B), EXACT)
    assert [record.message for record in caplog.records] == [
        "NumPy is not accelerated: no OpenCL device was found"
    ]
    assert report().stayed == {routing.NO_DEVICE: 6}


@pytest.fixture
def measured(device, monkeypatch):
    """Set measured crossovers: only the kind "block" pays, from 600^3 on."""
    found = dict.fromkeys(measure_kinds())
    found["block"] = 600**3
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(routing, "measured", lambda _: Measured(found, "2026-11-21"))
    monkeypatch.setattr(routing, "OPENING_SECONDS", 0.0)


def measure_kinds():
    return ["block", "symmetric"] + [
        f"{name}-{band}" for name in ("narrow", "shallow", "stack") for band in (32, 128)
    ]


def test_measured_crossovers_are_used(measured):
    """Products go to the device from the measured crossover of their kind on."""
    x, y = np.ones((600, 600), np.float32), np.ones((599, 599), np.float32)
    with enabled():
        x @ x, np.dot(x, x)
        y @ y, np.dot(x, x.T), x[:, :500] @ x[:500], x[:, :20] @ x[:20], y.dot(y)
    assert report().offloaded == 2
    assert report().stayed == {"size": 5}


def test_a_device_is_opened_and_measured_once_it_pays(device, monkeypatch):
    """A device is opened and measured only after enough time in large products."""
    found, asked = dict.fromkeys(measure_kinds(), 1), []
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(routing, "measured", lambda _: None)
    monkeypatch.setattr(routing, "measure", lambda *given: asked.append(given) or found)
    monkeypatch.setattr(routing, "OPENING_SECONDS", 0.5)
    monkeypatch.setattr(routing, "MEASURING_SECONDS", 1.0)
    router = routing.Router(routing.Settings(), np.matmul)
    for reason in (routing.UNOPENED, routing.UNMEASURED):
        assert router.choose(Work(200, 200, 200)) == reason
        router.stayed(reason, 0.7)
    assert router.choose(Work(200, 200, 200)) is clgemm.get_device()
    assert len(asked) == 1
    x = np.ones((200, 200), np.float32)
    with enabled():
        x @ x
    assert report().stayed == {routing.UNOPENED: 1}


def plant(monkeypatch, error):
    """Make every product on a device raise an error."""

    def fail(*arguments, **keywords):
        raise error

    monkeypatch.setattr(hooks, "multiply", fail)
    monkeypatch.setattr(hooks, "contracted", fail)


def test_a_device_that_failed_gets_another_chance(device, monkeypatch, caplog):
    """SQUARE device that failed is tried again after a growing pause, which log and report name."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        plant(monkeypatch, cl.RuntimeError("planted"))
        for failures, pause in enumerate((10, 20, 40), 1):
            for _ in range(3):
                np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
            (left_out,) = report().left_out
            assert (left_out.device, left_out.failures) == (device.name, failures)
            assert 0 < left_out.until - time.time() <= pause
            assert len(caplog.records) == failures
            now[0] += pause - 1
            SQUARE @ OTHER
            assert len(caplog.records) == failures
            now[0] += 1
        until = time.strftime("%H:%M:%S", time.localtime(left_out.until))
        for text in (str(report()), caplog.records[-1].message):
            assert f"not used until {until}, since it failed 3 times in a row" in text
            assert "planted" in text
        monkeypatch.undo()
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        np.testing.assert_array_equal(SQUARE @ OTHER, SQUARE_EXACT)
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
