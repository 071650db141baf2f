"""Products of resident arrays, on every device found as if it had memory of its own."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from staged import TINY, integers, limited

import clgemm
from clgemm.accel import enabled, report
from clgemm.hardware.choice import NoDeviceError
from clgemm.hardware.device import Device
from clgemm.runtime import digests
from clgemm.runtime import write_tracking as tracking
from clgemm.runtime.workspace import Workspace
from clgemm.transfer import multiply, resident, staging
from clgemm.transfer.resident import operand_copies

pytestmark = pytest.mark.usefixtures("small_pieces", "nothing_stays")
CONFIGS = {
    "whole": replace(TINY, tile_bytes=2**30, chunk_bytes=2**20, threaded_bytes=2**40),
    "tiles": TINY,
    "budget": replace(TINY, memory_bytes=100_000),
    "at once": replace(TINY, at_once_bytes=2**20, chunk_bytes=2**20, threaded_bytes=2**40),
}


@pytest.fixture(params=["tiles", "at once"])
def small(request, every_staged):
    """Choose the device whose products come in tiles, or the one that takes them at once."""
    with clgemm.device(every_staged[request.param]) as chosen:
        yield chosen


@pytest.fixture(scope="module", params=CONFIGS)
def staged(request, every_staged):
    """One of them, chosen. Resident arrays may take all of its memory."""
    with clgemm.device(every_staged[request.param]) as chosen:
        yield chosen


def _name(device):
    """The name of a device's config."""
    return next(name for name, config in CONFIGS.items() if device.transfer == config)


def test_a_resident_array_is_sent_once(staged, sent):
    """After that, products send their other operand only, and receive the result."""
    w, x = integers(90, 170), integers(40, 90)
    expected = x @ w
    with clgemm.resident(w, share=1) as held:
        assert sum(sent) == w.nbytes
        for i in range(1, 4):
            sent.clear()
            np.testing.assert_array_equal(clgemm.matmul(x, w), expected)
            # Once for each block of columns, if memory is short.
            assert sum(sent) == x.nbytes or _name(staged) == "budget"
            assert (held.uses, held.saved_bytes) == (i, i * w.nbytes)
    sent.clear()
    np.testing.assert_array_equal(clgemm.matmul(x, w), expected)
    assert sum(sent) >= x.nbytes + w.nbytes


