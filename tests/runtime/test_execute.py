"""Tests of the execution of a bound plan."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from staged import integers
from whole_numbers import whole

import clgemm
from clgemm.core.cache import forget_plans
from clgemm.runtime import execute
from clgemm.runtime.operands import address_of, span_of
from clgemm.transfer import multiply


def test_calls_on_an_out_of_order_queue_follow_each_other(planned, device):
    """On an out-of-order queue, each product of a chain waits for the one before."""
    flags = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not device.cl_device.queue_properties & flags:
        pytest.skip("the device has no such queues")
    queue = cl.CommandQueue(device.context, properties=flags)
    turn = np.roll(np.eye(40, dtype=np.float32), 1, axis=0)
    x = start = cl_array.to_device(queue, whole(40, 40))
    by = cl_array.to_device(queue, turn)
    for _ in range(20):
        x = clgemm.matmul(by, x)
    assert len(planned) == 1
    np.testing.assert_array_equal(x.get(), np.roll(start.get(), 20, axis=0))


def test_a_long_product_on_an_out_of_order_queue_follows_the_one_before(device, monkeypatch):
    """Both may use the same scratch memory."""
    flags = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if not (device.cl_device.queue_properties & flags and device.shares_host_memory):
        pytest.skip("the device has no such queues, or products are sent by others")
    monkeypatch.setattr(execute, "least_long_work", lambda _: 0)
    queue, gate = cl.CommandQueue(device.context, properties=flags), cl.UserEvent(device.context)
    a, b = whole(40, 40), whole(40, 40)
    x, y = (cl_array.to_device(queue, each) for each in (a, b))
    before = clgemm.sgemm(1.0, x, y, wait_for=[gate])
    opener = threading.Timer(0.2, gate.set_status, [cl.command_execution_status.COMPLETE])
    opener.start()
    result = clgemm.sgemm(1.0, a, b, queue=queue)
    is_open = gate.command_execution_status == cl.command_execution_status.COMPLETE
    opener.join()
    assert is_open
    np.testing.assert_array_equal(result, a @ b)
    np.testing.assert_array_equal(before.get(), a @ b)


def test_an_in_order_queue_waits_once_for_an_event(device, monkeypatch):
    """An in-order queue waits once for each event of other queues, and never for its own."""
    waited, enqueue = [], cl.enqueue_nd_range_kernel

    def recording(queue, kernel, size, group, offset=None, wait_for=None):
        waited.extend(wait_for or ())
        return enqueue(queue, kernel, size, group, offset, wait_for)

    queue = cl.CommandQueue(device.context)
    other = cl.CommandQueue(device.context)
    a, b = (cl_array.to_device(queue, whole(40, 40)) for _ in range(2))
    a.events[:] = b.events[:] = []
    out = cl_array.empty(queue, (40, 40), np.float32)
    gates = [cl.enqueue_marker(other) for _ in range(2)]
    other.flush()  # as OpenCL demands before another queue waits for them
    clgemm.matmul(a, b, out=out)
    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", recording)
    for gate in (gates[0], gates[0], gates[1]):
        a.events[:] = (gate,)
        clgemm.matmul(a, b, out=out)
        clgemm.matmul(out, b)
    assert waited == gates
    np.testing.assert_array_equal(out.get(), a.get() @ b.get())


def test_protected_memory_is_no_other_memory_to_a_kernel(device):
    """Intel's runtime would copy what it is told that kernels only read."""
    w = integers(60, 50)
    fixed = w[:]
    fixed.flags.writeable = False
    with clgemm.resident(w):
        for array in (w, w[::2, 1:]):
            buffer = execute._buffer_over(array, device.context)
            assert buffer.flags & cl.mem_flags.READ_WRITE
    assert execute._buffer_over(fixed, device.context).flags & cl.mem_flags.READ_ONLY


def _views(tmp_path):
    x = integers(60, 50)
    fixed = x.copy()
    fixed.flags.writeable = False
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    bare = np.frombuffer(x.tobytes(), np.float32).reshape(60, 50)
    return [x, x.T, x[::-1, 3:], x[::2, ::-2], fixed, fixed[1:].T, mapped, mapped[5:, ::3], bare]


def test_an_address_is_that_of_the_lowest_element(tmp_path):
    """It is, for views in any order, and for memory that nobody may write to."""
    for array in _views(tmp_path):
        address = execute._address_of(array).svm_ptr
        assert address == address_of(span_of(array))
        assert address <= address_of(array)


def test_operands_of_every_kind_are_multiplied_and_kept_by_nobody(device, tmp_path):
    """The result is right, read-only operands are as before, and a deleted array is gone."""
    views = _views(tmp_path)
    before = [view.copy() for view in views]
    for view in views:
        other = integers(view.shape[1], 7)
        out = np.full((view.shape[0] * 2, 14), 5, np.float32)
        clgemm.matmul(view, other, out=out[::2, ::2])
        expected = np.full_like(out, 5)
        expected[::2, ::2] = view.astype(np.float64) @ other
        np.testing.assert_array_equal(out, expected)
        gone = weakref.ref(other)
        del other
        assert gone() is None
    for view, former in zip(views, before, strict=True):
        np.testing.assert_array_equal(view, former)


def test_where_addresses_fail_buffers_serve(fresh, counts, monkeypatch):
    """Then there is a buffer over each array, and the result has the same bits."""
    a, b = integers(70, 50), integers(50, 60)
    first = clgemm.matmul(a, b)
    monkeypatch.setattr(multiply, "takes_addresses", lambda _: False)
    forget_plans()
    counts["views"] = 0
    np.testing.assert_array_equal(clgemm.matmul(a, b), first)
    assert counts["views"] == (3 if fresh.shares_host_memory else 0)
