"""Memory that is kept for the next products, and given back."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pyopencl.array as cl_array
import pytest
from injection import TRANSFER

import clgemm
from clgemm.runtime import kept_memory
from clgemm.runtime.workspace import workspace
from clgemm.transfer.staging import staging

N = 700
FEW = 2**18  # bytes that a kernel's arguments may hold until it runs again


@pytest.fixture
def eager(monkeypatch):
    """Results and scratch memory of any size are kept, and given back soon.

    It returns the bytes that kernels of other tests hold, beside `FEW`.
    """
    clgemm.release()
    held = kept_memory.kept_bytes()
    monkeypatch.setattr(kept_memory, "LEAST_BYTES", 2**14)
    monkeypatch.setattr(kept_memory, "LEAST_WATCHED_BYTES", 2**14)
    monkeypatch.setattr(kept_memory, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(kept_memory, "_thread", None)
    yield held
    clgemm.release()


def until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def products(count=3):
    a = np.ones((N, N), np.float32)
    for _ in range(count):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, a), N)


def test_what_is_kept_is_given_back_on_request(device, eager, monkeypatch):
    """Results, scratch memory and pinned memory; the next product is right."""
    monkeypatch.setattr(kept_memory, "IDLE_SECONDS", 1e9)
    own = clgemm.Device(device.cl_device, transfer=TRANSFER)
    with clgemm.device(own):
        products()
        assert staging(own).kept_bytes() > 0
        assert kept_memory.kept_bytes() >= 4 * N * N
        clgemm.release()
        assert staging(own).kept_bytes() == 0
        assert kept_memory.kept_bytes() < eager + FEW
        products()
    clgemm.release()


def test_scratch_memory_comes_back_after_a_release(device, eager, monkeypatch):
    """Of host arrays, device arrays and prepared products: kernels get the new memory."""
    monkeypatch.setattr(kept_memory, "IDLE_SECONDS", 1e9)
    a = np.random.default_rng(5).integers(-8, 9, (N, N)).astype(np.float32)
    x = cl_array.to_device(device.queue, a)
    prepared = clgemm.prepare(x, x)
    for _ in range(3):
        for _ in range(2):
            np.testing.assert_array_equal(clgemm.matmul(a, a), a @ a)
            np.testing.assert_array_equal(clgemm.matmul(x, x).get(), a @ a)
            np.testing.assert_array_equal(prepared().get(), a @ a)
        clgemm.release()
        assert workspace(device.queue).kept_bytes() < FEW


def test_it_goes_by_itself_after_a_while(device, eager, monkeypatch):
    monkeypatch.setattr(kept_memory, "IDLE_SECONDS", 0.3)
    products()
    until(lambda: kept_memory.kept_bytes() < eager + FEW)
    until(lambda: kept_memory._thread is None)
    monkeypatch.setattr(kept_memory, "IDLE_SECONDS", 1e9)  # products may take long
    products()
    assert kept_memory._thread is not None


def test_it_goes_where_memory_is_short(device, eager, monkeypatch):
    monkeypatch.setattr(kept_memory, "IDLE_SECONDS", 1e9)
    monkeypatch.setattr(kept_memory, "_free_bytes", lambda: 0)
    products()
    until(lambda: kept_memory.kept_bytes() < eager + FEW)
    monkeypatch.setattr(kept_memory, "IDLE_SECONDS", 0)
    until(lambda: kept_memory._thread is None)


def test_a_result_that_dies_late_is_not_kept(eager, monkeypatch):
    """No thread would give its memory back."""
    array = kept_memory.empty_result((N, N), "C")
    monkeypatch.setattr(kept_memory, "IDLE_SECONDS", 0)
    before = kept_memory.kept_bytes()
    del array
    assert kept_memory.kept_bytes() == before


def test_the_system_tells_what_is_free():
    assert 0 < kept_memory._free_bytes() <= 2**62


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_starts_a_thread_of_its_own():
    """It keeps nothing of its parent's, and gives back what it keeps itself."""
    code = """
import os, time
import numpy as np
from clgemm.runtime import kept_memory
kept_memory.LEAST_BYTES = kept_memory.LEAST_WATCHED_BYTES = 2**14
kept_memory.IDLE_SECONDS, kept_memory.LOOK_SECONDS = 0.2, 0.01
del_ = kept_memory.empty_result((300, 300), "C")
del del_
child = os.fork()
x = kept_memory.empty_result((300, 300), "C")
del x
end = time.monotonic() + 20
while kept_memory.kept_bytes() and time.monotonic() < end:
    time.sleep(0.01)
assert not kept_memory.kept_bytes()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