@settings(max_examples=settings.default.max_examples // 5)  # each compiles kernels
@given(data=st.data())
def test_views_use_the_copy(data, staged):
    """Slices of any step and direction, transposed, reshaped, repeated: anything inside."""
    shape = data.draw(st.sampled_from([(60,), (24, 30), (5, 12, 16), (3, 4, 6, 10)]))
    w = integers(*shape)
    view = w
    if data.draw(st.booleans()):
        view = view.reshape(shape[0], -1)
    index = []
    for n in view.shape:
        first = data.draw(st.integers(0, n - 1))
        step = data.draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        index.append(slice(first, None, step))
    view = view[tuple(index)].transpose(data.draw(st.permutations(range(view.ndim))))
    if view.ndim < 2 or data.draw(st.booleans()):
        view = np.broadcast_to(view, (2, *view.shape))
    assert np.shares_memory(view, w)
    x = integers(7, view.shape[-2])
    y = integers(view.shape[-1], 9)
    with clgemm.resident(w, share=1) as held:
        np.testing.assert_array_equal(clgemm.matmul(x, view), x @ view)
        np.testing.assert_array_equal(clgemm.matmul(view, y), view @ y)
        np.testing.assert_array_equal(
            clgemm.matmul(view, view.swapaxes(-1, -2)), view @ view.swapaxes(-1, -2)
        )
        assert held.uses == 4


def multiplied(a, b):
    """A product in the dtype of NumPy's, by the device."""
    c = np.empty((*a.shape[:-1], b.shape[-1]), np.result_type(a, b))
    multiply.multiply_exactly(a, b, c, is_optional=False)
    return c


@pytest.mark.one_device  # the sizes of elements are the host's matter
@pytest.mark.parametrize(
    "dtypes", ["b1 b1", "i1 i1", "i1 i4", "u2 u2", "i8 i8", "f2 f2", "f8 f8", "c8 c8"]
)
def test_other_dtypes_are_sent_once(dtypes, tiled, sent, found_by):
    """Whole and as views, beside an operand of the same or of another dtype; a change is found."""
    if "f8" in dtypes and not tiled.cl_device.double_fp_config:
        pytest.skip("it has no float64")
    first, second = dtypes.split()
    w, x = integers(70, 90).astype(first), integers(40, 70).astype(second)
    before = w[:]
    with clgemm.resident(w) as held:
        sent.clear()
        np.testing.assert_array_equal(multiplied(x, w), x @ w)
        assert sum(sent) == x.nbytes
        view = w.T[1::2]
        np.testing.assert_array_equal(multiplied(view, x.T), view @ x.T)
        assert (held.uses, held.saved_bytes) == (2, w.nbytes + view.nbytes)
        before[3, 4] = not before[3, 4]
        with pytest.warns(RuntimeWarning, match="changed while it was resident"):
            result = multiplied(x, w)
        np.testing.assert_array_equal(result, x @ w)


def test_elements_across_those_of_the_copy_are_sent(tiled):
    """A view of another dtype may begin between two multiples of its size."""
    w = np.arange(3700).astype(np.int8)[1:]
    x, first = integers(30, 30).astype(np.int32), -w.ctypes.data % 4
    assert first
    with clgemm.resident(w) as held:
        inside = w[first : first + 3600].view(np.int32).reshape(30, 30)
        np.testing.assert_array_equal(multiplied(x, inside), x @ inside)
        assert held.uses == 0


def test_both_operands_may_be_resident(small, sent):
    """Then nothing is sent at all but C, where it counts."""
    a, b, c = integers(90, 50), integers(50, 80), integers(90, 80)
    with clgemm.resident(a, b):
        sent.clear()
        np.testing.assert_array_equal(clgemm.dot(a, b), a @ b)
        assert sent == []
        result = clgemm.sgemm(2.0, a, b, 3.0, c)
        np.testing.assert_array_equal(result, 2 * (a @ b) + 3 * c)
        assert sum(sent) == c.nbytes


def test_every_function_uses_the_copies(small):
    """Also in a chain, by its storage, and transposed."""
    w, x = integers(40, 40), integers(40, 40)
    stack = integers(3, 40, 40)
    calls = [
        lambda f: f.dot(x, w),
        lambda f: f.dot(w, x[0]),
        lambda f: f.matmul(stack, w),
        lambda f: f.inner(x, w),
        lambda f: f.tensordot(stack, w, ([2], [1])),
        lambda f: getattr(f, "linalg", f).multi_dot([x, w, x]),
    ]
    for call in calls:
        expected = call(np)
        with clgemm.resident(w) as held:
            np.testing.assert_array_equal(call(clgemm), expected)
            assert held.uses == 1
    with clgemm.resident(w) as held:
        np.testing.assert_array_equal(clgemm.sgemm(1.0, w, x, trans_a=1), w.T @ x)
        flat = clgemm.sgemm(1.0, x.T, w.T, m=40, n=40, k=40, lda=40)
        np.testing.assert_array_equal(flat.reshape(40, 40).T, x.T @ w.T)
        assert held.uses == 2


def test_the_matrices_of_a_resident_batch(small, sent):
    """One by one, and as a batch with another."""
    w, x = integers(6, 30, 20), integers(30, 30)
    with clgemm.resident(w) as held:
        sent.clear()
        for matrix in w:
            np.testing.assert_array_equal(clgemm.matmul(x, matrix), x @ matrix)
        np.testing.assert_array_equal(clgemm.matmul(x, w[::2]), x @ w[::2])
        assert sum(sent) == 7 * x.nbytes
        assert held.saved_bytes == w.nbytes + w[::2].nbytes


def test_nan_and_inf_stay_what_they_are(small):
    """The copy is of bits."""
    w, x = integers(60, 50), integers(40, 60)
    w[3, 4], w[50, 7], x[20, 0] = np.nan, np.inf, np.nan
    finite = np.ones((40, 50), bool)
    finite[20], finite[:, [4, 7]] = False, False
    with clgemm.resident(w):
        for _ in range(2):
            np.testing.assert_array_equal(np.isfinite(clgemm.dot(x, w)), finite)
    with clgemm.resident(w) as held:  # not read with an alpha of 0
        np.testing.assert_array_equal(clgemm.sgemm(0.0, w.T, x.T), np.zeros((50, 40)))
        assert held.uses == 0


@contextlib.contextmanager
def accelerated(device, monkeypatch):
    """NumPy, accelerated on a device that is not the default one of its context."""
    monkeypatch.setattr(multiply, "of_queue", lambda _: device)
    with enabled(threshold=0, device=device):
        yield


def test_a_repeated_small_product_is_not_planned_again(every_staged, monkeypatch):
    """Its operands' copies are found at each call: others, views in other places, or none."""
    stack, x = integers(2, 90, 70), integers(40, 90)
    w, alone = list(stack), integers(90, 70)
    expected = [x @ each for each in (*w, alone)]
    with clgemm.device(every_staged["at once"]), clgemm.resident(stack) as held:
        for i in (0, 0, 1, 2, 0, 2, 1):
            np.testing.assert_array_equal(clgemm.matmul(x, (*w, alone)[i]), expected[i])
        assert held.uses == 5
        monkeypatch.setattr(multiply, "multiply", None)
        for i in (1, 0):
            np.testing.assert_array_equal(clgemm.matmul(x, w[i]), expected[i])
        assert held.uses == 7


def test_a_repeated_small_product_sends_an_operand_whose_copy_is_gone(every_staged):
    """It is planned again: the operand lies otherwise where it is sent than in the copy."""
    whole, x = integers(40, 60), integers(30, 80)
    w = whole[:, ::2]
    with clgemm.device(every_staged["at once"]), clgemm.resident(whole) as held:
        for _ in range(2):
            np.testing.assert_array_equal(clgemm.matmul(w, x), w @ x)
        whole.flags.writeable = True
        whole[5] += 1
        np.testing.assert_array_equal(clgemm.matmul(w, x), w @ x)
        assert held.uses == 2


def test_accelerated_numpy_uses_the_copies_and_reports_it(tiled, monkeypatch, sent):
    """The products that used them, and the bytes that were not sent."""
    w, x = integers(90, 70), integers(40, 90)
    expected = np.einsum("ij,jk->ik", x, w)
    with clgemm.resident(w), accelerated(tiled, monkeypatch):
        sent.clear()
        for product in (x @ w, np.dot(x, w), (w.T @ x.T).T, np.inner(x, w.T)):
            np.testing.assert_array_equal(product, expected)
        x @ x.T  # sent once
        assert sum(sent) == 5 * x.nbytes
    found = report()
    assert found.offloaded == 5
    assert (found.resident, found.saved_bytes) == (4, 4 * w.nbytes)
    assert f"4 of the products used resident arrays: {4 * w.nbytes / 1e6:.1f} MB" in str(found)
    assert found.compared_bytes >= 4 * w.nbytes  # which is too small to be tracked
    assert f"{found.compared_bytes / 1e6:.1f} MB were read to find changes" in str(found)
    with accelerated(tiled, monkeypatch):
        x @ w
    assert report().resident == 0
    assert report().saved == ""


def test_a_change_through_a_view_from_before_is_found(staged, found_by):
    """The product is that of the new content, and there is one warning."""
    w, x = integers(600, 70), integers(40, 600)
    before = w[:]
    with clgemm.resident(w, share=1) as held:
        for value in (50, 60):
            before[300, 40] = value
            caught = pytest.warns(RuntimeWarning, match="changed while it was resident")
            with caught if value == 50 else contextlib.nullcontext():
                np.testing.assert_array_equal(clgemm.matmul(x, w), x @ w)
            np.testing.assert_array_equal(clgemm.matmul(x, w), x @ w)
        assert held.uses in (2, 3, 4)  # what the call cache repeats takes the new copy at once


def _by_memset(w, where):
    ctypes.memset(w.ctypes.data + where, 0x40, 1)


def _by_system_call(w, where):
    memory = (ctypes.c_char * w.nbytes).from_address(w.ctypes.data)
    zeros = os.open("/dev/zero", os.O_RDONLY)
    os.preadv(zeros, [memoryview(memory)[where : where + 1]], 0)
    os.close(zeros)


def _by_thread(w, where):
    with ThreadPoolExecutor(1) as threads:
        threads.submit(_by_memset, w, where).result()


@pytest.mark.parametrize("write", [_by_memset, _by_system_call, _by_thread])
@pytest.mark.parametrize("where", [2, 4 * 150 * 40 + 3, -2])
def test_a_change_is_found_whoever_writes(small, found_by, write, where):
    """To the first element, in the middle, and to the last."""
    if write is _by_system_call and not hasattr(os, "preadv"):
        pytest.skip("this system has no such call")
    w, x = integers(300, 40), integers(40, 300)
    w.flat[[0, 150 * 40, -1]] = 1.25
    expected = x @ w
    with clgemm.resident(w) as held:
        np.testing.assert_array_equal(clgemm.matmul(x, w), expected)
        write(w, where % w.nbytes)
        with pytest.warns(RuntimeWarning, match="changed while it was resident"):
            result = clgemm.matmul(x, w)
        np.testing.assert_array_equal(result, x @ w)
        assert (result != expected).any()
        np.testing.assert_array_equal(clgemm.matmul(x, w), result)
        assert held.uses in (2, 3)  # what the call cache repeats takes the new copy at once


def test_a_change_in_the_middle_of_a_product_is_found(small, found_by, monkeypatch):
    """By another thread, after the copy was taken for the product."""
    w, x = integers(90, 90), integers(90, 90)
    before, found = w[:], resident.OperandCopies.matrices

    def matrices_and_write(copies, *operands):
        with ThreadPoolExecutor(1) as threads:
            threads.submit(before.__setitem__, (7, 8), 100).result()
        return found(copies, *operands)

    with clgemm.resident(w) as held:
        with monkeypatch.context() as patch:
            patch.setattr(resident.OperandCopies, "matrices", matrices_and_write)
            with pytest.warns(RuntimeWarning):
                result = clgemm.matmul(x, w)
        np.testing.assert_array_equal(result, x @ w)
        np.testing.assert_array_equal(clgemm.matmul(x, w), result)
        assert held.uses in (1, 2)  # what the call cache repeats takes a new copy at once


@pytest.mark.parametrize("moment", ["before it is sent", "after it is sent"])
def test_a_change_while_the_copy_is_made_is_found(tiled, found_by, moment, monkeypatch):
    """The digests were taken before, whether or not the copy has the change."""
    w, x = integers(300, 90), integers(90, 300)
    before, digested, enqueue_copy = w[:], resident.digests, cl.enqueue_copy

    def digest_and_write(memory):
        result = digested(memory)
        before[150, 6] += 1
        return result

    def send_and_write(*arguments, **keywords):
        event = enqueue_copy(*arguments, **keywords)
        event.wait()
        before[150, 6] += 1
        return event

    with monkeypatch.context() as patch:
        if moment == "before it is sent":
            patch.setattr(resident, "digests", digest_and_write)
        else:
            patch.setattr(cl, "enqueue_copy", send_and_write)
        held = clgemm.resident(w)
    with pytest.warns(RuntimeWarning):
        np.testing.assert_array_equal(clgemm.matmul(x, w), x @ w)
    np.testing.assert_array_equal(clgemm.matmul(x, w), x @ w)
    assert held.uses == 1
    held.release()


def test_each_of_several_copies_finds_a_change(every_staged, found_by):
    """On two devices, and of a part that is resident, too; a new copy is as good as the first."""
    w, x = integers(90, 40), integers(40, 90)
    before, part = w[:], w[30:60]
    first, second = every_staged["tiles"], every_staged["whole"]
    with clgemm.device(first), clgemm.resident(w), clgemm.resident(part), clgemm.device(second):
        clgemm.matmul(x, w)
        for i in range(3):
            before[40, i] += 1
            for device in (first, second):
                for a, b in ((x, w), (x[:, :30], part)):
                    with clgemm.device(device), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)


