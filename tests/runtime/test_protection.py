"""Which arrays can be protected, and that all flags become what they were."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import shared_memory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clgemm
from clgemm.runtime import protection
from clgemm.runtime.protection import protect
from clgemm.transfer import resident


@pytest.fixture(scope="module", autouse=True)
def without_copies(device):
    """Protect arrays beside a device that works."""


@pytest.fixture(autouse=True)
def all_is_released():
    """Assert that a test leaves nothing protected."""
    yield
    assert not protection._guards
    assert not resident._regions


def floats(*shape):
    """An array that owns its memory."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape).copy()


def test_an_array_is_read_only_while_it_is_resident():
    """Neither it nor a view of it that is made meanwhile can be written to."""
    w = floats(4, 5)
    with clgemm.resident(w):
        with pytest.raises(ValueError, match="read-only"):
            w[0] = 1
        with pytest.raises(ValueError, match="read-only"):
            w.T[1:][0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            w[1:].flags.writeable = True
    w[0] = 1


def test_a_view_whose_base_others_hold_is_refused():
    """They could write through the base, and the message says what helps."""
    w = floats(4, 5)
    for view in (w.T, w[1:], w[:]):
        with pytest.raises(ValueError, match=r"array 1 .* of shape \(4, 5\), which others hold"):
            clgemm.resident(floats(2), view)
    assert w.flags.writeable


def test_a_view_of_a_base_that_nobody_else_holds_is_protected_with_it():
    """As of a new array that was reshaped; one more view of it, and it is refused."""
    w = np.zeros(20, np.float32).reshape(4, 5)
    with clgemm.resident(w):
        assert not w.flags.writeable
        assert not w.base.flags.writeable
    assert w.flags.writeable
    assert w.base.flags.writeable
    other = w[1:]
    with pytest.raises(ValueError, match="which others hold"):
        clgemm.resident(w)
    with pytest.raises(ValueError, match="which others hold"):
        clgemm.resident(other)
    del other
    clgemm.resident(w).release()


def test_a_view_of_a_resident_base_is_protected():
    """Whoever holds the base cannot write to it then."""
    w = floats(4, 5)
    before = w[1:]
    with clgemm.resident(w), clgemm.resident(before, w.T):
        assert not before.flags.writeable
    assert before.flags.writeable


def _in_shared_memory():
    memory = shared_memory.SharedMemory(create=True, size=64)
    memory.unlink()
    return np.ndarray(4, np.float32, memory.buf), memory


def _others(name, folder):
    """An array whose memory is not NumPy's, what keeps it alive, and the owner's type."""
    if name == "bytearray":
        return np.frombuffer(bytearray(16), np.float32), None
    if name == "mmap":
        return np.frombuffer(mmap.mmap(-1, 16), np.float32), None
    if name == "ctypes":
        return np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 4)()), None
    if name == "strided":
        return np.lib.stride_tricks.as_strided(floats(4), (2, 2), (4, 4)), None
    if name == "file":
        return np.asarray(np.memmap(folder / "file", np.float32, "w+", shape=4)), None
    return _in_shared_memory()


@pytest.mark.parametrize("name", ["bytearray", "mmap", "ctypes", "strided", "file", "shared"])
def test_memory_that_is_not_numpys_is_refused(name, tmp_path):
    """Its owner or another process could write to it; also through a read-only array."""
    array, kept = _others(name, tmp_path)
    with pytest.raises(ValueError, match=r"belongs to an object of type .*; pass a copy"):
        clgemm.resident(array)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="belongs to an object of type"):
        clgemm.resident(array)
    del array
    del kept


def test_memory_of_bytes_is_accepted():
    """Nobody can write to it; a buffer in between changes nothing."""
    for memory in (bytes(16), memoryview(bytes(16))):
        with clgemm.resident(np.frombuffer(memory, np.float32).reshape(2, 2)):
            pass


