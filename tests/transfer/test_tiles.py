"""Products in tiles through pinned memory, forced on every device found."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from staged import TINY, integers
from strategies import problems, reals

import clgemm
from clgemm.core.threads import is_within
from clgemm.core.transfer import make_stream
from clgemm.hardware.device import transfer_config
from clgemm.runtime.finite import watched
from clgemm.runtime.workspace import Workspace, workspace
from clgemm.transfer import multiply, tiles
from clgemm.transfer.multiply import multiply_through
from clgemm.transfer.staging import Staging, staging
from clgemm.transfer.tiles import (
    Call,
    ChunkCopy,
    Link,
    Piece,
    Share,
    Slot,
    TiledProduct,
    has_ended,
)

pytestmark = pytest.mark.usefixtures("small_pieces")
CONFIGS = {
    "at once": replace(TINY, at_once_bytes=2**20, chunk_bytes=2**19, threaded_bytes=2**30),
    "in pieces": replace(TINY, at_once_bytes=2**20, at_once_us=10**9, chunks=300, pool_chunks=600),
    "whole": replace(TINY, tile_bytes=2**30, chunk_bytes=2**20),
    "tiles": TINY,
    "budget": replace(TINY, memory_bytes=40_000),
    "early": replace(TINY, tiles=8, ramp=2, edge_bytes=1024, threads=5),
    "square": replace(TINY, square=3, threads=1),
    "alone": replace(TINY, memory_bytes=40_000, threaded_bytes=2**40, chunks=1, pool_chunks=2),
}


@pytest.fixture(scope="module", params=CONFIGS)
def staged(request, every_staged):
    """One of them, chosen."""
    with clgemm.device(every_staged[request.param]) as chosen:
        yield chosen


@settings(max_examples=15)
@given(problem=problems())
def test_sgemm_is_exact_on_small_integers(problem, staged):
    """Any strides, transposes and scalars; nothing but C's elements changes."""
    expected = problem.expected()
    result = clgemm.sgemm(*problem.arguments)
    np.testing.assert_array_equal(result, expected)
    assert problem.a.untouched()
    assert problem.b.untouched()
    if problem.c is not None:
        if problem.overwrite_c:
            assert problem.c.untouched_outside(problem.c.view)
        else:
            assert problem.c.untouched()


@settings(max_examples=10)
@given(problem=problems(values=reals))
def test_sums_of_tiles_keep_the_bound(problem, every_staged):
    """Each element's error is that of one sum, though k is cut."""
    expected, bound = problem.expected(), problem.bound()
    with clgemm.device(every_staged["budget"]):
        result = clgemm.sgemm(*problem.arguments, precision="strict")
    assert (abs(result - expected) <= bound).all()


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((300, 200), (200, 100)),
        ((20, 700), (700, 90)),
        ((9, 8), (8, 900)),
        ((1, 300), (300, 1)),
        ((12, 3000), (3000, 10)),
        ((30, 20, 10), (30, 10, 20)),
        ((2, 3, 40, 50), (50, 60)),
        ((50, 60), (2, 3, 60, 40)),
        ((2, 1, 40, 50), (3, 50, 60)),
        ((5, 3, 4), (5, 4, 7)),
        ((2, 3, 90, 80), (2, 1, 80, 70)),
        ((3000, 2, 3), (3000, 3, 2)),
    ],
)
def test_matmul_of_stacks_and_large_matrices(shape_a, shape_b, staged):
    """As NumPy, for tiles of several matrices and of parts of one."""
    a, b = integers(*shape_a), integers(*shape_b)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    turned = np.swapaxes(np.swapaxes(a, -1, -2).copy(), -1, -2)[..., ::-1, :]
    np.testing.assert_array_equal(clgemm.matmul(turned, b), turned @ b)
    once = np.broadcast_to(b[..., :1], b.shape)  # one column, repeated without memory
    np.testing.assert_array_equal(clgemm.matmul(a, once), a @ once)


def test_out_may_overlap_operands(staged):
    """`out` is an operand, or shares memory with one."""
    base = integers(72, 72)
    x = base[1:-1, 1:-1]
    expected = x @ x.T
    assert clgemm.matmul(x, x.T, out=x) is x
    np.testing.assert_array_equal(x, expected)
    x[...] = integers(70, 70)
    expected = x @ x
    clgemm.matmul(x, x, out=base[2:, 2:])
    np.testing.assert_array_equal(base[2:, 2:], expected)


