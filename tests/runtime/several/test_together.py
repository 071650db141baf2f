"""Tests of products that equal GPUs make together; the tests' device plays all of them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from injection import TRANSFER
from whole_numbers import whole

import clgemm
from clgemm.core.named import named
from clgemm.runtime import launch, progress
from clgemm.runtime.finite import watched
from clgemm.runtime.several import standing, together
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import Workspace

RNG = np.random.default_rng(31)
M, N, K = 500, 300, 96

pytestmark = pytest.mark.usefixtures("small_spread")


@pytest.fixture(scope="module")
def every(device):
    """The device four times, with queues of their own, as if it had memory of its own."""
    return [clgemm.Device(device.cl_device, transfer=TRANSFER) for _ in range(4)]


@pytest.fixture(params=[2, 4])
def equals(request, every, monkeypatch):
    """Two or four of them, chosen."""
    made = tuple(every[: request.param])
    monkeypatch.setattr(named, "by_process", made)
    return made


@pytest.fixture
def calls(monkeypatch):
    """Whether each product that is spread was made together."""
    answers, compute, lock = [], launch._compute_together, threading.Lock()

    def noting(*arguments):
        with lock:
            number = len(answers)
            answers.append(None)  # until it returns
        answers[number] = compute(*arguments)
        return answers[number]

    monkeypatch.setattr(launch, "_compute_together", noting)
    return answers


@pytest.mark.parametrize(
    "shape", [(M, N, K), (N, M, K), (4000, 70, 50), (7, 150, 60, 33), (3, 5, 90, 80, 40)]
)
def test_the_product_is_right(shape, equals, calls):
    """Of any shape, order of memory and batch."""
    *batch, m, n, k = shape
    a, b = whole(*batch, m, k), whole(*batch, k, n)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    for order in ("C", "F"):
        out = np.zeros((*batch, m, n), np.float32, order=order)
        clgemm.matmul(a[..., ::-1, :], b, out=out)
        np.testing.assert_array_equal(out, a[..., ::-1, :] @ b)
    assert calls == 3 * [True]


def test_one_b_of_a_batch_and_an_overlapping_result(equals, calls):
    """A repeated matrix is sent to each by itself; operands that C overlaps are read first."""
    a, b = whole(7, 90, 64), whole(64, 80)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    deep = whole(5, 200, 3000), whole(3000, 300)  # whose B does not fit the device at once
    np.testing.assert_array_equal(clgemm.matmul(*deep), deep[0] @ deep[1])
    square = whole(300, 300)
    expected = square @ square.T
    clgemm.matmul(square, square.T, out=square)
    np.testing.assert_array_equal(square, expected)
    assert calls == 3 * [True]


def test_each_element_is_copied_once(equals, calls, monkeypatch):
    """A piece of B that is in pinned memory goes to all devices."""
    pool, copied = staging(equals[0], TRANSFER), []
    copy = pool.copy
    monkeypatch.setattr(pool, "copy", lambda x, y: (copied.append(x.size), copy(x, y)))
    for other in equals[1:]:
        monkeypatch.setattr(staging(other, TRANSFER), "copy", None)
    np.testing.assert_array_equal(clgemm.matmul(a := whole(M, K), b := whole(K, N)), a @ b)
    assert sum(copied) == M * K + K * N + M * N
    assert calls == [True]


def test_the_bits_do_not_change(equals, calls):
    """From one product to the next, with real numbers."""
    a, b = (RNG.standard_normal(shape, np.float32) for shape in ((M, K), (K, N)))
    expected = clgemm.matmul(a, b)
    for _ in range(3):
        np.testing.assert_array_equal(clgemm.matmul(a, b), expected)
    assert calls == 4 * [True]


def test_what_cannot_be_made_together_is_spread(equals, every, calls, monkeypatch):
    """An updated C, operands that stay, unequal devices."""
    a, b, c = whole(M, K), whole(K, N), whole(M, N)
    expected = a @ b + c
    clgemm.sgemm(1.0, a, b, 1.0, c, overwrite_c=1)
    np.testing.assert_array_equal(c, expected)
    with clgemm.resident(b):
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert calls == []
    other = clgemm.Device(every[0].cl_device, transfer=replace(TRANSFER, chunks=3))
    monkeypatch.setattr(named, "by_process", (every[0], other))
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert True not in calls


def test_a_device_that_fails_is_found_and_the_others_make_the_product(
    equals, calls, monkeypatch, caplog
):
    """The product is made anew by tiles; what the device raises there is told."""
    enqueue = Workspace.enqueue

    def failing(space, *arguments, **keywords):
        if space.queue.context == equals[1].context:
            raise cl.RuntimeError("out of resources")
        time.sleep(0.01)  # so that the others do not make all tiles before it has its first
        return enqueue(space, *arguments, **keywords)

    a, b = whole(M, K), whole(K, N)
    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "enqueue", failing)
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert calls == [None]
    assert "out of resources" in caplog.text
    pools = [staging(device, TRANSFER) for device in equals]
    assert all(len(pool._free) == pool._made() for pool in pools)
    standing._failed.clear()
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert calls == [None, True]


def test_progress_is_told_and_may_stop_the_product(equals, calls, monkeypatch):
    """By the calling thread; what the callback raises comes out, and nothing is written later."""
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    a, b, told, c = whole(M, K), whole(K, N), [], np.zeros((M, N), np.float32)
    with clgemm.progress(lambda done, total: told.append((done, total))):
        clgemm.matmul(a, b, out=c)
    assert told[-1] == (M * N * K, M * N * K)
    assert len(told) > 2

    class Stop(BaseException):
        pass

    def stop(*_):
        raise Stop

    with clgemm.progress(stop), pytest.raises(Stop):
        clgemm.matmul(a, b, out=c)
    left = c.copy()
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    np.testing.assert_array_equal(c, left)
    assert calls == [True, None, True]


def test_threads_share_the_devices(equals, calls):
    """Several products at once, each of all devices."""
    a = whole(4, 300, 200)

    def product(i):
        return clgemm.matmul(a[i], a[i].T)

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(product, [0, 1, 2, 3] * 4))
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, a[i % 4] @ a[i % 4].T)
    assert calls == 16 * [True]
    assert not [t for t in threading.enumerate() if t.name.startswith("clgemm-device")]


@pytest.mark.parametrize("value", [1.0, np.inf])
def test_a_result_is_known_to_be_finite_only_if_it_is(value, equals, calls):
    """Each device tells of its rows."""
    a, b = whole(M, K), whole(K, N)
    a[-1] = value
    b[0] = 1.0
    with watched() as seen, np.errstate(invalid="ignore"):
        result = clgemm.matmul(a, b)
        np.testing.assert_array_equal(result, a @ b)
    assert calls == [True]
    assert (seen.elements == result.size) == np.isfinite(result).all()


def test_gpus_share_a_product_where_that_gains(every, monkeypatch):
    """Not if the host's copies take most of the time; B counts once."""
    for gpu in every:
        monkeypatch.setattr(type(gpu), "kind", property(lambda _: "GPU"))
    asked = []
    monkeypatch.setattr(together, "is_faster_spread", lambda *given: asked.append(given) or True)
    part = launch.Part(1.0, whole(M, K), whole(K, N), 0.0, whole(M, N), "strict")
    assert together.gains(part, every)
    assert together.gains(part._replace(beta=1.0), every)
    assert [given[-1] for given in asked] == [1, 4]
