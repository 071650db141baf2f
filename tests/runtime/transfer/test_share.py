"""Tests of what one device makes of a call."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest
from staged import TINY, integers

from clgemm.core.transfer import make_stream
from clgemm.runtime.transfer.pieces import has_ended
from clgemm.runtime.transfer.pipeline import TiledProduct
from clgemm.runtime.transfer.share import Share
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import workspace

M, N, K = 200, 60, 40


@pytest.fixture
def share(tiled):
    """A share whose C is cut into four tiles of rows."""
    arrays = integers(M, K), integers(K, N), np.zeros((M, N), np.float32)
    product = TiledProduct(1.0, 0.0, "strict", tiled, workspace(tiled.queue))
    plan = make_stream((), (M, N, K), ((), ()), False, TINY, 2**30)
    share = Share(staging(tiled, TINY), product, plan, arrays)
    share.make_slots(5)
    return share


def test_slots_know_their_share_and_the_tiles_that_use_them(share):
    """B serves all tiles, and each of the slots of A and C some of them."""
    assert len(share.tiles) == 4
    first, second = share.tiles[:2]
    assert share.slot(first, 1) is share.slot(second, 1)
    assert share.slot(first, 0) is not share.slot(second, 0)
    assert share.slot(first, 0).share == 5
    assert share.slot(first, 1).tiles == [0, 1, 2, 3]
    assert share.slot(first, 0).tiles == [0, 3]  # of three slots
    assert share.moved == M * K + K * N + M * N


def test_a_block_is_part_of_its_array(share):
    """Its pieces are as long as asked for, and the last may be shorter."""
    tile = share.tiles[1]
    block = share.block(tile, 0)
    np.testing.assert_array_equal(block, share.arrays[0][tile.blocks[0]])
    assert share.count(tile, 0, block.size) == 1
    assert share.count(tile, 0, block.size - 1) == 2


def test_a_tile_is_ready_once_all_of_it_is_sent_and_its_slot_is_free(share):
    """Tiles are made in order; a result that is not fetched keeps its slot."""
    share.bind()
    share.allocate()
    share.unsent = [1, 0, 0, 0]
    assert share.ready_tile() is None
    share.unsent[0] = 0
    tile = share.ready_tile()
    assert tile is share.tiles[0]
    slot = share.slot(tile, 2)
    slot.unfetched = 1
    assert share.ready_tile() is None
    slot.unfetched = 0
    done = share.multiply(tile)
    done.wait()
    assert has_ended(done)
    assert slot.users == [done]
    assert share.slot(tile, 1).tiles == [1, 2, 3]
    assert share.ready_tile() is share.tiles[1]


@pytest.mark.parametrize("which", [0, 3])
@pytest.mark.parametrize("value", [0.0, np.inf])
def test_each_block_of_the_result_is_checked(share, which, value):
    """Flags of different blocks have places of their own."""
    assert share.checks is None
    share.bind()
    share.watch()
    share.allocate()
    queue, zero = share.space.queue, np.zeros(1, np.float32)
    for number, tile in enumerate(share.tiles):
        block, size = share.slot(tile, 2).buffer, share.block(tile, 2).nbytes
        done = cl.enqueue_fill_buffer(queue, block, zero, 0, size)
        if number == which:
            found = np.full(1, value, np.float32)
            done = cl.enqueue_fill_buffer(queue, block, found, size - 4, 4)
        share.checks.enqueue(block, done)
    for chunk in (np.empty(10, np.float32), np.empty(1000, np.float32)):
        assert share.checks.are_finite(chunk) == (value == 0)