def test_nan_spreads_by_row_and_column_only(staged):
    """What is not finite stays in its row and column, in whichever tile they are."""
    a, b = integers(200, 150), integers(150, 90)
    a[170, 140], b[3, 80] = np.nan, np.inf
    finite = np.ones((200, 90), bool)
    finite[170], finite[:, 80] = False, False
    np.testing.assert_array_equal(np.isfinite(clgemm.dot(a, b)), finite)


def test_what_does_not_count_is_not_read(staged):
    """Operands with an alpha of 0, and C with a beta of 0."""
    nan = np.full((100, 100), np.nan, np.float32)
    c = integers(100, 100)
    np.testing.assert_array_equal(clgemm.sgemm(0.0, nan, nan, 3.0, c), 3 * c)
    np.testing.assert_array_equal(clgemm.sgemm(0.0, nan, nan), 0 * c)
    result = clgemm.sgemm(1.0, c, c, 0.0, nan.copy(order="F"), overwrite_c=1)
    np.testing.assert_array_equal(result, c @ c)


def test_many_threads(staged):
    """Calls share the pinned memory, wait for it, and do not mix."""

    def product(seed):
        rng = np.random.default_rng(seed)
        a, b = (rng.integers(-8, 9, (90, 90)).astype(np.float32) for _ in "ab")
        with clgemm.device(staged):
            return np.array_equal(clgemm.dot(a, b), a @ b)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(product, range(24)))
    pool = staging(staged)
    assert len(pool._free) == pool._made() <= staged.transfer.pool_chunks


@pytest.mark.parametrize("stays", ["a", "b", "neither"])
@pytest.mark.parametrize("shape", [(96, 48), (48, 96)])
def test_beside_a_resident_operand_the_other_comes_in_by_tiles(
    stays, shape, every_staged, monkeypatch
):
    """None of it waits for all of it, whichever of the result's axes is longer."""
    device, plans = every_staged["tiles"], []

    class Watched(Call):
        def __init__(self, shares, *others):
            plans.append(shares[0].tiles)
            super().__init__(shares, *others)

    monkeypatch.setattr(tiles, "Call", Watched)
    a, b = integers(shape[0], 40), integers(40, shape[1])
    c = np.empty(shape, np.float32)
    product = TiledProduct(1.0, 0.0, "strict", device, workspace(device.queue))
    with (
        clgemm.device(device),
        clgemm.resident(*({"a": [a], "b": [b], "neither": []}[stays])),
    ):
        multiply_through(staging(device), product, a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    first, *others = (tile.loads for tile in plans[0])
    assert first == ((0, 1) if stays == "neither" else (0,))
    assert len(others) > 1
    assert set(others) == {(0,)}


def test_only_devices_with_memory_of_their_own_take_copies(device, every_staged):
    """Unless a device is told otherwise."""
    assert (transfer_config(device) is None) == device.shares_host_memory
    assert transfer_config(every_staged["tiles"]) is TINY


def test_events_are_waited_for(tiled):
    """Nothing is computed before the events that the call was given."""
    gate = cl.UserEvent(tiled.context)
    a = integers(100, 100)
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(clgemm.sgemm, 1.0, a, a, wait_for=[gate], queue=tiled.queue)
        done = threading.Event()
        result.add_done_callback(lambda _: done.set())
        assert not done.wait(0.1)
        gate.set_status(cl.command_execution_status.COMPLETE)
        np.testing.assert_array_equal(result.result(), a @ a)


def test_a_failure_before_the_first_tile_leaves_the_result_as_it_was(tiled, monkeypatch):
    """No memory: nothing is written, and the next call works."""
    a, out = integers(200, 200), integers(200, 200)
    before = out.copy()

    def refuse(space, size_bytes):
        raise cl.MemoryError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "allocate", refuse)
        with pytest.raises(cl.MemoryError):
            clgemm.dot(a, a, out=out)
    np.testing.assert_array_equal(out, before)
    np.testing.assert_array_equal(clgemm.dot(a, a, out=out), a @ a)