@pytest.mark.parametrize(
    ("array", "error", "words"),
    [
        (np.zeros(3, object), TypeError, "array 1 has dtype object"),
        (np.zeros(3, ">f4"), TypeError, "array 1 has dtype >f4"),
        (np.zeros(3, "M8[s]"), TypeError, r"array 1 has dtype datetime64\[s\]"),
        ([1.0], TypeError, "array 1 is of type list"),
        (None, TypeError, "array 1 is of type NoneType"),
        (np.zeros((2, 2), np.float32).view(np.matrix), TypeError, "array 1 is of type matrix"),
        (np.zeros(3, "i1,f4")["f1"], ValueError, r"array 1 is not aligned: strides \(5,\)"),
    ],
    ids=lambda x: str(getattr(x, "dtype", x))[:20],
)
def test_what_devices_do_not_multiply_is_refused(array, error, words):
    """The message names the array and what it is; those before it stay as they were."""
    w = floats(3)
    with pytest.raises(error, match=words):
        clgemm.resident(w, array)
    assert w.flags.writeable


@pytest.mark.parametrize("share", [0, -1, 1.1, float("nan")])
def test_a_share_of_the_memory_is_above_zero_and_at_most_one(share):
    """The message says what was given."""
    with pytest.raises(ValueError, match="share="):
        clgemm.resident(floats(3), share=share)


def test_flags_are_restored_after_the_last_of_several():
    """The same array twice, and a base with a view of it, in any order of release."""
    w = floats(4, 5)
    view = w[1:]
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        all_three = [clgemm.resident(w), clgemm.resident(w, w), clgemm.resident(view)]
        for i in order:
            assert not w.flags.writeable
            assert not view.flags.writeable
            all_three[i].release()
        assert w.flags.writeable
        assert view.flags.writeable


@given(
    frozen=st.sets(st.integers(0, 4)),
    steps=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12),
)
def test_flags_become_exactly_what_they_were(frozen, steps):
    """After any sequence of protections and releases, for any flags before."""
    w = floats(6, 4)
    family = [w, w[:], w.T, w[1:3], w.reshape(-1)]
    for i in frozen:
        family[i].flags.writeable = False
    before = [x.flags.writeable for x in family]
    guards, held = [], []
    for i, releases in steps:
        if releases and guards:
            guards.pop(0).release()
            held.pop(0)
            continue
        try:
            guards.append(protect(family[i], "x"))
        except ValueError:
            assert i > 0
            assert w.flags.writeable
        else:
            held.append(family[i])
        assert not any(x.flags.writeable for x in held)
    for guard in guards:
        guard.release()
    assert [x.flags.writeable for x in family] == before


def test_an_object_that_is_collected_has_released_its_arrays():
    """A program that forgets it gets its arrays back."""
    w = floats(4)
    held = clgemm.resident(w)
    assert not w.flags.writeable
    del held
    assert w.flags.writeable


def test_a_second_release_does_nothing():
    """Not even while another object holds the array; a released one cannot be entered."""
    w = floats(4)
    first, second = clgemm.resident(w), clgemm.resident(w)
    first.release()
    first.release()
    assert not w.flags.writeable
    second.release()
    assert w.flags.writeable
    with pytest.raises(RuntimeError, match="have been released"), first:
        pass


def test_threads_release_one_object_once():
    """The counts are right whoever comes first."""
    w = floats(4)
    with clgemm.resident(w):
        for _ in range(20):
            held = clgemm.resident(w)
            with ThreadPoolExecutor(4) as threads:
                for _ in range(4):
                    threads.submit(held.release)
            assert not w.flags.writeable
    assert w.flags.writeable


def test_empty_arrays_are_protected_too():
    """There is nothing to copy."""
    w = np.zeros((0, 5), np.float32)
    with clgemm.resident(w):
        assert not w.flags.writeable
        assert clgemm.matmul(np.ones((3, 0), np.float32), w).shape == (3, 5)
    assert w.flags.writeable
