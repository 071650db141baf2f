"""Tests of products small enough for one transfer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from staged import TINY, integers

import clgemm
from clgemm.hardware.device import Device, of_queue
from clgemm.runtime import finite
from clgemm.runtime.workspace import workspace
from clgemm.transfer import multiply as transfer_multiply
from clgemm.transfer import single_transfer
from clgemm.transfer.single_transfer import STEP, copies, make_route, plan_single_transfer
from clgemm.transfer.staging import Staging, staging
from clgemm.transfer.tiles import TiledProduct

SMALL = replace(TINY, at_once_bytes=30_000, chunk_bytes=16_384, threaded_bytes=2**30)
# The threads copy: A of 60 x 50 in three pieces.
IN_PIECES = replace(
    TINY, at_once_bytes=60_000, at_once_us=10**9, chunk_bytes=4096, chunks=16, pool_chunks=32
)


@pytest.fixture(scope="module")
def own(device):
    """Return a device as if it had memory of its own, without products before."""
    return Device(device.cl_device, transfer=SMALL)


@pytest.fixture(scope="module")
def in_pieces(device):
    """Return another one, with products of pieces."""
    return Device(device.cl_device, transfer=IN_PIECES)


@pytest.fixture(params=["by the caller", "by threads"])
def either(request, sent):
    """Choose the device of `sent`, or the one with pieces; return the list of transfers."""
    if request.param == "by the caller":
        yield sent
    else:
        with clgemm.device(request.getfixturevalue("in_pieces")):
            yield sent


def noted(monkeypatch, what):
    """Return a list that gets what a function tells of the arguments of each transfer at once."""
    found, enqueue = [], single_transfer.enqueue_transfer

    def noting(*arguments):
        found.append(what(*arguments))
        return enqueue(*arguments)

    monkeypatch.setattr(single_transfer, "enqueue_transfer", noting)
    return found


@pytest.fixture
def sent(own, monkeypatch):
    """Choose the device; return the list of (is_up, first byte, bytes) of its transfers at once."""
    found = noted(monkeypatch, lambda _queue, up, _, first, host, __: (up, first, host.nbytes))
    with clgemm.device(own):
        yield found


def test_what_fits(own):
    """All arrays together, without what is repeated, in so many chunks, if it takes no longer."""
    a, b, c = integers(64, 32), integers(32, 64), integers(64, 64)
    product = TiledProduct(1.0, 0.0, "strict", own, workspace(own.queue))

    def fits(*arrays, **changes):
        config = replace(SMALL, at_once_bytes=32_768, **changes)
        return plan_single_transfer(Staging(own, config), product, *arrays, False) is not None

    assert fits(a, b, c)
    assert not fits(a, b, integers(64, 65))
    assert not fits(a, b, c, memory_bytes=32_767)
    # The result fills two chunks, and flags may come back with it.
    assert fits(a, b, c, chunk_bytes=8192, chunks=3)
    assert not fits(a, b, c, chunk_bytes=8192, chunks=2)
    assert fits(a, b, c[:60, :60], chunk_bytes=8192, chunks=2)
    assert fits(np.broadcast_to(a, (50, 64, 32)), b[:, :9][None], c[:, :9][None])
    assert fits(a, b, c, at_once_us=0)
    assert not fits(a, b, c, at_once_us=0, threaded_bytes=0)
    assert fits(a, b, c, at_once_us=10**9, threaded_bytes=0)


def test_both_operands_share_a_transfer(sent):
    """If they fit into one chunk. Each begins at a whole vector of the kernels."""
    a, b = integers(31, 33), integers(33, 20)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert sent == [(True, 0, 4096 + 4 * 660), (False, 0, 4 * 620)]


def test_larger_operands_have_a_chunk_each(sent):
    """So has a C that is read."""
    a, b, c = integers(50, 60), integers(60, 40), integers(50, 40)
    np.testing.assert_array_equal(clgemm.sgemm(2.0, a, b, 3.0, c), 2 * (a @ b) + 3 * c)
    assert sent == [
        *((True, 0, 12_000), (True, 12_032, 9_600), (True, 0, 8_000)),
        (False, 0, 8_000),
    ]


def test_large_products_go_in_pieces(sent):
    """None of them is sent at once."""
    a = integers(60, 60)
    np.testing.assert_array_equal(clgemm.matmul(a, a), a @ a)
    assert sent == []


def test_repeated_matrices_are_sent_once(sent):
    """As they lie in the host's memory."""
    a, b = integers(7, 20, 30), integers(30, 10)
    many = np.broadcast_to(b, (7, 30, 10))
    np.testing.assert_array_equal(clgemm.matmul(a[:, ::-1], many), a[:, ::-1] @ b)
    assert sum(size for is_up, _, size in sent if is_up) < 4 * (a.size + 2 * b.size)


