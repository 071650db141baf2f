"""Tests of pinned memory."""

from __future__ import annotations

import gc
import threading

import pyopencl as cl
import pytest
from injection import TRANSFER
from staged import TINY

from clgemm.core.threads import NestedCallError
from clgemm.transfer.staging import Staging

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


def test_what_was_given_back_does_not_count_although_somebody_refers_to_it(device):
    """The frames of an exception that a program keeps hold chunks that the pool has given back."""
    pool = Staging(device, TRANSFER)
    lock = threading.RLock()
    with pool.lent(TRANSFER.pool_chunks, lock) as chunks:
        frames = list(chunks)
    pool.give_back()
    with pool.lent(TRANSFER.pool_chunks, lock) as chunks:  # this would wait for ever
        assert not {id(x) for x in frames} & {id(x) for x in chunks}
    assert pool._made() == TRANSFER.pool_chunks


def test_what_a_cycle_holds_is_collected(device):
    """A call that waits in vain collects what an exception has lost."""
    pool = Staging(device, TRANSFER)
    lock, cycle = threading.RLock(), []
    gc.disable()
    try:
        with pool.lent(TRANSFER.pool_chunks, lock) as chunks:
            cycle += [cycle, *chunks]
            chunks.clear()
        del cycle
        with pool.lent(TRANSFER.pool_chunks, lock):
            assert pool._made() == TRANSFER.pool_chunks
    finally:
        gc.enable()


def test_without_pinned_memory_other_memory_serves(tiled, monkeypatch):
    """A driver that has none left only makes transfers slower."""
    pool = Staging(tiled, TINY)

    def refuse(*arguments):
        raise cl.MemoryError("refused")

    monkeypatch.setattr(cl, "enqueue_map_buffer", refuse)
    with pool.lent(2, threading.RLock()) as chunks:
        assert [chunk.nbytes for chunk in chunks] == [4096, 4096]
