"""Tests of copies by threads, and of symmetric results."""

from __future__ import annotations

import threading
import weakref
from dataclasses import replace
from queue import SimpleQueue

import numpy as np
import pytest
from staged import TINY, integers

import clgemm
from clgemm.transfer import copy_threads, multiply
from clgemm.transfer.copy_threads import Copier, copying_threads
from clgemm.transfer.staging import Staging
from clgemm.transfer.tiles import ChunkCopy, Piece, Slot


@pytest.fixture
def pool(device):
    """Pinned memory and threads of a device."""
    return Staging(device, replace(TINY, threads=2))


def piece_of(host):
    """A piece that is all of an array."""
    return Piece(Slot(), host, 0, host.size)


def all_done(copier):
    """All copies that are under way."""
    found = []
    while copier.under_way:
        found += copier.done(60)
    return found


@pytest.mark.parametrize("is_threaded", [False, True])
def test_all_is_copied_and_told(pool, is_threaded):
    """By threads, or by the caller."""
    copier = Copier(pool, is_threaded)
    sources, chunks = integers(9, 4, 5), np.zeros((9, 32), np.float32)
    for tile, (source, chunk) in enumerate(zip(sources, chunks, strict=True)):
        copier.copy(ChunkCopy.to_chunk(piece_of(source), chunk, tile))
    results = np.zeros((5, 20), np.float32)
    for result in results:
        copier.copy(ChunkCopy.from_chunk(piece_of(result), integers(32)))
    assert copier.under_way == 14
    done = all_done(copier)
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
    copier, chunk, source = Copier(pool, True), np.zeros(8, np.float32), integers(8) + 20
    copier.copy(ChunkCopy.to_chunk(piece_of(source), chunk, 0))
    assert copier.done(0.01) == []
    assert not chunk.any()
    gate.set()
    assert [each.chunk is chunk for each in all_done(copier)] == [True]
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
    copier, results = Copier(pool, is_threaded), np.zeros((4, 8), np.float32)
    for result in results:
        copier.copy(ChunkCopy.from_chunk(piece_of(result), integers(8) + 20))
    if is_threaded:
        assert begun.acquire(timeout=60)
        assert begun.acquire(timeout=60)
    threading.Timer(0.05, gate.set).start()
    copier.abandon()
    assert gate.is_set() == is_threaded
    assert [bool(result.any()) for result in results] == [is_threaded] * 2 + [False] * 2
    assert copier.under_way == 0
    copier.abandon()  # as often as one likes


@pytest.mark.parametrize("is_threaded", [False, True])
def test_an_error_of_a_copy_is_the_caller_s(pool, monkeypatch, is_threaded):
    """A copy that fails ends the call."""
    monkeypatch.setattr(pool, "copy", lambda *_: 1 / 0)
    copier = Copier(pool, is_threaded)
    for _ in range(2):
        copier.copy(ChunkCopy.to_chunk(piece_of(integers(8)), np.zeros(8, np.float32), 0))
    with pytest.raises(ZeroDivisionError):
        copier.done(60)
    copier.abandon()
    assert copier.under_way == 0


def test_without_threads_the_caller_copies(pool, monkeypatch):
    """As when the interpreter ends."""
    monkeypatch.setattr(copy_threads, "copying_threads", lambda _: None)
    copier, chunk, source = Copier(pool, True), np.zeros(8, np.float32), integers(8)
    copier.copy(ChunkCopy.to_chunk(piece_of(source), chunk, 0))
    assert copier.done(60)[0].chunk is chunk
    np.testing.assert_array_equal(chunk, source)


def done_by(work, count=1):
    """Return what so many threads do at once."""
    together, results = threading.Barrier(count), SimpleQueue()

    def note(value):
        together.wait(60)
        results.put(value)

    for value in range(count):
        work.put((note, value))
    return sorted(results.get(timeout=60) for _ in range(count))


def test_so_many_threads_work_at_once():
    """All calls with as many threads share them."""
    work = copying_threads(3)
    assert copying_threads(3) is work
    assert copying_threads(2) is not work
    assert done_by(work, 3) == [0, 1, 2]


def test_threads_are_made_anew_in_another_process(monkeypatch):
    """A fork takes the caller's thread only."""
    work = copying_threads(1)
    monkeypatch.setattr(copy_threads.os, "getpid", lambda: -1)
    monkeypatch.setattr(copy_threads, "_work", dict(copy_threads._work))
    assert copying_threads(1) is not work
    assert done_by(copying_threads(1)) == [0]


def test_without_threads_there_is_none(monkeypatch):
    """As when the interpreter ends, or when the system gives no more; fewer serve as well."""
    monkeypatch.setattr(copy_threads, "_work", {})
    with monkeypatch.context() as patch:
        patch.setattr(copy_threads.sys, "is_finalizing", lambda: True)
        assert copying_threads(2) is None
    start, started = threading.Thread.start, []

    def refuse(thread):
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    allowed = 0
    assert copying_threads(2) is None
    allowed = 1
    assert done_by(copying_threads(2)) == [0]


def test_threads_keep_nothing():
    """Neither what they did nor for whom."""

    class Thing:
        pass

    thing, work, done = Thing(), copying_threads(1), threading.Event()
    kept = weakref.ref(thing)
    work.put((lambda _: None, thing))
    del thing
    work.put((lambda _: done.set(), None))
    assert done.wait(60)
    assert kept() is None


@pytest.fixture
def mirrored(monkeypatch):
    """The results that the host makes symmetric."""
    found = []

    def recording(c, staging):
        found.append(c.shape)
        copy_threads.mirror(c, staging)

    monkeypatch.setattr(multiply, "mirror", recording)
    return found


@pytest.mark.parametrize(("memory_bytes", "by_host"), [(2**18, True), (2**28, False)])
@pytest.mark.parametrize("shape", [(300, 200), (5, 90, 80)])
def test_the_host_mirrors_only_what_comes_in_parts(
    device, mirrored, monkeypatch, memory_bytes, by_host, shape
):
    """A result that fits into the device's memory is made symmetric there."""
    monkeypatch.setattr(multiply, "plan_single_transfer", lambda *_: None)
    config = replace(TINY, memory_bytes=memory_bytes)
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    with clgemm.device(clgemm.Device(device.cl_device, transfer=config)):
        found = clgemm.matmul(x, x.swapaxes(-1, -2))
    np.testing.assert_array_equal(found, found.swapaxes(-1, -2))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found, wide @ wide.swapaxes(-1, -2), rtol=1e-4, atol=1e-4)
    if len(shape) == 2:
        assert bool(mirrored) is by_host


@pytest.mark.parametrize("threaded_bytes", [0, 2**40])
def test_a_batch_is_mirrored_by_threads_or_without(device, monkeypatch, threaded_bytes):
    """Blocks, their edges and corners."""
    monkeypatch.setattr(copy_threads, "BLOCK", 16)
    config = replace(TINY, threaded_bytes=threaded_bytes)
    staging = Staging(device, config)
    for given in (staging, None):
        c = np.random.default_rng(3).standard_normal((3, 70, 70)).astype(np.float32)
        expected = np.triu(c) + np.triu(c, 1).swapaxes(-1, -2)
        copy_threads.mirror(c, given)
        np.testing.assert_array_equal(c, expected)