def _rows_of_digests():
    """Nine rows that share a digest each, the seven inside, and a factor.

    The first and the last page may have other memory, too.
    """
    rows = digests.ROW // 256
    w = integers(9 * rows, 64)
    return w, w[rows:-rows], integers(8, 7 * rows)


def test_a_value_that_is_written_again_changes_nothing(tiled, found_by):
    """The copy is used on; what was written is read to see that."""
    w, inside, x = _rows_of_digests()
    before, rows = w[:], digests.ROW // 256
    with clgemm.resident(w) as held:
        for written in range(4):
            for row in range(written):
                where = (1 + 2 * row) * rows + 100
                before[where] = w[where].copy()  # NumPy does not write an array to itself
            compared = resident.used().compared_bytes
            np.testing.assert_array_equal(clgemm.matmul(x, inside), x @ inside)
            compared = resident.used().compared_bytes - compared
            assert compared == digests.ROW * (7 if found_by == "digests" else written)
        assert held.uses == 4


def test_an_array_that_was_mostly_written_to_keeps_digests_only(tiled, found_by):
    """The same values, so the copy is used on; a change after that is found."""
    w, inside, x = _rows_of_digests()
    before = w[:]
    with clgemm.resident(w) as held:
        before[...] = w.copy()
        for _ in range(3):
            compared = resident.used().compared_bytes
            np.testing.assert_array_equal(clgemm.matmul(x, inside), x @ inside)
            assert resident.used().compared_bytes - compared == 7 * digests.ROW
            assert not tracking._live
        assert held.uses == 3
        before[1000, 3] += 1
        with pytest.warns(RuntimeWarning):
            np.testing.assert_array_equal(clgemm.matmul(x, inside), x @ inside)