def test_after_a_failure_nothing_runs_on(tiled, monkeypatch):
    """Chunks are back in the pool, the operands are whole, the next call works."""
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
    pool = staging(tiled)
    assert len(pool._free) == pool._made()
    np.testing.assert_array_equal(a, before)
    np.testing.assert_array_equal(clgemm.dot(a, a), before @ before)


def test_a_second_call_takes_no_new_memory(tiled):
    """Neither pinned memory nor the device's."""
    a = integers(200, 200)
    clgemm.dot(a, a)
    pool = staging(tiled)
    scratch = pool.space._pool
    before = pool._made(), scratch.managed_bytes
    assert settled()
    clgemm.dot(a, a)
    assert (pool._made(), scratch.managed_bytes) == before


def test_a_copy_that_fails_ends_the_call(tiled, monkeypatch):
    """Its error is the caller's, the chunks are back, and the next call works."""
    pool = Staging(tiled, TINY)
    product = TiledProduct(1.0, 0.0, "strict", tiled, workspace(tiled.queue))
    a, c = integers(200, 200), np.zeros((200, 200), np.float32)
    copy, copied = pool.copy, []

    def fail_late(target, source):
        copied.append(target)
        if len(copied) == 20:
            raise MemoryError("the twentieth")
        copy(target, source)

    with monkeypatch.context() as patch:
        patch.setattr(pool, "copy", fail_late)
        with pytest.raises(MemoryError, match="the twentieth"):
            multiply_through(pool, product, a, a, c)
    assert len(pool._free) == pool._made()
    multiply_through(pool, product, a, a, c)
    np.testing.assert_array_equal(c, a @ a)


def test_a_call_has_few_transfers_under_way(tiled, monkeypatch):
    """No more pieces are begun than there are chunks: the rest of the call keeps no memory."""
    most, make = [], tiles.Copier.copy

    def noting(self, copy):
        make(self, copy)
        most.append(self.under_way)

    monkeypatch.setattr(tiles.Copier, "copy", noting)
    a = integers(200, 200)
    np.testing.assert_array_equal(clgemm.dot(a, a), a @ a)
    assert max(most) <= 2 * TINY.chunks
    assert len(most) > 4 * TINY.chunks


def test_calls_leave_nothing_behind(tiled):
    """Threads let go of a call once they have seen that it has ended."""
    a = integers(150, 150)

    def product(_):
        with clgemm.device(tiled):
            return clgemm.dot(a, a)

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(product, range(40)))
    assert all(np.array_equal(result, a @ a) for result in results)
    assert settled()


