"""Digests tell every change of memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clgemm.runtime import digests as module
from clgemm.runtime.digests import ROW as ROW_BYTES
from clgemm.runtime.digests import Comparison, Part

ROW = ROW_BYTES // 4  # floats
SIZES = (1, 2, 3, ROW - 1, ROW, ROW + 1, 3 * ROW + 5)
RNG = np.random.default_rng(3)


def digests(memory):
    """Those of the bytes."""
    return module.digests(memory.view(np.uint8))


def part(memory, expected, first=0, last=None):
    """All rows of a memory, or some."""
    return Part(memory.view(np.uint8), expected, first, expected.shape[1] if last is None else last)


def reals(size):
    """Random values."""
    return RNG.standard_normal(size).astype(np.float32)


@settings(max_examples=40)
@given(size=st.sampled_from(SIZES), where=st.integers(0, 2**20), bit=st.integers(0, 31))
def test_any_changed_bit_is_found(size, where, bit):
    """In any float, also in the last row, which is shorter."""
    memory = reals(size)
    expected = digests(memory)
    assert part(memory, expected).is_same()
    memory.view(np.uint32)[where % size] ^= np.uint32(1 << bit)
    assert not part(memory, expected).is_same()


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.negative(x, out=x),
        lambda x: np.negative(x[1::2], out=x[1::2]),
        lambda x: x.__setitem__(slice(None), x[::-1].copy()),
        lambda x: x.sort(),
        lambda x: x.__setitem__(slice(2), x[1::-1].copy()),
        lambda x: np.multiply(x, 2, out=x),
        lambda x: x.fill(np.nan),
        lambda x: x.reshape(2, -1).__setitem__(slice(None), x.reshape(2, -1)[::-1].copy()),
    ],
    ids=["negative", "every other", "reversed", "sorted", "swapped", "doubled", "nan", "rows"],
)
def test_changes_that_sums_do_not_see_are_found(change):
    """Other signs, another order, other exponents."""
    memory = reals(4 * ROW)
    expected = digests(memory)
    change(memory)
    assert not part(memory, expected).is_same()


def test_only_the_rows_that_are_asked_for_count():
    """A product that reads a part of an array compares that part."""
    memory = reals(5 * ROW)
    expected = digests(memory)
    memory[2 * ROW + 7] += 1
    assert part(memory, expected, 0, 2).is_same()
    assert not part(memory, expected, 2, 3).is_same()
    assert part(memory, expected, 3, 5).is_same()


@pytest.mark.parametrize(
    ("ranges", "rows"),
    [
        ([], []),
        ([(0, 1)], []),
        ([(ROW_BYTES - 1, ROW_BYTES + 1)], [(1, 2)]),
        ([(ROW_BYTES, 2 * ROW_BYTES), (2 * ROW_BYTES, 2 * ROW_BYTES + 1)], [(1, 2), (2, 3)]),
        ([(2 * ROW_BYTES + 1, 2 * ROW_BYTES + 2), (3 * ROW_BYTES - 1, 3 * ROW_BYTES)], [(2, 3)]),
        ([(0, 9 * ROW_BYTES)], [(1, 4)]),
        ([(4 * ROW_BYTES, 5 * ROW_BYTES)], []),
    ],
)
def test_the_rows_of_some_bytes(ranges, rows):
    """Each once, and only those among the rows that are meant."""
    memory = reals(5 * ROW)
    found = part(memory, digests(memory), 1, 4).of_bytes(ranges)
    assert [(each.first, each.last) for each in found] == rows


def test_memory_that_is_not_aligned_to_words():
    """A view may begin at any float."""
    whole = reals(2 * ROW + 9)
    memory = whole[1:]
    expected = digests(memory)
    assert part(memory, expected).is_same()
    memory[-1] += 1
    assert not part(memory, expected).is_same()


@pytest.mark.parametrize("threaded", [False, True])
def test_a_comparison_takes_all_parts_into_account(threaded, monkeypatch):
    """By threads, by the caller, and where no thread can be had."""
    monkeypatch.setattr(module, "TASK", 2)
    monkeypatch.setattr(module, "LEAST_THREADED", 4 if threaded else 10**6)
    memories = [np.ones(7 * ROW + 5, np.float32), np.ones(3, np.float32)]
    parts = [part(x, digests(x)) for x in memories]
    assert Comparison(parts).is_same()
    for memory in memories:
        memory[-1] += 1
        assert not Comparison(parts).is_same()
        memory[-1] -= 1
    memories[0][0] += 1
    assert not Comparison(parts).is_same()

    def refuse():
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(module, "_threads", refuse)
    assert not Comparison(parts).is_same()
    assert Comparison(parts[1:]).is_same()


def test_nothing_to_compare_is_the_same():
    """And there is nothing to wait for."""
    assert Comparison([]).is_over()
    assert Comparison([]).is_same()
