"""Host arrays that are page-locked where they lie, and memory that calls hold."""

from __future__ import annotations

import ctypes
import logging
import mmap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest
from staged import integers

import clgemm
from clgemm.core.locking import Locking
from clgemm.core.transfer import TransferConfig
from clgemm.hardware.device import Device
from clgemm.runtime.transfer import page_locks, pipeline
from clgemm.runtime.transfer.page_locks import PageLock, PageLocks, locked_bytes
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import Workspace, workspace

REGION = mmap.PAGESIZE
HELD = 8 * REGION
CONFIG = TransferConfig(
    memory_bytes=2**30,
    threads=2,
    threaded_bytes=0,
    caller_copies=True,
    chunk_bytes=2 * REGION,
    chunks=3,
    pool_chunks=24,
    tile_bytes=2000,
    tiles=3,
    rows=16,
    locking=Locking(loads=0.5, results=1.0, region_bytes=REGION, held_bytes=HELD),
)
WAYS = {
    "pointer": CONFIG.locking,
    "map": replace(CONFIG.locking, transfer="map"),
    "buffer": replace(CONFIG.locking, transfer="buffer"),
    "thread": replace(CONFIG.locking, in_thread=True),
}


@pytest.fixture(scope="module")
def every_locking(device):
    """The device once more for each way to lock."""
    return {
        name: Device(device.cl_device, transfer=replace(CONFIG, locking=locking))
        for name, locking in WAYS.items()
    }


@pytest.fixture(params=WAYS)
def locking(request, every_locking):
    """One of them, chosen."""
    with clgemm.device(every_locking[request.param]) as chosen:
        yield chosen


@pytest.fixture
def plain(every_locking):
    """The one that transfers from pointers, chosen."""
    with clgemm.device(every_locking["pointer"]) as chosen:
        yield chosen


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Cut transfers as those of large matrices are."""
    monkeypatch.setattr(pipeline, "SMALLEST_PIECE_BYTES", REGION)


@pytest.fixture
def locks(monkeypatch):
    """What is locked during a test: the memory of each lock, and the most bytes at a time."""
    found, lock = [], PageLocks.lock

    def noted(self, memory, flags):
        found.append((memory, locked_bytes()))
        return lock(self, memory, flags)

    monkeypatch.setattr(PageLocks, "lock", noted)
    return found


def test_whole_regions_of_operands_and_result_are_locked_and_released(locking, locks):
    """Locked memory lies in the arrays, within the limit; none is left when the call returns."""
    a, b, out = integers(300, 200), integers(200, 150), np.empty((300, 150), np.float32)
    clgemm.matmul(a, b, out=out)
    np.testing.assert_array_equal(out, a @ b)
    for memory, held_bytes in locks:
        assert memory.nbytes == REGION
        assert memory.ctypes.data % REGION == 0
        assert held_bytes <= HELD
    for array in (a, b, out):
        assert any(np.shares_memory(memory, array) for memory, _ in locks)
    assert locked_bytes() == 0


class Handles(set):
    """Handles, and whether there has been one."""

    made = False


@pytest.fixture
def alive(locking, monkeypatch):
    """The handles of buffers over locked memory that OpenCL has not destroyed."""
    if "llvmpipe" in locking.name and locking.transfer.locking.transfer == "buffer":
        pytest.skip("Mesa's events keep the buffers of commands that they waited for")
    functions = page_locks._functions()
    if functions is None:
        pytest.skip("OpenCL's own functions are hidden")
    library = ctypes.CDLL(cl._cl.__file__)
    library.clSetMemObjectDestructorCallback.argtypes = [ctypes.c_void_p] * 3
    handles, lock = Handles(), PageLock.__init__
    ended = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
        lambda handle, _: handles.discard(handle)
    )

    def noted(self, *arguments):
        lock(self, *arguments)
        handles.add(self._handle)
        callback = ctypes.cast(ended, ctypes.c_void_p)
        assert library.clSetMemObjectDestructorCallback(self._handle, callback, None) == 0
        handles.made = True

    monkeypatch.setattr(PageLock, "__init__", noted)
    yield handles
    assert handles.made
    assert ended


def end_of(handles):
    """Wait a moment for OpenCL's own threads, and return what is left."""
    for _ in range(200):
        if not handles:
            break
        time.sleep(0.01)
    return handles


def test_locked_memory_is_unlocked_when_the_call_returns(locking, alive):
    """OpenCL destroys the buffers over it: no command and no event refers to them any more."""
    a = integers(200, 200)
    np.testing.assert_array_equal(clgemm.dot(a, a), a @ a)
    assert not end_of(alive)


def test_locked_memory_is_unlocked_while_an_error_is_handled(locking, alive, monkeypatch):
    """The traceback refers to the call, but not to buffers."""
    enqueue, calls = Workspace.enqueue, []

    def fail_late(space, *arguments, **keywords):
        calls.append(arguments)
        if len(calls) == 3:
            raise cl.RuntimeError("the third tile")
        return enqueue(space, *arguments, **keywords)

    monkeypatch.setattr(Workspace, "enqueue", fail_late)
    with pytest.raises(cl.RuntimeError, match="the third tile") as caught:
        clgemm.dot(integers(200, 200), integers(200, 200))
    assert caught.value.__traceback__ is not None
    assert not end_of(alive)


