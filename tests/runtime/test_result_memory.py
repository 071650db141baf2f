"""Tests of the memory of large kept_memory."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import clgemm
from clgemm.runtime import kept_memory

SHAPE = (64, 96)
BUFFERS = (kept_memory.ResultMemory, memoryview)


@pytest.fixture(autouse=True)
def pool(monkeypatch):
    """An empty pool, for results from 16 KiB to 1 MiB."""
    own = kept_memory._Pool()
    monkeypatch.setattr(kept_memory, "_pool", own)
    monkeypatch.setattr(kept_memory, "LEAST_BYTES", 2**14)
    monkeypatch.setattr(kept_memory, "LEAST_WATCHED_BYTES", 2**14)
    monkeypatch.setattr(kept_memory, "_most_bytes", lambda: 2**20)
    return own


def _address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_serves_again_once_an_array_is_gone(order, pool):
    """Arrays of the wanted shape and order; memory that is somewhat too large serves as well."""
    first = kept_memory.empty_result(SHAPE, order)
    assert first.dtype == np.float32
    assert first.shape == SHAPE
    assert first.flags.c_contiguous if order == "C" else first.flags.f_contiguous
    assert first.flags.writeable
    first[...] = 1
    where = _address(first)
    second = kept_memory.empty_result(SHAPE, order)
    assert not np.shares_memory(first, second)
    del first
    third = kept_memory.empty_result((60, 96), order)
    assert _address(third) == where
    assert len(pool._living) == 2
    del second, third
    assert not pool._living
    assert len(pool._kept) == kept_memory.MOST_KEPT


def test_memory_that_something_refers_to_serves_nothing_else(pool):
    """A view, a view of another class, a memoryview, an array's base."""
    for refer in (
        lambda x: x[1:].T,
        lambda x: x.view(np.recarray),
        memoryview,
        lambda x: x.base,
        lambda x: np.frombuffer(x, np.uint8),
    ):
        array = kept_memory.empty_result(SHAPE, "C")
        array[...] = 3
        held = refer(array)
        del array
        other = kept_memory.empty_result(SHAPE, "C")
        other[...] = 4
        seen = np.frombuffer(held, np.float32, 1) if held.__class__ in BUFFERS else held
        assert np.asarray(seen).reshape(-1)[0] != 4
        del held, other
        pool.give_back()


@pytest.mark.parametrize("shape", [(63, 65), (0, 5), (), (513, 512)])
def test_small_and_very_large_results_are_numpys(shape, pool):
    """So is a result for which there is no memory, and MemoryError is NumPy's."""
    array = kept_memory.empty_result(shape, "C")
    assert array.shape == shape
    assert array.flags.owndata
    assert not pool._living


def test_what_fits_badly_is_kept_for_others(pool, monkeypatch):
    """A piece that is too small or much too large stays; the oldest makes room for a third."""
    small, large = kept_memory.empty_result(SHAPE, "C"), kept_memory.empty_result((128, 96), "C")
    where = {_address(small), _address(large)}
    del small, large
    between = kept_memory.empty_result((90, 96), "C")
    assert _address(between) not in where
    assert len(pool._kept) == 2
    del between
    assert len(pool._kept) == 2
    monkeypatch.setattr(kept_memory, "_new", _fail)
    array = kept_memory.empty_result((256, 96), "C")
    assert array.flags.owndata
    assert not pool._kept


def _fail(_):
    raise OSError


def test_threads_share_no_memory():
    """Each thread finds what it wrote, however often they take and drop arrays."""
    wrong = []

    def take(number):
        for turn in range(300):
            array = kept_memory.empty_result(SHAPE, "C")
            array[...] = 1000 * number + turn
            other = kept_memory.empty_result(SHAPE, "F")
            other[...] = -1
            if (array != 1000 * number + turn).any():
                wrong.append((number, turn))

    threads = [threading.Thread(target=take, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_memory_of_its_own():
    """What it writes is not seen by its parent."""
    array = kept_memory.empty_result(SHAPE, "C")
    array[...] = 5
    child = os.fork()
    if not child:
        array[...] = 6
        os._exit(int(array[0, 0]))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 6
    assert (array == 5).all()


def test_results_of_products_use_it(device, pool):
    """The next product of the same size is right, and may have the memory of a dropped result."""
    a = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) % 7
    b = np.arange(32 * 96, dtype=np.float32).reshape(32, 96) % 5
    with clgemm.device(device):
        first = clgemm.sgemm(1.0, a, b)
        np.testing.assert_array_equal(first, a @ b)
        assert isinstance(first.base, kept_memory.ResultMemory)
        where = _address(first)
        del first
        second = clgemm.sgemm(2.0, a, b)
        np.testing.assert_array_equal(second, 2 * (a @ b))
        assert _address(second) == where
        with clgemm.resident(second) as resident:  # its memory is nobody else's
            assert not second.flags.writeable
            np.testing.assert_array_equal(clgemm.sgemm(1.0, second.T, a), second.T @ a)
            assert resident is not None
        assert second.flags.writeable
        second[0, 0] = 1


def test_the_hosts_memory_is_what_a_container_allows(tmp_path, monkeypatch):
    """The smallest limit counts; "max" is none."""
    no_limit, limit = tmp_path / "max", tmp_path / "limit"
    no_limit.write_text("max\n", "ascii")
    limit.write_text("4096\n", "ascii")
    monkeypatch.setattr(kept_memory, "CGROUPS", [(x, "") for x in (no_limit, tmp_path / "missing")])
    assert kept_memory._host_bytes() > 2**20
    monkeypatch.setattr(kept_memory, "CGROUPS", [(x, "") for x in (no_limit, limit)])
    assert kept_memory._host_bytes() == 4096
    monkeypatch.setattr(kept_memory, "CGROUPS", ())
    monkeypatch.setattr(kept_memory.os, "sysconf", _fail, raising=False)
    assert kept_memory._host_bytes() == kept_memory.UNKNOWN_BYTES
