"""Tests of pinned memory."""

from __future__ import annotations

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


def test_without_pinned_memory_other_memory_serves(tiled, monkeypatch):
    """A driver that has none left only makes transfers slower."""
    pool = Staging(tiled, TINY)

    def refuse(*arguments):
        raise cl.MemoryError("refused")

    monkeypatch.setattr(cl, "enqueue_map_buffer", refuse)
    with pool.lent(2, threading.RLock()) as chunks:
        assert [chunk.nbytes for chunk in chunks] == [4096, 4096]
