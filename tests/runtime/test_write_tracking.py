"""Tracking tells every page that was written to, and no other."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clgemm.runtime import write_tracking as module
from clgemm.runtime.write_tracking import PAGE, Span, track

PAGES = 8
HUGE = 2**21

needs_tracking = pytest.mark.skipif(
    track(np.ones(module.LEAST_BYTES, np.uint8)) is None,
    reason="this system does not track writes to memory",
)


@pytest.fixture(autouse=True)
def everything_is_tracked(monkeypatch):
    """Track small memory too, and assert that a test leaves nothing tracked or protected."""
    monkeypatch.setattr(module, "LEAST_BYTES", 1)
    yield
    if module._live or module._over or registered():  # a cycle may hold them
        gc.collect()
    assert not module._live
    assert not module._over
    assert not registered()


def registered():
    """The mappings that a userfaultfd watches for writes."""
    if sys.platform != "linux":
        return []
    lines = Path("/proc/self/smaps").read_text(errors="replace").splitlines()
    return [line for line in lines if line.startswith("VmFlags:") and " uw" in line]


def pages_of(count=PAGES):
    """Whole pages of private memory that have been written to, as bytes."""
    array = np.frombuffer(
        mmap.mmap(-1, count * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8
    )
    array[:] = 1
    return array


def by_system_call(array, where):
    """Let a system call write one byte."""
    zeros = os.open("/dev/zero", os.O_RDONLY)
    os.preadv(zeros, [memoryview(array)[where : where + 1]], 0)
    os.close(zeros)


def by_memset(array, where):
    """Let C write one byte."""
    ctypes.memset(array.ctypes.data + where, 7, 1)


def by_thread(array, where):
    """Let another thread write one byte."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(array.__setitem__, where, 7).result()


def by_view(array, where):
    """Write the same value."""
    array[where : where + 1][0] = array[where]


WRITERS = [by_view, by_memset, by_system_call, by_thread]


@needs_tracking
@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("where", [0, PAGE, 3 * PAGE - 1, PAGES * PAGE - 1])
def test_a_write_is_found_whoever_writes(write, where):
    """And no page beside it."""
    array = pages_of()
    tracking = track(array)
    assert tracking.written(0, array.size) == []
    write(array, where)
    first = where // PAGE * PAGE
    assert tracking.written(0, array.size) == [(first, first + PAGE)]