def test_a_product_is_repeated_though_a_slow_device_keeps_the_first_ones_chunks(tiled, monkeypatch):
    """The pool has too few chunks for both, so those of the first are given up."""
    w, x = integers(60, 50), integers(40, 60)
    before, finish = w[:], staging.finish

    def too_slow(*arguments, **keywords):
        finish(*arguments, **keywords)
        return False

    with clgemm.resident(w):
        before[0, 0] += 1
        monkeypatch.setattr(staging, "finish", too_slow)
        with ThreadPoolExecutor(1) as threads, pytest.warns(RuntimeWarning):
            np.testing.assert_array_equal(threads.submit(product_on, tiled, x, w).result(60), x @ w)


def product_on(device, x, w):
    """Multiply in another thread."""
    with clgemm.device(device):
        return clgemm.dot(x, w)


def test_after_a_change_only_what_is_written_then_is_read(tiled, found_by):
    """The new copy is protected anew."""
    w, inside, x = _rows_of_digests()
    before = w[:]
    with clgemm.resident(w):
        before[500, 0] += 1
        with pytest.warns(RuntimeWarning):
            clgemm.matmul(x, inside)
        compared = resident.used().compared_bytes
        np.testing.assert_array_equal(clgemm.matmul(x, inside), x @ inside)
        compared = resident.used().compared_bytes - compared
        assert compared == digests.ROW * (7 if found_by == "digests" else 0)