def test_one_operand_twice_is_not_locked_twice(locking, locks):
    """A product of a matrix and itself, and of two views of one: each page once at a time."""
    base = integers(240, 200)
    for a, b in ((base[:200], base[:200]), (base[:200], base[10:210]), (base, base.T)):
        np.testing.assert_array_equal(clgemm.dot(a, b), a @ b)
    assert locks
    assert locked_bytes() == 0


def test_memory_that_is_not_writeable_is_not_locked(plain, locks):
    """The pages of an operand that is read-only may belong to a file."""
    a = integers(300, 200)
    a.flags.writeable = False
    result = clgemm.dot(a, a[:200])
    np.testing.assert_array_equal(result, a @ a[:200])
    assert locks
    assert not any(np.shares_memory(memory, a) for memory, _ in locks)


def test_a_driver_that_locks_nothing_only_makes_transfers_slower(locking, monkeypatch, caplog):
    """There is one warning, and the result is right."""

    def refuse(*arguments):
        raise cl.MemoryError("refused")

    monkeypatch.setattr(PageLock, "__init__", refuse)
    a, b = integers(300, 200), integers(200, 150)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(clgemm.dot(a, b), a @ b)
    assert [r.getMessage() for r in caplog.records] == [
        "no page-locking, transfers take longer: refused"
    ]
    assert locked_bytes() == 0


def test_a_driver_that_stops_locking_only_makes_transfers_slower(locking, monkeypatch):
    """From its first failure on, what is left goes through chunks."""
    count, lock = [], PageLock.__init__

    def refuse_third(*arguments):
        count.append(1)
        if len(count) >= 3:
            raise cl.MemoryError("refused")
        lock(*arguments)

    monkeypatch.setattr(PageLock, "__init__", refuse_third)
    a, b = integers(300, 200), integers(200, 150)
    np.testing.assert_array_equal(clgemm.dot(a, b), a @ b)
    assert locked_bytes() == 0


def test_without_opencls_own_functions_pyopencls_serve(locking, locks, monkeypatch):
    """They make other threads of Python wait, but the result is the same."""
    monkeypatch.setattr(page_locks, "_functions", lambda: None)
    a = integers(200, 200)
    np.testing.assert_array_equal(clgemm.dot(a, a), a @ a)
    assert locks
    assert locked_bytes() == 0


def test_opencls_own_functions_are_found_on_linux():
    """The library that pyopencl is linked to shows them."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("another system's loader")
    assert page_locks._functions() is not None


def test_after_a_failure_nothing_is_locked(locking, locks, monkeypatch):
    """The call releases what it had locked, and the next one works."""
    a = integers(200, 200)
    before = a.copy()
    enqueue, calls = Workspace.enqueue, []

    def fail_late(space, *arguments, **keywords):
        calls.append(arguments)
        if len(calls) == 3:
            raise cl.RuntimeError("the third tile")
        return enqueue(space, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "enqueue", fail_late)
        with pytest.raises(cl.RuntimeError, match="the third tile"):
            clgemm.dot(a, a)
    assert locks
    assert locked_bytes() == 0
    np.testing.assert_array_equal(clgemm.dot(a, a), before @ before)


def test_ranges_that_overlap_or_exceed_the_limit_are_refused():
    """A range is taken once, and free again after it is given back, however often it is."""
    registry = page_locks._Registry()
    first = registry.take(100, 200, 250)
    assert first is not None
    assert registry.take(199, 300, 10**6) is None
    assert registry.take(0, 101, 10**6) is None
    assert registry.take(200, 351, 250) is None
    second = registry.take(200, 350, 250)
    assert second is not None
    assert registry.size_bytes() == 250
    registry.give(first)
    registry.give(first)
    assert registry.size_bytes() == 150
    assert registry.take(100, 200, 250) is not None


def resident_bytes():
    """Return the memory of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from Linux")
def test_hundreds_of_mixed_calls_take_no_more_memory(every_locking):
    """Host memory, device memory and chunks are those of the first calls; nothing stays locked."""
    slow = "llvmpipe" in next(iter(every_locking.values())).name
    arrays = [integers(128, 128) for _ in range(3)]
    expected = arrays[0] @ arrays[1]

    def calls(count):
        for number in range(count):
            name = list(every_locking)[number % len(every_locking)]
            with clgemm.device(every_locking[name]):
                a, b, c = arrays
                if number % 3 == 0:
                    result = clgemm.matmul(a, b)
                elif number % 3 == 1:
                    result = clgemm.sgemm(1.0, b.T, a.T, 0.0, c.T, overwrite_c=1).T
                else:
                    result = clgemm.matmul(np.stack([a, a]), b)[1]
        np.testing.assert_array_equal(result, expected)

    def held():
        return [
            (staging(d, d.transfer)._made(), workspace(d.queue)._pool.managed_bytes)
            for d in every_locking.values()
        ]

    calls(24)
    before_bytes, before = resident_bytes(), held()
    calls(60 if slow else 400)
    assert held() == before
    # Less than a tenth of what went through.
    assert resident_bytes() - before_bytes < 2**24
    assert locked_bytes() == 0
