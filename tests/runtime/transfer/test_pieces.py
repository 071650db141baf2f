"""Tests of the pieces of a block, without a device."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest

from clgemm.runtime.transfer.pieces import Slot, cut, is_over, is_refused, shaped

REGION = 256  # bytes


def pieces_of(block, share=0.0, most=50):
    """Return the pieces of a block."""
    slot = Slot(None, [])
    found = list(cut(block, slot, most, share, REGION, is_result=False))
    assert all(piece.slot is slot for piece in found)
    return found


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("columns", [slice(None), slice(3, 40)])
def test_pieces_are_a_block_in_order(share, columns):
    """They follow one another in the slot; those that go through a chunk are short enough."""
    block = np.arange(30 * 64, dtype=np.float32).reshape(30, 64)[:, columns]
    found = pieces_of(block, share)
    np.testing.assert_array_equal(np.concatenate([p.host.ravel() for p in found]), block.ravel())
    assert [p.first for p in found] == [sum(p.size for p in found[:i]) for i in range(len(found))]
    assert all(piece.size <= 50 for piece in found if not piece.in_place)
    chunk = np.zeros(60, np.float32)
    assert all(shaped(chunk, p).shape == p.host.shape for p in found if not p.in_place)


def test_only_contiguous_writeable_memory_goes_without_chunks():
    """The pages of read-only memory may belong to a file; rows with gaps are no whole regions."""
    block = np.zeros((30, 64), np.float32)
    locked = sum(piece.size for piece in pieces_of(block, 1.0) if piece.in_place)
    assert block.size - 2 * REGION // 4 < locked <= block.size
    assert not any(piece.in_place for piece in pieces_of(block, 0.0))
    assert not any(piece.in_place for piece in pieces_of(block[:, :40], 1.0))
    block.flags.writeable = False
    assert not any(piece.in_place for piece in pieces_of(block, 1.0))


def test_what_never_began_is_over_and_what_is_open_is_not_refused():
    """A chunk that nothing was sent from is free; a lock is refused once its result is None."""
    assert is_over(None)
    lock = Future()
    assert not is_refused(lock)
    lock.set_result(None)
    assert is_refused(lock)