def test_resident_operands_are_not_sent(sent):
    """The other one is, and the result comes back: both may be larger than what is sent at once."""
    a, b = integers(200, 300), integers(300, 7)
    with clgemm.resident(a):
        for _ in range(2):
            np.testing.assert_array_equal(clgemm.matmul(a[:, ::-1], b), a[:, ::-1] @ b)
        np.testing.assert_array_equal(clgemm.matmul(b.T, a.T), b.T @ a.T)
        assert sent == [(True, 0, b.nbytes), (False, 0, 4 * 200 * 7)] * 3
        sent.clear()
        small = a[:20, :50]
        np.testing.assert_array_equal(clgemm.matmul(small, small.T), small @ small.T)
        assert sent == [(False, 0, 1600)]
    sent.clear()
    clgemm.matmul(a, b)
    assert sent == []


@pytest.mark.parametrize("value", [1.0, np.inf, -np.inf, np.nan])
def test_it_tells_what_is_finite(value, either):
    """To those who ask, after the product; a product within another one does not tell for it."""
    a, b = integers(20, 30), integers(30, 70)
    a[3, 5] = value
    for _ in range(2):  # the second is a repeated one
        with finite.watched() as watch:
            clgemm.matmul(a, b)
        assert watch.elements == (1400 if np.isfinite(value) else 0)
    assert either


def test_flags_come_back_with_the_result(sent, monkeypatch):
    """In the same transfer, unless threads copy; nobody else gets any."""
    a = integers(20, 20)
    clgemm.matmul(a, a)
    with finite.watched():
        clgemm.matmul(a, a)
    monkeypatch.setattr(single_transfer, "is_within", lambda _: True)
    with finite.watched() as watch:
        clgemm.matmul(a, a)
    assert watch.elements == 0
    assert [size for is_up, _, size in sent if not is_up] == [1600, 1604, 1600]


def test_threads_copy_pieces_of_a_chunk_at_most(in_pieces, sent):
    """Each is sent when it is copied, and each goes out as soon as it is there."""
    a, b, c = integers(60, 50), integers(50, 40), integers(60, 40)
    with clgemm.device(in_pieces):
        for _ in range(2):
            expected = 2 * (a @ b) + 3 * c
            clgemm.sgemm(2.0, a.T, b, 3.0, c, trans_a=1, overwrite_c=1)
            np.testing.assert_array_equal(c, expected)
            of_c = [(0, 4000), (4000, 4000), (8000, 1600)]
            operands = [*of_c[:2], (8000, 4000), (12_032, 4000), (16_032, 4000)]
            ups = [(first, size) for is_up, first, size in sent if is_up]
            assert sorted(ups) == sorted(operands + of_c)
            assert sent[len(ups) :] == [(False, *place) for place in of_c]
            del sent[:]


@pytest.mark.parametrize("fails", ["copy in", "copy out", "the product"])
def test_after_a_failure_of_pieces_nothing_is_lost(fails, in_pieces, monkeypatch):
    """No thread copies any more, chunks are back, and the next call works."""
    a, b, out = integers(60, 50), integers(50, 40), integers(60, 40)
    before, pool = out.copy(), staging(in_pieces)

    def fail(target, source):
        if np.shares_memory(
            target if fails == "copy out" else source, out if fails == "copy out" else a
        ):
            raise MemoryError("refused")
        np.copyto(target, source)

    def refuse(*_):
        raise cl.RuntimeError("refused")

    with clgemm.device(in_pieces):
        with monkeypatch.context() as patch:
            if fails == "the product":
                patch.setattr(TiledProduct, "enqueue", refuse)
            else:
                patch.setattr(pool, "copy", fail)
            with pytest.raises((cl.RuntimeError, MemoryError), match="refused"):
                clgemm.matmul(a, b, out=out)
        np.testing.assert_array_equal(out, before)
        assert len(pool._free) == pool._made()
        np.testing.assert_array_equal(clgemm.matmul(a, b, out=out), a @ b)


