"""Tests of the pieces of a block."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from clgemm.runtime.transfer.pieces import Slot, cut, has_ended, shaped


@pytest.mark.parametrize("columns", [slice(None), slice(3, 40)])
def test_pieces_are_a_block_in_order(columns):
    """They follow one another in the slot, and none is too long."""
    block = np.arange(30 * 64, dtype=np.float32).reshape(30, 64)[:, columns]
    slot = Slot()
    found = list(cut(block, (slot,), 50))
    assert all(piece.slots == (slot,) for piece in found)
    np.testing.assert_array_equal(np.concatenate([p.host.ravel() for p in found]), block.ravel())
    assert [p.first for p in found] == [sum(p.size for p in found[:i]) for i in range(len(found))]
    assert all(piece.size <= 50 for piece in found)
    chunk = np.zeros(60, np.float32)
    assert all(shaped(chunk, p).shape == p.host.shape for p in found)


def test_a_slot_is_needed_until_its_users_are_enqueued():
    """Tiles before another, and results that are not fetched."""
    slot = Slot()
    assert not slot.is_needed_before(5)
    slot.tiles = [3, 5]
    assert slot.is_needed_before(5)
    slot.tiles = [5]
    assert not slot.is_needed_before(5)
    slot.unfetched = 1
    assert slot.is_needed_before(5)


def test_a_command_that_has_not_ended(device):
    """It is told without a wait."""
    gate = cl.UserEvent(device.context)
    assert not has_ended(gate)
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert has_ended(gate)


def test_a_command_that_failed():
    """Its error is raised."""

    class Failed:
        command_execution_status = -5

        def wait(self):
            raise cl.RuntimeError("failed")

    with pytest.raises(cl.RuntimeError, match="failed"):
        has_ended(Failed())