@needs_tracking
def test_reads_are_no_writes():
    """By NumPy, by a system call, and of memory that has no pages yet."""
    array = np.frombuffer(
        mmap.mmap(-1, PAGES * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8
    )
    array[:PAGE] = 1
    tracking = track(array)
    assert array.sum() == PAGE
    with Path(os.devnull).open("wb") as null:
        null.write(array.data)
    assert tracking.written(0, array.size) == []
    array[5 * PAGE] = 1
    assert tracking.written(0, array.size) == [(5 * PAGE, 6 * PAGE)]


@needs_tracking
def test_only_the_bytes_that_are_asked_for_count():
    """A page is the smallest unit; what is returned never exceeds what was asked for."""
    array = pages_of()
    tracking = track(array)
    array[2 * PAGE + 5] = 0
    assert tracking.written(0, 2 * PAGE) == []
    assert tracking.written(3 * PAGE, array.size) == []
    assert tracking.written(2 * PAGE, 2 * PAGE + 1) == [(2 * PAGE, 2 * PAGE + 1)]
    assert tracking.written(PAGE, 3 * PAGE - 9) == [(2 * PAGE, 3 * PAGE - 9)]


@needs_tracking
def test_memory_that_shares_its_first_and_last_page():
    """A write beside it in those pages counts; one in the pages around does not."""
    array = pages_of()
    part = array[PAGE + 100 : 3 * PAGE + 100]
    tracking = track(part)
    array[PAGE - 1] = array[4 * PAGE] = 7
    assert tracking.written(0, part.size) == []
    array[4 * PAGE - 1] = 7
    assert tracking.written(0, part.size) == [(2 * PAGE - 100, part.size)]
    array[PAGE] = 7
    assert tracking.written(0, part.size) == [(0, PAGE - 100), (2 * PAGE - 100, part.size)]


@needs_tracking
@pytest.mark.parametrize("is_new", [False, True])
def test_huge_pages(is_new):
    """A write counts for a part of a huge page at most, also where there was none yet."""
    memory = mmap.mmap(-1, 4 * HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # this kernel has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    if is_new:
        assert not array.any()
    else:
        array[:] = 1
    tracking = track(array)
    assert tracking.written(0, array.size) == []
    where = 2 * HUGE + 12345
    array[where] = 3
    found = tracking.written(0, array.size)
    assert len(found) == 1
    assert found[0][0] <= where < found[0][1]
    assert found[0][1] - found[0][0] <= HUGE


@needs_tracking
def test_huge_pages_that_are_given_back_count_as_written_to():
    """Nothing of them is left in the page map."""
    memory = mmap.mmap(-1, 4 * HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # this kernel has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    array[:] = 1
    tracking = track(array)
    first = -array.ctypes.data % HUGE + HUGE
    memory.madvise(mmap.MADV_DONTNEED, first, HUGE)
    assert tracking.written(0, array.size) == [(first, first + HUGE)]
    assert not array[first : first + HUGE].any()
    assert tracking.written(0, array.size) == [(first, first + HUGE)]


@needs_tracking
def test_large_numpy_arrays():
    """Their memory comes from the system, in mappings of several kinds.

    Other arrays may share the pages at both ends, which may be huge, and write there.
    """
    x = np.ones((2500, 1024), np.float32)
    tracking = track(x)
    assert tracking.written(HUGE, x.nbytes - HUGE) == []
    x[1200, 5] = 2
    ((first, last),) = tracking.written(HUGE, x.nbytes - HUGE)
    assert first <= 4 * (1200 * 1024 + 5) < last <= first + HUGE


@needs_tracking
def test_more_written_pages_than_are_told_apart(monkeypatch):
    """Then what lies behind counts as written to."""
    monkeypatch.setattr(module, "MOST_RANGES", 2)
    array = pages_of()
    tracking = track(array)
    array[[PAGE, 3 * PAGE]] = 7
    found = tracking.written(0, array.size)
    assert found == [(PAGE, 2 * PAGE), (3 * PAGE, array.size)]


@needs_tracking
def test_memory_that_is_given_back_counts_as_written_to():
    """Its content is lost, without a write."""
    array = pages_of()
    memory = array.base if isinstance(array.base, mmap.mmap) else array.base.obj
    tracking = track(array)
    memory.madvise(mmap.MADV_DONTNEED, PAGE, 2 * PAGE)
    assert not array[PAGE : 3 * PAGE].any()
    assert tracking.written(0, array.size) == [(PAGE, 3 * PAGE)]


def _mapped(address, size, flags):
    mapping = ctypes.CDLL(None).mmap
    mapping.restype, mapping.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
    mapping.argtypes += [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    access = mmap.PROT_READ | mmap.PROT_WRITE
    return mapping(address, size, access, flags, -1, 0)


@needs_tracking
def test_memory_that_is_mapped_anew_counts_as_written_to():
    """Other memory at the same address is not what was tracked, and can be tracked itself."""
    size, flags = 4 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _mapped(None, size, flags)
    array = np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
    array[:] = 1
    tracking = track(array)
    assert tracking.written(0, size) == []
    fixed = 0x10
    assert _mapped(address + PAGE, 2 * PAGE, flags | fixed) == address + PAGE
    assert not array[PAGE : 3 * PAGE].any()
    assert tracking.written(0, size) == [(PAGE, 3 * PAGE)]
    tracking.end()
    again = track(array)
    assert again.written(0, size) == []
    array[PAGE] = 7
    assert again.written(0, size) == [(PAGE, 2 * PAGE)]
    again.end()
    ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))


@needs_tracking
def test_arrays_that_take_each_others_place():
    """What was told of one array says nothing of the next at its address."""
    addresses = set()
    for _ in range(20):
        memory = mmap.mmap(-1, 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        x = np.frombuffer(memory, np.float32)
        addresses.add(x.ctypes.data)
        tracking = track(x)
        assert tracking.written(0, x.nbytes) == []
        x[1000] = 1
        assert tracking.written(0, x.nbytes) != []
        del tracking, x, memory
    assert len(addresses) < 20


@given(
    start=st.integers(0, 12),
    size=st.integers(0, 12),
    others=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12)), max_size=5),
)
def test_what_lies_in_no_other_span(start, size, others):
    """Of spans beside, around and within each other, in any order."""
    whole = Span(start, start + size)
    spans = [Span(first, first + count) for first, count in others]
    found = whole.without(spans)
    inside = {i for first, last in spans for i in range(first, last)}
    assert {i for first, last in found for i in range(first, last)} == {*range(*whole)} - inside
    assert found == sorted(found)
    assert all(first < last for first, last in found)


