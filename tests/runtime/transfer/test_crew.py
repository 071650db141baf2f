"""Tests of those who copy for one call."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from staged import TINY, integers

from clgemm.runtime.transfer.crew import Crew, Load, Store
from clgemm.runtime.transfer.pieces import Piece, Slot
from clgemm.runtime.transfer.staging import Staging

COMPLETE = cl.command_execution_status.COMPLETE


@pytest.fixture
def pool(device):
    """Pinned memory and threads of a device."""
    return Staging(device, replace(TINY, threads=2))


def piece_of(host):
    """A piece that is all of an array."""
    return Piece(Slot(), host, 0, host.size)


def over(device):
    """A command that is over."""
    event = cl.UserEvent(device.context)
    event.set_status(COMPLETE)
    return event


@pytest.mark.parametrize("loaders", [0, 1, 3])
def test_all_is_copied_and_told(pool, device, loaders):
    """By threads, and without threads by the caller; threads that have no loads left store."""
    crew = Crew(pool, is_slow=False)
    if loaders:
        crew.start(loaders, 1)
    sources, chunks = integers(9, 20), np.zeros((9, 32), np.float32)
    for tile, (source, chunk) in enumerate(zip(sources, chunks, strict=True)):
        crew.load(Load(tile, piece_of(source), chunk, over(device) if tile % 2 else None))
    crew.end_loads()
    results = np.zeros((5, 20), np.float32)
    for result in results:
        crew.store(Store(piece_of(result), integers(32), over(device)))
    done = [crew.next() for _ in range(14)]
    crew.end()
    assert sorted(each.tile for each in done if isinstance(each, Load)) == list(range(9))
    np.testing.assert_array_equal(chunks[:, :20], sources)
    stores = [each for each in done if isinstance(each, Store)]
    assert len(stores) == 5
    for store in stores:
        np.testing.assert_array_equal(store.piece.host, store.chunk[:20])


def test_a_chunk_is_not_filled_before_its_last_transfer_is_over(pool, device):
    """Nor is a result copied before it has arrived."""
    gate = cl.UserEvent(device.context)
    crew = Crew(pool, is_slow=True)
    crew.start(1, 1)
    source, chunk, result = integers(8), np.zeros(8, np.float32), np.zeros(8, np.float32)
    crew.load(Load(0, piece_of(source), chunk, gate))
    crew.store(Store(piece_of(result), source, gate))
    threading.Event().wait(0.05)
    assert not chunk.any()
    assert not result.any()
    gate.set_status(COMPLETE)
    crew.next(), crew.next()
    crew.end()
    np.testing.assert_array_equal(chunk, source)
    np.testing.assert_array_equal(result, source)


def test_an_abandoned_call_writes_nothing_more(pool, device):
    """Waits for slow commands end, and what was handed out is not copied."""
    gate = cl.UserEvent(device.context)
    crew = Crew(pool, is_slow=True)
    crew.start(2, 1)
    chunk, result = np.zeros(8, np.float32), np.zeros(8, np.float32)
    crew.load(Load(0, piece_of(integers(8) + 20), chunk, gate))
    crew.store(Store(piece_of(result), integers(8) + 20, gate))
    crew.abandon()
    gate.set_status(COMPLETE)
    assert all(task.done() for task in crew._tasks)
    assert not chunk.any()
    assert not result.any()
    crew.abandon()  # as often as one likes


def test_an_error_of_a_thread_is_the_caller_s(pool, monkeypatch):
    """A copy that fails ends the call."""
    crew = Crew(pool, is_slow=False)
    crew.start(1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "copy", lambda *_: 1 / 0)
        crew.load(Load(0, piece_of(integers(8)), np.zeros(8, np.float32), None))
        with pytest.raises(ZeroDivisionError):
            crew.next()
    crew.abandon()


def test_without_threads_the_caller_copies(pool, monkeypatch):
    """As when the interpreter ends."""

    class Ended:
        def submit(self, *_):
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(pool, "threads", Ended)
    crew = Crew(pool, is_slow=False)
    crew.start(2, 1)
    source, chunk = integers(8), np.zeros(8, np.float32)
    crew.load(Load(0, piece_of(source), chunk, None))
    assert crew.next().chunk is chunk
    np.testing.assert_array_equal(chunk, source)