def test_after_a_failure_nothing_is_lost(own, sent, monkeypatch):
    """The result is as it was, chunks are back, and the next call works."""
    a, b, out = integers(20, 30), integers(30, 25), integers(20, 25)
    before = out.copy()

    def fail(*_):
        raise cl.RuntimeError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(TiledProduct, "enqueue", fail)
        with pytest.raises(cl.RuntimeError, match="refused"):
            clgemm.matmul(a, b, out=out)
    np.testing.assert_array_equal(out, before)
    pool = staging(own)
    assert len(pool._free) == pool._made()
    np.testing.assert_array_equal(clgemm.matmul(a, b, out=out), a @ b)


@pytest.mark.parametrize("config", [SMALL, IN_PIECES], ids=["by the caller", "by threads"])
def test_nobody_else_uses_the_queue(config, device, monkeypatch):
    """NVIDIA's driver crashes if others copy arrays by the same queue meanwhile."""
    own = Device(device.cl_device, transfer=config)
    used = noted(monkeypatch, lambda queue, *_: queue)
    flags = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    theirs = own.queue, cl.CommandQueue(own.context, properties=flags)
    of_queue(own.queue).transfer = config  # as in `own`
    a, b, c = integers(20, 30), integers(30, 25), integers(20, 25)
    with clgemm.device(own):
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    for queue in theirs:
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b, 1.0, c, queue=queue), a @ b + c)
    assert {*used} == {staging(each).queue for each in (own, of_queue(own.queue))}
    assert not {*used} & {*theirs}


def test_a_repeated_call_plans_nothing(either, planned):
    """Nor does it check anything: it sends other arrays of the same shapes."""
    for _ in range(3):
        a, b, c = integers(20, 30), integers(20, 25), integers(30, 25)
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b, trans_a=1), a.T @ b)
        expected = 2 * (a.T @ b) + 3 * c
        clgemm.sgemm(2.0, a, b, 3.0, c, trans_a=1, overwrite_c=1)
        np.testing.assert_array_equal(c, expected)
        x, y = integers(3, 20, 30), integers(3, 30, 5)
        np.testing.assert_array_equal(clgemm.matmul(x, y), x @ y)
        np.testing.assert_array_equal(clgemm.dot(x, y), np.dot(x, y))
        np.testing.assert_array_equal(clgemm.dot(a[::-1], c[:, 0]), a[::-1] @ c[:, 0])
    assert len(planned) == 5
    is_threaded = clgemm.get_device().transfer is IN_PIECES
    transfers = (3 + 4 + 5 + 5 + 3) if is_threaded else (2 + 3 + 2 + 2 + 2)
    assert len(either) == 3 * transfers


def test_another_device_in_mid_call_is_not_kept_for_the_first(own, planned, monkeypatch):
    """A call is not cached if a signal handler chose another device after its signature."""
    other, multiply = Device(own.cl_device, transfer=SMALL), transfer_multiply.multiply

    def choosing(*arguments, **keywords):
        with clgemm.device(other):
            return multiply(*arguments, **keywords)

    a, b = integers(20, 30), integers(30, 25)
    with clgemm.device(own):
        with monkeypatch.context() as patch:
            patch.setattr(transfer_multiply, "multiply", choosing)
            clgemm.sgemm(1.0, a, b)
        clgemm.sgemm(1.0, a, b)
    assert [device for device, _ in planned] == [other, own]


def test_a_repeated_call_has_scales_of_its_own(either, planned):
    """It takes neither alpha nor beta from the first call."""
    a, b, c = integers(20, 30), integers(30, 25), integers(20, 25)
    for alpha, beta in ((2.0, 3.0), (-1.0, 3.0), (2.0, 0.0), (2.0, -2.0)):
        result = c.copy()
        clgemm.sgemm(alpha, a, b, beta, result, overwrite_c=1)
        np.testing.assert_array_equal(result, alpha * (a @ b) + beta * c)
    assert len(planned) == 1


def test_a_repeated_call_uses_what_is_resident(sent):
    """It does not send that."""
    a, b = integers(20, 30), integers(30, 25)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    del sent[:]
    with clgemm.resident(a):
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert sent == [(True, 0, b.nbytes), (False, 0, 2000)]
    del sent[:]
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert len(sent) == 2