def test_a_change_is_found_before_the_result_is_written(small, found_by):
    """What is added to is as it was when the product is repeated."""
    w, x, c = integers(60, 70), integers(40, 60), integers(40, 70)
    expected = c.copy()
    before = w[:]
    with clgemm.resident(w):
        before[...] = -before
        expected += x @ w
        with pytest.warns(RuntimeWarning):
            result = clgemm.sgemm(1.0, w.T, x.T, 1.0, c.T, overwrite_c=1)
        assert np.shares_memory(result, c)
        np.testing.assert_array_equal(c, expected)


def test_a_change_elsewhere_in_the_array_does_not_matter(tiled, found_by):
    """A product compares the part that it reads."""
    w = np.ones(8 * digests.ROW, np.float32)
    before = w[:]
    row, x = w[:64].reshape(8, 8), integers(8, 8)
    with clgemm.resident(w) as held:
        before[-1] = 2
        np.testing.assert_array_equal(clgemm.dot(x, row), x @ row)
        assert held.uses == 1
        with pytest.warns(RuntimeWarning):
            clgemm.dot(x, w[-64:].reshape(8, 8))
        assert held.uses == 1


def test_many_threads_use_and_release_the_same_arrays(tiled, found_by):
    """Results are right, whoever sends, and whoever is the last."""
    arrays = [integers(40, 40) for _ in range(3)]
    x = integers(20, 40)
    expected = [x @ w for w in arrays]

    def work(seed):
        order = np.random.default_rng(seed).permutation(3)
        with clgemm.device(tiled), clgemm.resident(*(arrays[i] for i in order[:2])):
            return all(
                np.array_equal(clgemm.dot(x, arrays[i]), expected[i]) for i in (*order, *order)
            )

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(24)))
    assert all(w.flags.writeable for w in arrays)


