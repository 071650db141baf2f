"""Tests of products by a GPU that uses the host's memory in place; the device plays one."""

from __future__ import annotations

import itertools
import mmap

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import compile_plainly
from strategies import problems

import clgemm
from clgemm.core.cache import forget_plans
from clgemm.hardware.device import Device, where
from clgemm.hardware.traits import POCL
from clgemm.records import verdicts
from clgemm.records.verdicts import Verdict
from clgemm.runtime import exact, execute, finite, host_pages, readiness
from clgemm.runtime.host_pages import PAGE_BYTES, HostPages, NotInPlaceError, whole_pages
from clgemm.transfer import call_cache
from clgemm.transfer import multiply as transfers
from clgemm.trials import worker

pytestmark = pytest.mark.one_device

RNG = np.random.default_rng(70)
GUARD = 0x5A


@pytest.fixture(scope="module")
def gpu(device):
    """Return the device as an integrated GPU that has passed its checks, and choose it."""
    if device.kind == "GPU" and not device.is_integrated:
        pytest.skip("a GPU with memory of its own uses none of the host's in place")
    # 3.0 and 3.1 load what a condition of `pack` excludes, behind the end of an operand, where a
    # work-group copies a tile with one element for each work-item.
    if device.platform.startswith(POCL):
        pytest.skip("PoCL is given no kernels of GPUs")
    made = Device(device.cl_device)
    made.kind = "GPU"
    with pytest.MonkeyPatch.context() as patch:
        compile_plainly(device, patch)
        key = verdicts.about_device(where(made))
        patch.setitem(verdicts._verdicts, key, Verdict(in_place=True))
        patch.setattr(readiness, "judge", lambda *_: Verdict())
        patch.setattr(exact, "_verdict", lambda *_, **__: Verdict())
        patch.setattr(call_cache, "_calls", {})
        forget_plans()
        with clgemm.device(made):
            yield made
    forget_plans()


@pytest.fixture
def by_pages(gpu, monkeypatch):
    """Return a list of the products that use host memory, by what they use; others are sent."""
    seen, sent = [], transfers.multiply_through

    class Recording(HostPages):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            seen.append(self)

    monkeypatch.setattr(execute, "HostPages", Recording)
    monkeypatch.setattr(transfers, "multiply_through", lambda *x: seen.append("sent") or sent(*x))
    return seen


def integers(*shape, dtype=np.float32):
    """Return small whole numbers."""
    return RNG.integers(-8, 9, shape).astype(dtype)