def test_arrays_that_repeat_elements_are_sent_right_each_time(sent):
    """Their order in memory is not one."""
    a, b = integers(6, 20), integers(20, 25)
    for x in (np.broadcast_to(a, (4, 6, 20)), np.lib.stride_tricks.as_strided(a, (9, 20), (4, 4))):
        for _ in range(3):
            np.testing.assert_array_equal(clgemm.matmul(x, b), x @ b)
    assert len(sent) == 12
    other = integers(9, 25)
    for _ in range(3):  # of equal strides, the order depends on which axis comes first
        np.testing.assert_array_equal(clgemm.sgemm(1.0, x, other, trans_a=1), x.T @ other)


@st.composite
def arrays(draw):
    """A float32 array of up to four axes, in any order of memory, with any steps."""
    shape = draw(st.lists(st.integers(1, 9), min_size=2, max_size=4))
    steps = [draw(st.sampled_from([1, 2, -1, -3])) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    padded = [shape[axis] * abs(steps[axis]) for axis in order]
    whole = integers(*padded).transpose(np.argsort(order))
    view = whole[tuple(slice(None, None, step) for step in steps)]
    assert view.shape == tuple(shape)
    return view


def travel(route, transfers, views, chunks, buffers, is_up):
    """Do what a call does, with arrays for chunks and for memory of the device."""
    moves = list(copies(transfers, views, chunks, is_up))
    assert [copy.number for copy in moves if copy.is_last] == list(range(len(transfers)))
    if is_up:
        for copy in moves:
            np.copyto(copy.target, copy.source)
    for number, each in enumerate(transfers):
        buffer = buffers[int(is_up and number < route.operands)]
        device = buffer[each.start : each.start + each.size]
        assert device.size == each.size
        chunk = chunks[each.chunk][each.first : each.first + each.size]
        assert chunk.size == each.size
        np.copyto(*((device, chunk) if is_up else (chunk, device)))
    if not is_up:
        for copy in moves:
            np.copyto(copy.target, copy.source)


@settings(max_examples=200)
@given(
    a=arrays(),
    b=arrays(),
    c=arrays(),
    reads_c=st.booleans(),
    chunk=st.sampled_from([64, 256, 4096]),
    threaded=st.sampled_from([0, 2**30]),
    is_nested=st.booleans(),
    flags=st.integers(0, 16),
)
def test_every_element_arrives_where_its_layout_says(
    a, b, c, reads_c, chunk, threaded, is_nested, flags
):
    """On the device, and C's and flags on the host again; nothing else is written."""
    config = replace(TINY, chunk_bytes=chunk, threaded_bytes=threaded)
    route = make_route((a, b, c), reads_c, config, is_nested, flags)
    assert route.is_threaded == (not threaded and not is_nested)
    views = [x.transpose(axes) for x, axes in zip((a, b, c), route.axes, strict=True)]
    chunks = np.full((route.chunks, chunk // 4), np.nan, np.float32)
    operands, result = (np.full(size, np.nan, np.float32) for size in route.sizes)
    travel(route, route.up, views, chunks, (result, operands), True)
    for start, view in zip(route.starts, views, strict=False):
        assert start % STEP == 0
        np.testing.assert_array_equal(operands[start : start + view.size], view.ravel())
    if reads_c:
        np.testing.assert_array_equal(result[: c.size], views[2].ravel())
    else:
        assert np.isnan(result).all()
    result[:] = np.arange(result.size)
    views.append(np.zeros(flags, np.float32))
    travel(route, route.down, views, chunks, (result, operands), False)
    np.testing.assert_array_equal(views[2].ravel(), result[: c.size])
    np.testing.assert_array_equal(views[3], result[result.size - flags :])
    for each in route.up + route.down:
        assert len(each.parts) == 1 or not route.is_threaded


def test_threads_get_pieces_of_a_share_of_the_product():
    """They are no smaller than copies that pay, and no larger than a chunk."""
    cases = (1200, 2**24, 6), (300, 2**24, 1), (1200, 2**19, 12), (3000, 2**26, 6)
    for n, chunk_bytes, pieces in cases:
        x = np.empty((n, n), np.float32)
        config = replace(TINY, chunk_bytes=chunk_bytes)
        route = make_route((x, x, x), False, config, False)
        assert [len(route.up), len(route.down)] == [2 * pieces, pieces]
