"""Tests of the progress of long products and of memory-mapped operands."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from injection import TRANSFER
from whole_numbers import whole

import clgemm
from clgemm.core.cache import forget_plans
from clgemm.planning import cut
from clgemm.runtime import progress
from clgemm.transfer import call_cache

AT_ONCE = replace(TRANSFER, chunk_bytes=2**20, at_once_bytes=2**21, threaded_bytes=2**30)
WAYS = {"as it is": None, "through transfers": TRANSFER, "at once": AT_ONCE}


class Stop(BaseException):
    """What a callback or a signal's handler raises here."""


@pytest.fixture
def long(monkeypatch):
    """Every product is long, and is told of at once."""
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(cut, "PART_WORK", 2**18)
    monkeypatch.setattr(cut, "PART_WORK_IF_SLOW", 2**19)
    monkeypatch.setattr(cut, "LEAST_SIDE", 64)
    monkeypatch.setattr(call_cache, "_calls", {})
    forget_plans()
    yield
    forget_plans()


@pytest.mark.parametrize("transfer", WAYS.values(), ids=WAYS)
def test_the_callback_hears_of_every_tile(transfer, device, long):
    """The calling thread reports rising numbers up to the total, and the product is right."""
    own = clgemm.Device(device.cl_device, transfer=transfer)
    a, b = whole(700, 300), whole(300, 500)
    told, threads = [], set()

    def hear(done, total):
        told.append((done, total))
        threads.add(threading.current_thread())

    with clgemm.device(own), clgemm.progress(hear):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
        clgemm.sgemm(0.0, a, b, 2.0, a @ b)  # a scaling multiplies nothing
    assert threads == {threading.current_thread()}
    assert {total for _, total in told} == {700 * 300 * 500}
    done = [each for each, _ in told]
    assert done == sorted(set(done))
    assert done[-1] == 700 * 300 * 500


def test_short_products_are_not_told_of(device, monkeypatch):
    """The callback is not called for a short product."""
    monkeypatch.setattr(progress, "AFTER_SECONDS", 60.0)  # on a busy machine, two seconds are short
    told = []
    a, b = whole(64, 64), whole(64, 64)
    with clgemm.progress(lambda *numbers: told.append(numbers)):
        clgemm.sgemm(1.0, a, b)
    assert not told


@pytest.mark.parametrize("transfer", WAYS.values(), ids=WAYS)
def test_blocks_may_be_nested_and_decorate(transfer, device, long):
    """The innermost callback is called, and the outer one again after its block."""
    told = []
    a, b = whole(300, 200), whole(200, 300)
    own = clgemm.Device(device.cl_device, transfer=transfer)

    @clgemm.progress(lambda *_: told.append("function"))
    def multiplied():
        return clgemm.sgemm(1.0, a, b)

    with clgemm.device(own), clgemm.progress(lambda *_: told.append("outer")):
        multiplied()
        assert set(told) == {"function"}
        told.clear()
        with clgemm.progress(None):
            clgemm.sgemm(1.0, a, b)
        assert not told
        clgemm.sgemm(1.0, a, b)
    assert set(told) == {"outer"}


def test_an_exception_in_the_callback_ends_the_product(device, long):
    """An exception of the callback comes out of the call, and the next product is right."""
    a, b = whole(700, 300), whole(300, 500)
    heard = []

    def refuse(done, total):
        heard.append(done)
        raise Stop

    with clgemm.progress(refuse), pytest.raises(Stop):
        clgemm.sgemm(1.0, a, b)
    assert len(heard) == 1
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)


def test_a_callback_may_multiply(device, long):
    """Products of the callback are right, and the callback is not called for them."""
    a, b = whole(300, 200), whole(200, 300)
    made = []

    def multiply(*_):
        made.append(clgemm.sgemm(1.0, a, b))

    with clgemm.progress(multiply):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert made
    for result in made:
        np.testing.assert_array_equal(result, a @ b)


def test_a_callback_is_called_ten_times_a_second_at_most(monkeypatch):
    """The first call comes after two seconds, and calls are a tenth of a second apart."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    told = []
    meter = progress.Meter(lambda done, _: told.append((now[0], done)), 1000)
    for step in range(1, 401):
        now[0] = step / 100
        meter.advance(2)
    meter.end()
    assert told[0][0] == 2.0
    assert all(later - one >= 0.1 for (one, _), (later, _) in pairwise(told[:-1]))
    assert told[-1][1] == 1000


def test_what_cannot_be_called_is_refused():
    """A callback that cannot be called raises TypeError before any product."""
    with pytest.raises(TypeError, match="callback=3 cannot be called"):
        clgemm.progress(3)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that signals")
def test_a_signal_ends_a_product_between_tiles(device, long):
    """What a signal's handler raises ends the product, and the next product is right."""
    a, b = whole(700, 300), whole(300, 500)

    def stop(*_):
        raise Stop

    def interrupt(done, total):
        signal.raise_signal(signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with clgemm.progress(interrupt), pytest.raises(Stop):
            clgemm.sgemm(1.0, a, b)
    finally:
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)


@pytest.mark.parametrize("mode", ["r", "c"])
def test_memory_mapped_operands_and_results(mode, device, long, tmp_path):
    """matmul, dot and sgemm read and write memory-mapped files, and operands stay as they are."""
    made = {"a": whole(300, 200), "b": whole(200, 260)}
    files = {}
    for name, array in made.items():
        np.save(tmp_path / f"{name}.npy", array)
        files[name] = np.load(tmp_path / f"{name}.npy", mmap_mode=mode)
    expected = made["a"] @ made["b"]
    for number, call in enumerate(
        (
            lambda a, b, c: clgemm.matmul(a, b, out=c),
            lambda a, b, c: clgemm.dot(a, b, out=c),
            lambda a, b, c: clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1),
        )
    ):
        file = tmp_path / f"c{number}.npy"
        c = np.lib.format.open_memmap(file, "w+", np.float32, expected.shape)
        c[:] = np.nan
        heard = []
        with clgemm.progress(lambda *numbers, heard=heard: heard.append(numbers)):
            assert call(files["a"], files["b"], c) is c
        assert heard, "a device made it, in tiles"
        c.flush()
        np.testing.assert_array_equal(np.load(file), expected)
    for name, array in made.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), array)
