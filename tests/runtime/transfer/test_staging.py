"""Tests of pinned memory and of the threads that copy."""

from __future__ import annotations

import contextlib
import threading

import pyopencl as cl
import pytest
from injection import TRANSFER
from staged import TINY

from clgemm.core.nesting import NestedCallError
from clgemm.runtime.transfer.staging import CALLS, Staging

pytestmark = pytest.mark.usefixtures("small_pieces")


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


def test_without_pinned_memory_other_memory_serves(tiled, monkeypatch):
    """A driver that has none left only makes transfers slower."""
    pool = Staging(tiled, TINY)

    def refuse(*arguments):
        raise cl.MemoryError("refused")

    monkeypatch.setattr(cl, "enqueue_map_buffer", refuse)
    with pool.lent(2, threading.RLock()) as chunks:
        assert [chunk.nbytes for chunk in chunks] == [4096, 4096]


def test_threads_are_made_anew_in_another_process(tiled, monkeypatch):
    """A fork takes the caller's thread only."""
    pool = Staging(tiled, TINY)
    threads = pool.threads()
    assert pool.threads() is threads
    monkeypatch.setattr("clgemm.runtime.transfer.staging.os.getpid", lambda: -1)
    assert pool.threads() is not threads
    assert pool.threads().submit(int).result(60) == 0


def test_so_many_calls_get_threads(tiled):
    """One more makes its copies itself, and so does one that does not ask."""
    pool = Staging(tiled, TINY)
    with contextlib.ExitStack() as stack:
        lent = [stack.enter_context(pool.threads_lent(True)) for _ in range(CALLS + 1)]
        assert lent == [True] * CALLS + [False]
    with pool.threads_lent(False) as has_threads:
        assert not has_threads
    with pool.threads_lent(True) as has_threads:
        assert has_threads
