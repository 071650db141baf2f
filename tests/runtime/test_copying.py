"""Tests of how the copy of a resident array is made."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pytest
from staged import TINY, integers

import clgemm
from clgemm.hardware.device import Device
from clgemm.runtime import copying

pytestmark = pytest.mark.usefixtures("small_pieces", "nothing_stays")


@pytest.mark.parametrize("where", ["memory", "transfer"])
def test_without_memory_for_a_copy_the_array_is_sent(tiled, where, monkeypatch, caplog, sent):
    """Products are right, it is tried once, and the log says so."""
    w, x = integers(60, 50), integers(40, 60)
    tries = []

    def refuse(*arguments, **keywords):
        tries.append(arguments)
        raise cl.MemoryError("refused")

    with monkeypatch.context() as patch:
        if where == "memory":
            patch.setattr(copying.cl, "Buffer", refuse)
        else:
            patch.setattr(copying.cl, "enqueue_copy", refuse)
        held = clgemm.resident(w)
    with held:
        for _ in range(2):
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert sum(sent) == 2 * (w.nbytes + x.nbytes)
        assert held.uses == 0
    assert len(tries) == 1
    assert "no copy stays" in caplog.text


def test_threads_that_need_a_copy_make_one(device, sent):
    """The others wait for it."""
    w, x = integers(60, 50), integers(40, 60)
    with clgemm.resident(w):
        other = Device(device.cl_device, transfer=TINY)
        gate = threading.Barrier(4)

        def product(_):
            gate.wait(60)
            with clgemm.device(other):
                return np.array_equal(clgemm.dot(x, w), x @ w)

        sent.clear()
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(product, range(4)))
        assert sum(sent) == 4 * x.nbytes + w.nbytes


def test_an_interrupted_copy_is_made_later(tiled, monkeypatch, sent):
    """Ctrl-C while it is made leaves the arrays as they were."""
    w, x = integers(60, 50), integers(40, 60)
    plain = Device(tiled.cl_device)
    if not plain.shares_host_memory:
        pytest.skip("any object for this device makes a copy at once")

    def interrupt(memory):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(copying, "digests", interrupt)
        with pytest.raises(KeyboardInterrupt):
            clgemm.resident(w)
        assert w.flags.writeable
        with clgemm.device(plain):
            held = clgemm.resident(w)
        with pytest.raises(KeyboardInterrupt):
            clgemm.dot(x, w)
    np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
    assert held.uses == 1
    held.release()
