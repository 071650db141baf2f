"""Tests of what goes up to the device."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from staged import TINY, integers

from clgemm.core.locking import Locking
from clgemm.runtime.transfer.pieces import Slot, cut
from clgemm.runtime.transfer.staging import Staging
from clgemm.runtime.transfer.uploads import Lane, Uploads

LOCKED = Locking(loads=1.0, results=0.0, region_bytes=4096, held_bytes=2**16)


@pytest.mark.parametrize("config", [TINY, replace(TINY, locking=LOCKED)], ids=["chunks", "locked"])
@pytest.mark.parametrize("threaded", [True, False])
def test_blocks_arrive_whole_through_few_chunks(device, config, threaded):
    """Two chunks carry two blocks of many pieces; each changes after its transfer is over only."""
    pool, lock = Staging(device, config), threading.RLock()
    flags = cl.mem_flags.READ_WRITE
    hosts = [integers(60, 64), integers(40, 70)]
    slots = [Slot(cl.Buffer(device.context, flags, host.nbytes), []) for host in hosts]
    copies = pool.copies(threaded)
    share = config.locking.loads
    waited, pieces = [], []

    def wait(event):
        event.wait()
        waited.append(event)

    with pool.lent(2, lock) as chunks:
        lane = Lane(pool, copies, pool.page_locks(lock), lock, [])
        uploads = Uploads(lane)
        uploads.take(chunks)
        most = config.chunk_bytes // 4
        for tile, (host, slot) in enumerate(zip(hosts, slots, strict=True)):
            found = list(cut(host, slot, most, share, 4096, is_result=False))
            assert len(found) > 2
            assert any(piece.in_place for piece in found) == bool(share)
            pieces += found
            uploads.to_fill.extend((tile, piece) for piece in found)
        assert not uploads.needs(0)
        for tile in range(2):
            while any(of == tile for of, _ in uploads.to_fill) or uploads.needs(tile):
                uploads.fill(wait)
                uploads.send()
        cl.wait_for_events([event for slot in slots for event in slot.ready])
        copies.finish_all()
        lane.locks.close()
    if not share:
        assert len(waited) == len(pieces) - 2
    for host, slot in zip(hosts, slots, strict=True):
        arrived = np.empty_like(host)
        cl.enqueue_copy(device.queue, arrived, slot.buffer)
        np.testing.assert_array_equal(arrived, host)


def test_nothing_is_prefaulted_once_its_result_arrives(device):
    """The memory of later tiles is left to its turn."""
    pool, lock = Staging(device, replace(TINY, prefault="touch")), threading.RLock()
    lane = Lane(pool, pool.copies(True), pool.page_locks(lock), lock, [])
    uploads = Uploads(lane)
    uploads.to_prefault.extend((tile, integers(10)) for tile in range(5))
    uploads.end_prefault(2)
    assert [tile for tile, _ in uploads.to_prefault] == [3, 4]
