"""Tests of one call: what it waits for, and what is left after a failure."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pytest
from staged import TINY, integers

import clgemm
from clgemm.runtime.transfer import call
from clgemm.runtime.transfer.pipeline import TiledProduct, multiply_through
from clgemm.runtime.transfer.staging import Staging, staging
from clgemm.runtime.workspace import Workspace, workspace

pytestmark = pytest.mark.usefixtures("small_pieces")


def test_events_are_waited_for(tiled):
    """Nothing is computed before the events that the call was given."""
    gate = cl.UserEvent(tiled.context)
    a = integers(100, 100)
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(clgemm.sgemm, 1.0, a, a, wait_for=[gate], queue=tiled.queue)
        done = threading.Event()
        result.add_done_callback(lambda _: done.set())
        assert not done.wait(0.1)
        gate.set_status(cl.command_execution_status.COMPLETE)
        np.testing.assert_array_equal(result.result(), a @ a)


def test_a_failure_before_the_first_tile_leaves_the_result_as_it_was(tiled, monkeypatch):
    """No memory: nothing is written, and the next call works."""
    a, out = integers(200, 200), integers(200, 200)
    before = out.copy()

    def refuse(space, size_bytes):
        raise cl.MemoryError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "allocate", refuse)
        with pytest.raises(cl.MemoryError):
            clgemm.dot(a, a, out=out)
    np.testing.assert_array_equal(out, before)
    np.testing.assert_array_equal(clgemm.dot(a, a, out=out), a @ a)


def test_after_a_failure_nothing_runs_on(tiled, monkeypatch):
    """Chunks are back in the pool, the operands are whole, the next call works."""
    a = integers(200, 200)
    before = a.copy()
    enqueue, calls = Workspace.enqueue, []

    def fail_late(space, *arguments, **keywords):
        calls.append(arguments)
        if len(calls) == 3:
            raise cl.RuntimeError("the third tile")
        return enqueue(space, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "enqueue", fail_late)
        with pytest.raises(cl.RuntimeError, match="the third tile"):
            clgemm.dot(a, a)
    pool = staging(tiled, tiled.transfer)
    assert len(pool._free) == pool._made()
    np.testing.assert_array_equal(a, before)
    np.testing.assert_array_equal(clgemm.dot(a, a), before @ before)


def test_a_second_call_takes_no_new_memory(tiled):
    """Neither pinned memory nor the device's."""
    a = integers(200, 200)
    clgemm.dot(a, a)
    pool = staging(tiled, tiled.transfer)
    scratch = pool.space._pool
    before = pool._made(), scratch.managed_bytes
    assert settled()
    clgemm.dot(a, a)
    assert (pool._made(), scratch.managed_bytes) == before


def test_a_copy_that_fails_ends_the_call(tiled, monkeypatch):
    """Its error is the caller's, the chunks are back, and the next call works."""
    pool = Staging(tiled, TINY)
    product = TiledProduct(1.0, 0.0, "strict", tiled, workspace(tiled.queue))
    a, c = integers(200, 200), np.zeros((200, 200), np.float32)
    copy, copied = pool.copy, []

    def fail_late(target, source):
        copied.append(target)
        if len(copied) == 20:
            raise MemoryError("the twentieth")
        copy(target, source)

    with monkeypatch.context() as patch:
        patch.setattr(pool, "copy", fail_late)
        with pytest.raises(MemoryError, match="the twentieth"):
            multiply_through(pool, product, a, a, c)
    assert len(pool._free) == pool._made()
    multiply_through(pool, product, a, a, c)
    np.testing.assert_array_equal(c, a @ a)


def test_a_call_has_few_transfers_under_way(tiled, monkeypatch):
    """No more pieces are begun than there are chunks: the rest of the call keeps no memory."""
    most, make = [], call.Crew.copy

    def noting(self, copy):
        make(self, copy)
        most.append(self.under_way)

    monkeypatch.setattr(call.Crew, "copy", noting)
    a = integers(200, 200)
    np.testing.assert_array_equal(clgemm.dot(a, a), a @ a)
    assert max(most) <= 2 * TINY.chunks
    assert len(most) > 4 * TINY.chunks


def test_calls_leave_nothing_behind(tiled):
    """Threads let go of a call once they have seen that it has ended."""
    a = integers(150, 150)

    def product(_):
        with clgemm.device(tiled):
            return clgemm.dot(a, a)

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(product, range(40)))
    assert all(np.array_equal(result, a @ a) for result in results)
    assert settled()


def settled():
    """Wait until no thread knows of a call any more, and tell whether that came."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        gc.collect()
        if not any(isinstance(x, (call.Call, call.Crew)) for x in gc.get_objects()):
            return True
        time.sleep(0.01)
    return False