@needs_tracking
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_sequence_of_beginnings_ends_and_writes(data):
    """A page counts for all trackings from its first write until the last one of them ends."""
    array, live, written = pages_of(), [], set()
    for _ in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.sampled_from(["begin", "end", "write", "write"]))
        if what == "begin":
            first = data.draw(st.integers(0, array.size - 1))
            last = data.draw(st.integers(first + 1, array.size))
            held = {page for own, _, _ in live for page in own}
            own = set(range(first // PAGE, -(-last // PAGE)))
            written -= own - held
            live.append((own, (first, last), track(array[first:last])))
        elif what == "end" and live:
            live.pop(data.draw(st.integers(0, len(live) - 1)))[2].end()
        elif what == "write":
            where = data.draw(st.integers(0, array.size - 1))
            array[where] ^= 1
            written.add(where // PAGE)
        for own, (first, last), tracking in live:
            found = {
                page
                for start, stop in tracking.written(0, last - first)
                for page in range((first + start) // PAGE, -(-(first + stop) // PAGE))
            }
            assert found == own & written


@needs_tracking
def test_after_the_end_everything_counts_as_written_to():
    """A second end does nothing, not even to another that tracks the same memory."""
    array = pages_of()
    first, second = track(array), track(array)
    first.end()
    first.end()
    assert first.written(PAGE, 3 * PAGE) == [(PAGE, 3 * PAGE)]
    assert second.written(0, array.size) == []
    array[0] = 7
    assert second.written(0, array.size) == [(0, PAGE)]


@needs_tracking
def test_a_thousand_beginnings_and_ends_leave_nothing():
    """No descriptor, no mapping, no protection; nor does an object that is forgotten."""
    array = pages_of()
    track(array).end()

    def count():
        gc.collect()
        maps = Path("/proc/self/maps").read_text().splitlines()
        own = [line for line in maps if int(line.split("-")[0], 16) == array.ctypes.data]
        return len(os.listdir("/proc/self/fd")), own  # noqa: PTH208 - not its paths

    before = count()
    for i in range(1000):
        tracking = track(array[i % 3 * PAGE + i % 7 :])
        if i % 2:
            tracking.end()
        del tracking
    assert count() == before
    assert not registered()


@needs_tracking
def test_threads_begin_and_end_beside_each_other():
    """Each finds its own writes, however the others' memory overlaps."""
    array = pages_of(32)

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(40):
            first = int(random.integers(0, array.size - 4 * PAGE))
            part = array[first : first + int(random.integers(1, 4 * PAGE))]
            tracking = track(part)
            where = int(random.integers(0, part.size))
            part[where] ^= 1
            assert any(a <= where < b for a, b in tracking.written(0, part.size))
        return True

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(6)))


@needs_tracking
def test_a_write_beside_a_scan_is_found_by_the_next():
    """Nothing is lost while a thread asks again and again."""
    array, stop = pages_of(), threading.Event()
    tracking = track(array)

    def ask():
        while not stop.is_set():
            tracking.written(0, array.size)

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        try:
            for page in range(PAGES):
                array[page * PAGE + page] = 7
                assert tracking.written(0, array.size) == [(0, (page + 1) * PAGE)]
        finally:
            stop.set()
        asking.result()


FORKED = """
import os, sys
import numpy as np
from clgemm.runtime import write_tracking as module
from clgemm.runtime.write_tracking import PAGE, track

x = np.ones(2**20, np.uint8)
tracking, descriptors = track(x), set(os.listdir("/proc/self/fd"))
child = os.fork()
if not child:
    assert len(os.listdir("/proc/self/fd")) == len(descriptors) - 2
    assert tracking.written(0, 5) == [(0, 5)]
    x[:] = 2
    own = track(x)
    assert own.written(0, x.size) == []
    x[:1] = 3
    assert own.written(0, x.size) != []
    tracking.end()
    own.end()
    os._exit(23)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 23
before = tracking.written(0, x.size)  # not empty on kernels that drop marks at a fork
x[-1] = 5
first, last = tracking.written(0, x.size)[-1]
assert last == x.size and (before or last - first <= PAGE)
"""


@needs_tracking
def test_a_forked_process_knows_nothing_and_ends_nothing():
    """What the parent tracks goes on, and the child's writes are none of the parent's."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@needs_tracking
@pytest.mark.parametrize("kind", ["file", "private file", "shared", "unmapped"])
def test_memory_that_others_can_change_is_not_tracked(kind, tmp_path):
    """A file's, another process's; nor is memory with a hole."""
    if kind == "shared":
        array = np.frombuffer(mmap.mmap(-1, 2 * PAGE), np.uint8)
    elif kind == "unmapped":
        array = pages_of(3)
        ctypes.CDLL(None).munmap(ctypes.c_void_p(array.ctypes.data + PAGE), ctypes.c_size_t(PAGE))
    else:
        (tmp_path / "file").write_bytes(bytes(2 * PAGE))
        array = np.memmap(tmp_path / "file", np.uint8, "r+" if kind == "file" else "c")
        if kind != "file":
            array[:] = 1
    assert track(array) is None
    if kind == "unmapped":  # so that the whole of it can be given back
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
        _mapped(array.ctypes.data + PAGE, PAGE, flags)


@needs_tracking
def test_memory_that_another_userfaultfd_has_is_not_tracked():
    """Nor is what was begun before the refusal left behind."""
    array, other = pages_of(), module._Kernel()
    try:
        start = array.ctypes.data
        other.protect(Span(start + 3 * PAGE, start + 4 * PAGE))
        before = track(array[: 2 * PAGE])
        assert track(array) is None
        assert before.written(0, 2 * PAGE) == []
        assert len(registered()) == 2
    finally:
        other.close()


@needs_tracking
def test_without_a_list_of_mappings_memory_is_not_tracked(monkeypatch):
    """Such as without a descriptor left to read it."""
    monkeypatch.setattr(module, "_is_private", _refused)
    assert track(pages_of()) is None


def test_small_memory_is_not_tracked(monkeypatch):
    """It is read as fast."""
    monkeypatch.undo()
    assert track(np.zeros(module.LEAST_BYTES - 1, np.uint8)) is None


def _refused(*arguments):
    raise OSError("refused")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_is_filtered", lambda: True),
        ("_is_right", lambda _: False),
        ("_is_right", _refused),
        ("_Kernel", _refused),
        ("CALL_NUMBERS", {}),
        ("CALL_NUMBERS", dict.fromkeys(module.CALL_NUMBERS, 100_000)),
        ("WP_ASYNC", 1 << 62),
    ],
    ids=["filtered", "wrong", "failing", "refused", "unknown", "not implemented", "old"],
)
def test_where_the_system_cannot_nothing_is_tracked(name, value, monkeypatch):
    """It is tried once, and leaves no descriptor."""
    monkeypatch.setattr(module, "_found", [])
    monkeypatch.setattr(module, name, value)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir())) if descriptors.exists() else 0
    for _ in range(2):
        assert track(np.zeros(PAGES * PAGE, np.uint8)) is None
    assert module._found == [None]
    assert not descriptors.exists() or len(list(descriptors.iterdir())) == before


def test_a_system_that_offers_it_does_what_it_says():
    """Then the other tests here are not skipped."""
    try:
        kernel = module._Kernel()
    except (OSError, KeyError, AttributeError, ImportError) as error:
        pytest.skip(f"this system does not offer it: {error}")
    assert module._is_right(kernel)
    kernel.close()


def _silent(kernel, pages):
    return []


def _alarmed(kernel, pages):
    return [pages]


@needs_tracking
@pytest.mark.parametrize("answer", [_silent, _alarmed], ids=["nothing", "everything"])
def test_a_system_whose_answers_are_wrong_is_not_used(answer, monkeypatch):
    """The trial has pages of each kind."""
    with monkeypatch.context() as patch:
        patch.setattr(module._Kernel, "written", answer)
        assert module._opened() is None


@needs_tracking
@pytest.mark.parametrize("name", ["preadv", "open"])
def test_a_trial_of_system_calls_that_write_nothing_fails(name, monkeypatch):
    """What kernels write has to be found, not only what programs do."""
    if name == "preadv":
        monkeypatch.setattr(os, "preadv", lambda *_: 0)
        assert module._opened() is None
    else:
        monkeypatch.setattr(os, "open", _refused)
        assert module._opened() is None


@needs_tracking
def test_a_descriptor_that_the_program_closes():
    """Everything counts as written to then."""
    array, kernel = pages_of(), module._Kernel()
    pages = Span(array.ctypes.data, array.ctypes.data + array.size)
    kernel.protect(pages)
    assert kernel.written(pages) == []
    os.close(kernel._faults)
    assert kernel.written(pages) == [pages]
    os.close(kernel._pagemap)
    assert kernel.written(pages) == [pages]
    kernel._faults = kernel._pagemap = -1
    assert kernel.written(pages) == [pages]


@needs_tracking
def test_who_finds_the_lock_taken(monkeypatch):
    """A beginning gives up; an end is made up for by the next who has the lock."""
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.01)
    array = pages_of()
    first = track(array[: 4 * PAGE])
    with module._lock:
        assert track(array) is None
        first.end()
        assert len(module._live) == 1
    array[0] = 7
    second = track(array)
    assert len(module._live) == 1
    assert second.written(0, array.size) == []
    with module._lock:
        second.end()
    module._remove_if_free()
    assert not registered()


@needs_tracking
def test_an_interruption_leaves_nothing_tracked(monkeypatch):
    """Ctrl-C while the pages are being protected."""

    def interrupt(kernel, pages):
        raise KeyboardInterrupt

    array = pages_of()
    track(array).end()
    with monkeypatch.context() as patch:
        patch.setattr(module._Kernel, "protect", interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            track(array)
    gc.collect()
    module._remove_if_free()
    assert not module._live
