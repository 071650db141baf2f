"""Tests of small products that are sent at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from staged import TINY, integers

import clgemm
from clgemm.hardware.device import Device
from clgemm.runtime import finite
from clgemm.runtime.transfer import at_once
from clgemm.runtime.transfer.at_once import fits_at_once
from clgemm.runtime.transfer.pipeline import TiledProduct, multiply_through
from clgemm.runtime.transfer.staging import staging
from clgemm.runtime.workspace import workspace

SMALL = replace(TINY, at_once_bytes=30_000, chunk_bytes=16_384)


@pytest.fixture(scope="module")
def own(device):
    """Return a device as if it had memory of its own, without products before."""
    return Device(device.cl_device, transfer=SMALL)


@pytest.fixture
def sent(own, monkeypatch):
    """Choose the device; return the list of (is_up, first byte, bytes) of its transfers at once."""
    found, enqueue = [], at_once.enqueue_transfer

    def noted(queue, is_up, buffer, offset_bytes, host, before):
        found.append((is_up, offset_bytes, host.nbytes))
        return enqueue(queue, is_up, buffer, offset_bytes, host, before)

    monkeypatch.setattr(at_once, "enqueue_transfer", noted)
    with clgemm.device(own):
        yield found


def test_what_fits():
    """All arrays together, each in a chunk, without what is repeated."""
    a, b, c = integers(64, 32), integers(32, 64), integers(64, 64)
    assert fits_at_once(replace(SMALL, at_once_bytes=32_768), a, b, c)
    assert not fits_at_once(replace(SMALL, at_once_bytes=32_767), a, b, c)
    assert not fits_at_once(replace(SMALL, at_once_bytes=32_768, chunk_bytes=16_380), a, b, c)
    assert not fits_at_once(replace(SMALL, at_once_bytes=32_768, memory_bytes=32_767), a, b, c)
    assert fits_at_once(SMALL, np.broadcast_to(a, (50, 64, 32)), b[:, :9], c[:, :9])


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
    """Such a product has pieces, which tell the rest of it."""
    a, b = integers(20, 30), integers(30, 25)
    with clgemm.resident(a):
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert sent == []


@pytest.mark.parametrize("value", [1.0, np.inf, np.nan])
def test_it_tells_what_is_finite(value, sent):
    """To those who ask, after the product."""
    a, b = integers(20, 30), integers(30, 25)
    a[3, 5] = value
    with finite.watched() as watch:
        clgemm.matmul(a, b)
    assert sent
    assert watch.elements == (500 if np.isfinite(value) else 0)


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
    pool = staging(own, own.transfer)
    assert len(pool._free) == pool._made()
    np.testing.assert_array_equal(clgemm.matmul(a, b, out=out), a @ b)


def test_it_works_on_a_queue_that_is_out_of_order(own, sent):
    """Each command waits for the one before."""
    flags = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(own.context, properties=flags)
    product = TiledProduct(1.0, 1.0, "strict", own, workspace(queue), ())
    a, b, c = integers(20, 30), integers(30, 25), integers(20, 25)
    expected = c.copy()
    for _ in range(3):
        multiply_through(staging(own, own.transfer), product, a, b, c)
        expected += a @ b
        np.testing.assert_array_equal(c, expected)
    assert len(sent) == 9


def test_a_repeated_call_plans_nothing(sent, planned):
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
    assert len(sent) == 3 * (2 + 3 + 2 + 2 + 2)


def test_a_repeated_call_uses_what_is_resident(sent):
    """It does not send that."""
    a, b = integers(20, 30), integers(30, 25)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    del sent[:]
    with clgemm.resident(a):
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert sent == []
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert len(sent) == 2


def test_arrays_that_repeat_elements_are_sent_right_each_time(sent):
    """Their order in memory is not one."""
    a, b = integers(6, 20), integers(20, 25)
    for x in (np.broadcast_to(a, (4, 6, 20)), np.lib.stride_tricks.as_strided(a, (9, 20), (4, 4))):
        for _ in range(3):
            np.testing.assert_array_equal(clgemm.matmul(x, b), x @ b)
    assert len(sent) == 12