def settled():
    """Wait until no thread knows of a call any more, and tell whether that came."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        gc.collect()
        if not any(type(x) in (tiles.Call, tiles.Copier) for x in gc.get_objects()):
            return True
        time.sleep(0.01)
    return False


SHAPES = {
    "rows": ((90, 40), (40, 300)),
    "columns": ((300, 40), (40, 280)),
    "stack": ((5, 40, 30), (5, 30, 260)),
    "depth": ((9, 3000), (3000, 270)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("value", [1.0, np.nan, np.inf, -np.inf])
def test_a_result_is_known_to_be_finite_only_if_it_is(shape, value, tiled):
    """Wherever the element is that is not."""
    a, b = (integers(*each) for each in SHAPES[shape])
    for where in ((0, 0), (a.shape[-2] - 1, a.shape[-1] - 1), (a.shape[-2] // 2, 3)):
        whole = a[0] if a.ndim > 2 else a
        before, whole[where] = whole[where], value
        with watched() as seen, np.errstate(invalid="ignore"):
            result = clgemm.matmul(a, b)
            np.testing.assert_array_equal(result, a @ b)
        whole[where] = before
        assert seen.elements == (result.size if np.isfinite(value) else 0)


def test_large_numbers_are_not_taken_for_infinite(tiled):
    """Although a sum of them overflows."""
    a, b = np.full((300, 1), 3e38, np.float32), np.ones((1, 300), np.float32)
    with watched() as seen:
        assert np.isfinite(clgemm.matmul(a, b)).all()
    assert seen.elements == 300 * 300


def test_what_is_not_asked_for_is_not_checked(tiled, monkeypatch):
    """Nor what is made within another product, which it does not tell of."""
    made, new = [], tiles.Checks
    monkeypatch.setattr(tiles, "Checks", lambda *given: made.append(new(*given)) or made[-1])
    a, b = integers(300, 50), integers(50, 300)
    clgemm.matmul(a, b)
    monkeypatch.setattr(multiply, "is_within", lambda _: True)
    with watched() as seen:
        clgemm.matmul(a, b)
    assert (made, seen.elements) == ([], 0)
    monkeypatch.setattr(multiply, "is_within", is_within)
    with watched() as seen:
        clgemm.matmul(a, b)
        clgemm.matmul(a, b)
    assert len(made) == 2
    assert seen.elements == 2 * 300 * 300
    assert TINY.tiles > 1


M, N, K = 200, 60, 40


@pytest.fixture
def share(tiled):
    """A share whose C is cut into four tiles of rows."""
    arrays = integers(M, K), integers(K, N), np.zeros((M, N), np.float32)
    product = TiledProduct(1.0, 0.0, "strict", tiled, workspace(tiled.queue))
    plan = make_stream((), (M, N, K), ((), ()), False, TINY, 2**30)
    share = Share(staging(tiled), product, plan, arrays)
    share.make_slots(5)
    return share


@pytest.mark.parametrize("which", [0, 3])
@pytest.mark.parametrize("value", [0.0, np.inf])
def test_each_block_of_the_result_is_checked(share, which, value):
    """Flags of different blocks have places of their own."""
    assert share.checks is None
    share.bind()
    share.watch()
    share.allocate()
    queue, zero = share.space.queue, np.zeros(1, np.float32)
    for number, tile in enumerate(share.tiles):
        block, size = share.slot(tile, 2).buffer, share.block(tile, 2).nbytes
        done = cl.enqueue_fill_buffer(queue, block, zero, 0, size)
        if number == which:
            found = np.full(1, value, np.float32)
            done = cl.enqueue_fill_buffer(queue, block, found, size - 4, 4)
        share.checks.enqueue(block, done)
    for chunk in (np.empty(10, np.float32), np.empty(1000, np.float32)):
        assert share.checks.are_finite(chunk) == (value == 0)


@pytest.fixture
def slot(device):
    """Device memory for 24 elements."""
    slot = Slot()
    slot.buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 96)
    return slot


def link(device, is_up, is_slow=False):
    """A link with a queue of its own."""
    return Link([cl.CommandQueue(device.context)], [threading.RLock()], is_up, is_slow)


@pytest.mark.parametrize("is_slow", [False, True])
def test_there_and_back(device, slot, is_slow):
    """Pieces go to their places in the slot and come back in order."""
    up, down = link(device, True, is_slow), link(device, False, is_slow)
    sent = integers(3, 8)
    pieces = [Piece((slot,), x, 8 * i, 8) for i, x in enumerate(sent)]
    copies = [ChunkCopy.to_chunk(x, x.host.copy(), i) for i, x in enumerate(pieces)]
    events = [event for copy in copies for event in up.enqueue(copy, [[]])]
    up.flush()
    assert up
    for copy in copies:
        up.wait()
        assert up.is_over()
        assert up.take() is copy
    assert not up
    assert not up.is_over()
    chunks, results = np.zeros((3, 12), np.float32), np.zeros((3, 8), np.float32)
    for i in range(3):
        down.enqueue(
            ChunkCopy.from_chunk(Piece((slot,), results[i], 8 * i, 8), chunks[i]), [events]
        )
    down.flush()
    while down:
        down.wait()
        assert down.take().tile is None
    np.testing.assert_array_equal(chunks[:, :8], sent)


def test_a_command_that_has_not_ended(device):
    """It is told without a wait."""
    gate = cl.UserEvent(device.context)
    assert not has_ended(gate)
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert has_ended(gate)


def test_a_command_that_failed():
    """Its error is raised."""

    class Failed:
        command_execution_status = -5

        def wait(self):
            raise cl.RuntimeError("failed")

    with pytest.raises(cl.RuntimeError, match="failed"):
        has_ended(Failed())