def test_each_device_has_a_copy_of_its_own(every_staged, sent):
    """Made when a product there first needs it."""
    w, x = integers(60, 50), integers(40, 60)
    first, second = every_staged["tiles"], every_staged["whole"]
    with clgemm.device(first), clgemm.resident(w) as held:
        assert sum(sent) == w.nbytes
        for device in (first, second, second, first):
            with clgemm.device(device):
                np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert sum(sent) == 2 * w.nbytes + 4 * x.nbytes
        assert held.uses == 4


def test_without_a_device_arrays_are_protected_only(monkeypatch):
    """A program runs as it is on a machine without OpenCL."""
    monkeypatch.setattr(resident, "chosen", lambda: _raise(NoDeviceError("none")))
    w = integers(5, 5)
    with clgemm.resident(w):
        assert not w.flags.writeable
    assert w.flags.writeable


def _raise(error):
    raise error


def test_a_device_that_uses_host_memory_in_place_has_no_copies(device, sent):
    """Its kernels read the arrays where they lie; nothing was saved, since nothing is sent."""
    if not device.shares_host_memory:
        pytest.skip("this device has memory of its own")
    w, x = integers(60, 50), integers(40, 60)
    with clgemm.device(device), clgemm.resident(w) as held:
        for view in (w, w[::-1, ::2]):
            np.testing.assert_array_equal(clgemm.dot(x, view), x @ view)
        assert (held.uses, held.saved_bytes, sent) == (0, 0, [])


SMALL = 4 * 1000  # bytes of the arrays in tests of the limit


def test_the_array_used_least_recently_makes_room(device, sent):
    """Within the share of the memory; what was dropped is sent again when it is needed."""
    x = integers(10, 25)
    arrays = [integers(25, 40) for _ in range(3)]
    with clgemm.device(limited(device, 2 * SMALL)), clgemm.resident(*arrays):
        assert sum(sent) == 3 * SMALL  # the first has made room for the last
        for i, copied in ((1, 0), (2, 0), (1, 0), (0, 1), (1, 0), (2, 1), (0, 1)):
            sent.clear()
            np.testing.assert_array_equal(clgemm.dot(x, arrays[i]), x @ arrays[i])
            assert sum(sent) == x.nbytes + copied * SMALL, (i, copied)


