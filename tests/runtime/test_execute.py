"""Tests of the execution of a bound plan."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from whole_numbers import whole

import clgemm


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
    other.flush()  # as OpenCL demands before another queue waits for them
    clgemm.matmul(a, b, out=out)
    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", recording)
    for gate in (gates[0], gates[0], gates[1]):
        a.events[:] = (gate,)
        clgemm.matmul(a, b, out=out)
        clgemm.matmul(out, b)
    assert waited == gates
    np.testing.assert_array_equal(out.get(), a.get() @ b.get())