class Arena:
    """Pages that several arrays share, with guards around them."""

    def __init__(self, pages=16):
        self.memory = np.frombuffer(mmap.mmap(-1, pages * PAGE_BYTES), np.uint8)
        self.memory[:] = GUARD
        self.expected = self.memory.copy()
        self.first = 0

    def place(self, values, gap_bytes):
        """Return a copy of an array behind those before, and its bytes."""
        begin = -(-(self.first + gap_bytes) // values.itemsize) * values.itemsize
        self.first = begin + values.nbytes
        view = self.memory[begin : self.first].view(values.dtype).reshape(values.shape)
        view[...] = values
        self.expected[begin : self.first] = self.memory[begin : self.first]
        return view, slice(begin, self.first)


runs = st.lists(st.tuples(st.integers(0, 20 * PAGE_BYTES), st.integers(1, 3 * PAGE_BYTES)))


@given(runs=runs.map(lambda found: [(first, first + size) for first, size in found]))
def test_pages_hold_every_run_and_none_is_in_two(runs):
    """Each run is in one buffer; buffers have whole pages, which runs touch, and none in common."""
    found = whole_pages(runs)
    assert all(sum(a <= first and end <= b for a, b in found) == 1 for first, end in runs)
    assert all(a % PAGE_BYTES == b % PAGE_BYTES == 0 for a, b in found)
    assert all(x[1] <= y[0] for x, y in itertools.pairwise(found))
    touched = {x for a, b in runs for x in range(a // PAGE_BYTES, -(-b // PAGE_BYTES))}
    assert touched == {x for a, b in found for x in range(a // PAGE_BYTES, b // PAGE_BYTES)}


@settings(max_examples=30)
@given(problem=problems(largest=70))
def test_sgemm_is_exact_and_writes_to_nothing_else(problem, gpu):
    """Views of any order, step, direction and offset: C alone changes."""
    expected = problem.expected()
    np.testing.assert_array_equal(clgemm.sgemm(*problem.arguments), expected)
    assert problem.a.untouched()
    assert problem.b.untouched()
    if problem.c is not None:
        assert problem.c.untouched_outside(problem.c.view)


@settings(max_examples=40)
@given(
    dtype=st.sampled_from(["f4", "i1", "i2", "i4", "i8", "f2", "c8", "b1"]),
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    gaps=st.tuples(*[st.integers(0, 200)] * 3),
    order=st.permutations("abc"),
)
def test_arrays_that_share_pages(dtype, sizes, gaps, order, gpu):
    """Operands and result lie in the same pages: they share a buffer, and the rest stays."""
    m, n, k = sizes
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    arena, placed = Arena(), {}
    for name, gap in zip(order, gaps, strict=True):
        values = np.abs(integers(*shapes[name])).astype(dtype)  # no sum is a negative zero
        placed[name], own = arena.place(values, gap)
        if name == "c":
            of_c = own
    a, b, c = (placed[x] for x in "abc")
    arena.expected[of_c] = np.matmul(a, b).view(np.uint8).ravel()
    if dtype == "f4":
        transfers.multiply(1.0, a, b, 0.0, c)
    else:
        transfers.multiply_exactly(a, b, c, gpu, is_optional=False)
    np.testing.assert_array_equal(arena.memory, arena.expected)


def test_arrays_with_a_page_in_common_have_one_buffer(by_pages):
    """Others have their own, from the page on in which they begin."""
    arena = Arena()
    a, _ = arena.place(integers(33, 20), 100)
    b, _ = arena.place(integers(20, 9), 40)
    c = np.frombuffer(mmap.mmap(-1, PAGE_BYTES), np.float32)[3 : 3 + 33 * 9].reshape(33, 9)
    clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1, order="C")
    np.testing.assert_array_equal(c, a @ b)
    (pages,) = by_pages
    assert len({id(x) for x in pages.values()}) == 2
    assert sorted(pages) == ["a", "b", "c"]
    assert all(x.size % PAGE_BYTES == 0 for x in pages.values())


@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_a_matrix_by_its_own_transpose(dtype, by_pages, every_size):
    """The operands are one array."""
    x = integers(150, 40, dtype=dtype)
    found = clgemm.matmul(x, x.T)
    np.testing.assert_array_equal(found, x @ x.T)
    assert len(by_pages) == 1
    assert by_pages != ["sent"]


@pytest.mark.parametrize("is_lower", [0, 1])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_one_triangle_is_written(is_lower, beta, gpu):
    """The other one stays, also where the operand cannot be used in place."""
    for is_readonly in (False, True):
        x, c = integers(130, 30), integers(130, 130)
        x.flags.writeable = not is_readonly
        part = np.tril if is_lower else np.triu
        expected = part(x @ x.T + beta * c) + c - part(c)
        found = clgemm.ssyrk(1.0, x, beta, c.copy(order="F"), lower=is_lower, overwrite_c=1)
        np.testing.assert_array_equal(found, expected)


def mapped_file(tmp_path, values):
    """Return an array in memory that nobody may write to."""
    np.save(tmp_path / "x.npy", values)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_read_only_memory_is_sent(dtype, by_pages, every_size, tmp_path):
    """It is given to no driver; the next product with memory of the program's own is not sent."""
    values, b = integers(60, 50, dtype=dtype), integers(50, 7, dtype=dtype)
    for _ in range(2):
        x = mapped_file(tmp_path, values)
        np.testing.assert_array_equal(clgemm.matmul(x, b), values @ b)
    assert not any(isinstance(each, HostPages) for each in by_pages)
    np.testing.assert_array_equal(clgemm.matmul(values, b), values @ b)
    assert isinstance(by_pages[-1], HostPages)


def test_resident_arrays_are_used_in_place(by_pages):
    """They are read-only to the program alone."""
    w, x = integers(60, 50), integers(40, 60)
    with clgemm.resident(w):
        np.testing.assert_array_equal(clgemm.matmul(x, w), x @ w)
    assert isinstance(by_pages[-1], HostPages)


@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_memory_that_the_driver_refuses_is_sent(beta, by_pages, monkeypatch):
    """Nothing was written then: C is added to once; a repeated call finds the same."""
    a, b, c = integers(60, 50), integers(50, 70), integers(60, 70)
    expected, out = a @ b + beta * c, c.copy()
    clgemm.sgemm(1.0, a, b, beta, out, overwrite_c=1, order="C")
    buffer = cl.Buffer

    def refusing(context, flags, size=0, hostbuf=None):
        if flags & cl.mem_flags.USE_HOST_PTR:
            raise cl.RuntimeError("create_buffer failed: OUT_OF_RESOURCES")
        return buffer(context, flags, size, hostbuf=hostbuf)

    monkeypatch.setattr(cl, "Buffer", refusing)
    for _ in range(2):
        out = c.copy()
        clgemm.sgemm(1.0, a, b, beta, out, overwrite_c=1, order="C")
        np.testing.assert_array_equal(out, expected)
    assert by_pages[1:] == ["sent", "sent"]


def test_complex_numbers_that_are_not_aligned_to_themselves_are_sent(by_pages, every_size):
    """Kernels count whole elements from the beginning of a page."""
    whole = np.arange(2 * 60 + 1, dtype=np.float32)
    a = whole[1:].view(np.complex64).reshape(6, 10)
    assert host_pages.address_of(a) % 8 == 4
    b, out = integers(10, 7, dtype=np.complex64), whole.copy()[:85][1:].view(np.complex64)
    out = out.reshape(6, 7)
    clgemm.matmul(a, b, out=out)
    np.testing.assert_array_equal(out, a @ b)
    assert by_pages == []


@pytest.mark.parametrize("is_long", [False, True])
def test_an_exception_leaves_nothing_mapped(is_long, gpu, monkeypatch):
    """Ctrl-C while the result is awaited; after it the next product is right."""
    a, b, out = integers(90, 80), integers(80, 70), np.zeros((90, 70), np.float32)
    monkeypatch.setattr(execute, "LONG_ON_GPU", 0 if is_long else 2**40)
    map_buffer, mapped = cl.enqueue_map_buffer, []

    class Interrupted:
        def __init__(self, event):
            self._event = event

        def wait(self):
            self._event.wait()
            raise KeyboardInterrupt

    def interrupted(*arguments, **keywords):
        array, event = map_buffer(*arguments, **keywords)
        mapped.append(array.base)
        return array, Interrupted(event)

    with monkeypatch.context() as patch:
        patch.setattr(cl, "enqueue_map_buffer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            clgemm.matmul(a, b, out=out)
    (region,) = mapped
    with pytest.raises(cl.Error):  # it is released
        region.release(gpu.queue)
    np.testing.assert_array_equal(clgemm.matmul(a, b, out=out), a @ b)


def test_a_product_in_parts(by_pages, monkeypatch):
    """Parts that are computed one after the other, in place or sent, add to C once."""
    a, b, c = integers(300, 40), integers(40, 280), integers(300, 280)
    monkeypatch.setattr("clgemm.planning.cut.PART_WORK_OF_GPU", 2**19)
    monkeypatch.setattr("clgemm.planning.cut.LEAST_SIDE", 64)
    monkeypatch.setattr("clgemm.planning.cut._order_of_sums", lambda _: None)
    forget_plans()
    for is_readonly in (False, True):
        a.flags.writeable, out = not is_readonly, c.copy()
        clgemm.sgemm(1.0, a, b, 2.0, out, overwrite_c=1, order="C")
        np.testing.assert_array_equal(out, a @ b + 2 * c)
    assert by_pages.count("sent") == sum(x != "sent" for x in by_pages) > 1


def test_results_are_looked_at_in_place(gpu, monkeypatch):
    """Also where the device cannot use the result's memory."""
    monkeypatch.setattr(finite, "LEAST_ON_DEVICE", 1)
    c = integers(90, 80)
    for is_readonly in (False, True):
        c.flags.writeable = not is_readonly
        assert finite.is_finite(c, gpu)
    c.flags.writeable = True
    c[40, 3] = np.inf
    assert not finite.is_finite(c, gpu)


def test_a_driver_that_uses_host_memory_passes(gpu):
    """Both sides see what the other one writes."""
    assert worker.uses_host_memory(gpu)


def copies(buffer):
    """A driver that copies the memory that it is told to use."""

    def copying(context, flags, size=0, hostbuf=None):
        if flags & cl.mem_flags.USE_HOST_PTR and (hostbuf.nbytes == max(worker.SIZES_BYTES)):
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return buffer(context, flags, size, hostbuf=hostbuf)

    return copying


def writes_a_whole_line(fill):
    """A GPU whose caches write back what lies beside its own part, as it was before."""

    def filling(queue, memory, pattern, offset, size):
        fill(queue, memory, pattern, offset, size).wait()
        return fill(queue, memory, np.full(1, -1, np.int32), 0, 4)

    return filling


def refuses(_):
    """A driver without such a command."""

    def refusing(*_arguments, **_keywords):
        raise cl.LogicError("clEnqueueFillBuffer failed: INVALID_OPERATION")

    return refusing


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("Buffer", copies),
        ("enqueue_fill_buffer", writes_a_whole_line),
        ("enqueue_fill_buffer", refuses),
    ],
)
def test_a_driver_that_does_not_fails(name, fault, gpu, monkeypatch):
    """Its arrays are sent: a driver that copies large memory, one that harms neighbours."""
    monkeypatch.setattr(cl, name, fault(getattr(cl, name)))
    monkeypatch.setattr(worker, "LOOKS", 1)
    assert not worker.uses_host_memory(gpu)


def test_memory_is_kept_alive_by_its_buffer(gpu):
    """As long as commands may use it."""
    a, b, c = integers(9, 7), integers(7, 5), np.zeros((9, 5), np.float32)
    with pytest.raises(NotInPlaceError, match="read-only"):
        HostPages(gpu.context, {"a": np.broadcast_to(a[0], (3, 7)), "c": c})
    pages = HostPages(gpu.context, {"a": a, "b": b, "c": c})
    assert set(pages.starts) == {"a", "b", "c"}