def test_a_larger_share_makes_more_room(device, sent):
    """The largest of those that living objects ask for."""
    x = integers(10, 25)
    first, second = integers(25, 40), integers(25, 40)
    chosen = clgemm.device(limited(device, SMALL))
    with chosen, clgemm.resident(first), clgemm.resident(second, share=0.5):
        sent.clear()
        for w in (first, second, first):
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert sum(sent) == 3 * x.nbytes


def test_an_array_that_does_not_fit_is_sent_each_time(device, sent):
    """Its products are right, and others keep their copies."""
    x, small, large = integers(10, 25), integers(25, 40), integers(25, 41)
    with clgemm.device(limited(device, SMALL)), clgemm.resident(small, large) as held:
        assert sum(sent) == SMALL
        sent.clear()
        for w in (large, small, large):
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert sum(sent) == 3 * x.nbytes + 2 * large.nbytes
        assert held.uses == 1


@pytest.mark.parametrize("end", ["release", "drop"])
def test_a_copy_lives_as_long_as_a_product_that_uses_it(tiled, end, monkeypatch):
    """A release or an eviction in the middle changes nothing, and the memory is freed after it."""
    w, x = integers(90, 90), integers(90, 90)
    expected = x @ w
    go, begun, found = threading.Event(), threading.Event(), multiply.operand_copies
    held = clgemm.resident(w)
    copies = [weakref.ref(copy) for copy in resident._copies[tiled.context].values()]

    def copies_and_tell(*arguments):
        copies = found(*arguments)
        begun.set()
        assert go.wait(60)
        return copies

    def product():
        with clgemm.device(tiled):
            return clgemm.sgemm(1.0, x, w, order="C")

    monkeypatch.setattr(multiply, "operand_copies", copies_and_tell)
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(product)
        try:
            assert begun.wait(60)
            if end == "release":
                held.release()
            else:
                resident.make_room(tiled)
            assert not any(resident._copies.values())
            assert [copy() is None for copy in copies] == [False]
            assert not result.done()
        finally:
            go.set()
        np.testing.assert_array_equal(result.result(60), expected)
        del result
    held.release()
    gc.collect()
    assert [copy() for copy in copies] == [None]


def test_copies_make_room_for_a_product(tiled, monkeypatch):
    """A product that finds no memory drops them, and is made."""
    w, x = integers(60, 50), integers(40, 60)
    allocate, left = Workspace.allocate, [1]

    def refuse_once(space, size_bytes):
        if left:
            left.pop()
            raise cl.MemoryError("refused")
        return allocate(space, size_bytes)

    with clgemm.resident(w) as held:
        with monkeypatch.context() as patch:
            patch.setattr(Workspace, "allocate", refuse_once)
            np.testing.assert_array_equal(clgemm.dot(x, x.T), x @ x.T)
        assert left == []
        assert not any(resident._copies.values())
        np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert held.uses == 1


FORKED = """
import os, sys
from dataclasses import replace
import numpy as np
import clgemm
from clgemm.core.transfer import TransferConfig
from clgemm.hardware.device import Device
from clgemm.transfer import resident

device = Device(clgemm.devices()[0].cl_device, transfer=TransferConfig(2**30, 2))
w = (np.arange(2500, dtype=np.float32) % 8).reshape(50, 50).copy()
with clgemm.device(device), clgemm.accel.enabled(threshold=0):
    held = clgemm.resident(w)
    assert (clgemm.dot(w, w) == clgemm.dot(w, w)).all() and held.uses == 4
    expected = w @ w
    uses = held.uses
    child = os.fork()
    if not child:
        assert not resident._copies and not w.flags.writeable
        assert (w @ w == expected).all()
        assert held.uses == uses
        with clgemm.resident(w):
            pass
        held.release()
        w[0, 0] = 7
        assert (w @ w != expected).any()
        os._exit(23)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 23
    assert (clgemm.dot(w, w) == expected).all() and held.uses == uses + 2
    held.release()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_no_copies():
    """Its products are NumPy's, and it may release; the parent's copies are as they were."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_without_the_check_nothing_is_compared(tiled, monkeypatch):
    """Nor is it for memory that nobody can write to; another object may ask for it later."""
    with monkeypatch.context() as patch:
        patch.setattr(resident, "digests", None)
        w, x = integers(30, 30), integers(30, 30)
        fixed = np.frombuffer(w.tobytes(), np.float32).reshape(30, 30)
        held = clgemm.resident(w, check=False)
        with clgemm.resident(fixed) as other:
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
            np.testing.assert_array_equal(clgemm.dot(x, fixed), x @ w)
        assert (held.uses, other.uses) == (1, 1)
    held.release()
    before = w[:]
    with clgemm.resident(w, check=False), clgemm.resident(w):
        np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        before[0, 0] = 100
        with pytest.warns(RuntimeWarning):
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)


