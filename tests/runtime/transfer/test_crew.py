"""Tests of those who copy for one call."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from staged import TINY, integers

from clgemm.runtime.transfer.crew import Copy, Crew
from clgemm.runtime.transfer.pieces import Piece, Slot
from clgemm.runtime.transfer.staging import Staging


@pytest.fixture
def pool(device):
    """Pinned memory and threads of a device."""
    return Staging(device, replace(TINY, threads=2))


def piece_of(host):
    """A piece that is all of an array."""
    return Piece(Slot(), host, 0, host.size)


def all_done(crew):
    """All copies that are under way."""
    found = []
    while crew.under_way:
        found += crew.done(60)
    return found


@pytest.mark.parametrize("is_threaded", [False, True])
def test_all_is_copied_and_told(pool, is_threaded):
    """By threads, or by the caller."""
    crew = Crew(pool, is_threaded)
    sources, chunks = integers(9, 4, 5), np.zeros((9, 32), np.float32)
    for tile, (source, chunk) in enumerate(zip(sources, chunks, strict=True)):
        crew.copy(Copy.to_chunk(piece_of(source), chunk, tile))
    results = np.zeros((5, 20), np.float32)
    for result in results:
        crew.copy(Copy.from_chunk(piece_of(result), integers(32)))
    assert crew.under_way == 14
    done = all_done(crew)
    assert sorted(each.tile for each in done if each.tile is not None) == list(range(9))
    np.testing.assert_array_equal(chunks[:, :20].reshape(9, 4, 5), sources)
    stores = [each for each in done if each.tile is None]
    assert len(stores) == 5
    for store in stores:
        np.testing.assert_array_equal(store.piece.host, store.chunk[:20])


def test_nothing_is_returned_before_it_is_copied(pool, monkeypatch):
    """The caller can look whether there is anything."""
    gate = threading.Event()

    def copy(target, source):
        assert gate.wait(60)
        np.copyto(target, source)

    monkeypatch.setattr(pool, "copy", copy)
    crew, chunk, source = Crew(pool, True), np.zeros(8, np.float32), integers(8) + 20
    crew.copy(Copy.to_chunk(piece_of(source), chunk, 0))
    assert crew.done(0.01) == []
    assert not chunk.any()
    gate.set()
    assert [each.chunk is chunk for each in all_done(crew)] == [True]
    np.testing.assert_array_equal(chunk, source)


@pytest.mark.parametrize("is_threaded", [False, True])
def test_an_abandoned_call_writes_nothing_more(pool, monkeypatch, is_threaded):
    """What is being copied is waited for, and what was handed out is not copied."""
    begun, gate = threading.Semaphore(0), threading.Event()

    def copy(target, source):
        begun.release()
        assert gate.wait(60)
        np.copyto(target, source)

    monkeypatch.setattr(pool, "copy", copy)
    crew, results = Crew(pool, is_threaded), np.zeros((4, 8), np.float32)
    for result in results:
        crew.copy(Copy.from_chunk(piece_of(result), integers(8) + 20))
    if is_threaded:
        assert begun.acquire(timeout=60)
        assert begun.acquire(timeout=60)
    threading.Timer(0.05, gate.set).start()
    crew.abandon()
    assert gate.is_set() == is_threaded
    assert [bool(result.any()) for result in results] == [is_threaded] * 2 + [False] * 2
    assert crew.under_way == 0
    crew.abandon()  # as often as one likes


@pytest.mark.parametrize("is_threaded", [False, True])
def test_an_error_of_a_copy_is_the_caller_s(pool, monkeypatch, is_threaded):
    """A copy that fails ends the call."""
    monkeypatch.setattr(pool, "copy", lambda *_: 1 / 0)
    crew = Crew(pool, is_threaded)
    for _ in range(2):
        crew.copy(Copy.to_chunk(piece_of(integers(8)), np.zeros(8, np.float32), 0))
    with pytest.raises(ZeroDivisionError):
        crew.done(60)
    crew.abandon()
    assert crew.under_way == 0


def test_without_threads_the_caller_copies(pool, monkeypatch):
    """As when the interpreter ends."""
    monkeypatch.setattr(pool, "threads", lambda _: None)
    crew, chunk, source = Crew(pool, True), np.zeros(8, np.float32), integers(8)
    crew.copy(Copy.to_chunk(piece_of(source), chunk, 0))
    assert crew.done(60)[0].chunk is chunk
    np.testing.assert_array_equal(chunk, source)
