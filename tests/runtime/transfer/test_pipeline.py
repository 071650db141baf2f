"""Products through pinned memory, forced on every device found, in tiles of every kind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from staged import TINY, integers
from strategies import problems, reals

import clgemm
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.transfer import pipeline
from clgemm.runtime.transfer.call import Call
from clgemm.runtime.transfer.pipeline import TiledProduct, multiply_through
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import workspace

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
    pool = staging(staged, staged.transfer)
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

    monkeypatch.setattr(pipeline, "Call", Watched)
    a, b = integers(shape[0], 40), integers(40, shape[1])
    c = np.empty(shape, np.float32)
    product = TiledProduct(1.0, 0.0, "strict", device, workspace(device.queue))
    with (
        clgemm.device(device),
        clgemm.resident(*({"a": [a], "b": [b], "neither": []}[stays])),
    ):
        multiply_through(staging(device, device.transfer), product, a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    first, *others = (tile.loads for tile in plans[0])
    assert first == ((0, 1) if stays == "neither" else (0,))
    assert len(others) > 1
    assert set(others) == {(0,)}


def test_only_devices_with_memory_of_their_own_take_copies(device, every_staged):
    """Unless a device is told otherwise."""
    assert (transfer_config(device) is None) == device.shares_host_memory
    assert transfer_config(every_staged["tiles"]) is TINY