def test_a_flag_that_the_program_sets_back_ends_the_use_of_the_copy(tiled):
    """The product reads the array as it is now."""
    w, x = integers(30, 30), integers(30, 30)
    with clgemm.resident(w, check=False) as held:
        w.flags.writeable = True
        w += 1
        np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert held.uses == 0
    assert w.flags.writeable


def test_a_product_within_another_makes_no_copy(tiled):
    """Of a signal handler or a finalizer: it uses copies that are there."""
    w, x = integers(30, 30), integers(30, 30)
    with clgemm.resident(w):
        assert operand_copies(tiled, x, w, is_nested=True).of_operands[1] is not None
        resident.make_room(tiled)
        assert operand_copies(tiled, x, w, is_nested=True).of_operands == (None, None)
        assert operand_copies(tiled, x, w).of_operands[1] is not None


@pytest.mark.parametrize("where", ["memory", "transfer"])
def test_without_memory_for_a_copy_the_array_is_sent(tiled, where, monkeypatch, caplog, sent):
    """Products are right, it is tried once, and the log says so."""
    w, x = integers(60, 50), integers(40, 60)
    tries = []

    def refuse(*arguments, **keywords):
        tries.append(arguments)
        raise cl.MemoryError("refused")

    with monkeypatch.context() as patch:
        if where == "memory":
            patch.setattr(resident.cl, "Buffer", refuse)
        else:
            patch.setattr(resident.cl, "enqueue_copy", refuse)
        held = clgemm.resident(w)
    with held:
        for _ in range(2):
            np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
        assert sum(sent) == 2 * (w.nbytes + x.nbytes)
        assert held.uses == 0
    assert len(tries) == 1
    assert "no copy stays" in caplog.text


def test_threads_that_need_a_copy_make_one(device, sent):
    """The others wait for it."""
    w, x = integers(60, 50), integers(40, 60)
    with clgemm.resident(w):
        other = Device(device.cl_device, transfer=TINY)
        gate = threading.Barrier(4)

        def product(_):
            gate.wait(60)
            with clgemm.device(other):
                return np.array_equal(clgemm.dot(x, w), x @ w)

        sent.clear()
        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(product, range(4)))
        assert sum(sent) == 4 * x.nbytes + w.nbytes


def test_an_interrupted_copy_is_made_later(tiled, monkeypatch, sent):
    """Ctrl-C while it is made leaves the arrays as they were."""
    w, x = integers(60, 50), integers(40, 60)
    plain = Device(tiled.cl_device)
    if not plain.shares_host_memory:
        pytest.skip("any object for this device makes a copy at once")

    def interrupt(memory):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(resident, "digests", interrupt)
        with pytest.raises(KeyboardInterrupt):
            clgemm.resident(w)
        assert w.flags.writeable
        with clgemm.device(plain):
            held = clgemm.resident(w)
        with pytest.raises(KeyboardInterrupt):
            clgemm.dot(x, w)
    np.testing.assert_array_equal(clgemm.dot(x, w), x @ w)
    assert held.uses == 1
    held.release()
