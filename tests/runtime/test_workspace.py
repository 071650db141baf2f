"""Tests of the workspace: what calls share, keep and wait for."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from whole_numbers import whole

import clgemm
from clgemm.runtime import workspace

RNG = np.random.default_rng(2014)


@pytest.mark.parametrize("small", [workspace.SMALL_SCRATCH_BYTES, -1])
@pytest.mark.parametrize("n", [5, 150])
def test_a_second_call_of_a_kind_creates_nothing_but_views(n, small, fresh, counts, monkeypatch):
    """A repeated call makes no program, kernel or scratch buffer.

    Where the device shares host memory, it makes a buffer over each operand. Large scratch memory
    returns to the pool.
    """
    monkeypatch.setattr(workspace, "SMALL_SCRATCH_BYTES", small)
    a, b, c = (np.ones((n, n), np.float32) for _ in range(3))
    clgemm.sgemm(1.0, a, b, 0.5, c, overwrite_c=1)
    assert counts["programs"] > 0
    assert counts["kernels"] >= counts["programs"]  # one for each launch
    pool = workspace.workspace(fresh.queue)._pool
    held, active = pool.managed_bytes, pool.active_blocks
    counts.update(dict.fromkeys(counts, 0))
    for other in (a, b.copy(), np.asfortranarray(a)[::-1][::-1].T):
        clgemm.sgemm(2.0, other, b, 0.0, c, overwrite_c=1)
    assert counts["programs"] == counts["kernels"] == 0
    assert counts["views"] == (9 if fresh.shares_host_memory else 0)
    assert pool.managed_bytes == held
    assert pool.active_blocks == (active if small > 0 else 0)


def test_small_scratch_memory_grows(fresh):
    """Small scratch memory is replaced by larger memory, which smaller products use too."""
    space = workspace.workspace(fresh.queue)
    for n in (150, 300, 150, 300):
        a, b = (RNG.integers(-4, 5, (n, n)).astype(np.float32) for _ in range(2))
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
        if n == 300:
            largest = dict(space._memory.scratch)
        assert space._pool.active_blocks == len(space._memory.scratch)
    assert space._memory.scratch == largest


def test_a_call_that_was_cut_off_leaves_its_memory_to_nobody(device, monkeypatch):
    """After an exception in a call, the next call has new shared memory, which is kept."""
    fresh = clgemm.Device(device.cl_device)
    a, b = (cl_array.to_device(fresh.queue, whole(150, 150)) for _ in range(2))
    expected = a.get() @ b.get()
    clgemm.matmul(a, b)
    space = workspace.workspace(fresh.queue)
    before = space._memory
    with monkeypatch.context() as patch:
        patch.setattr(workspace.Workspace, "_ended", None)
        with pytest.raises(TypeError):
            clgemm.matmul(a, b)
    assert space._memory is None
    np.testing.assert_array_equal(clgemm.matmul(a, b).get(), expected)
    after = space._memory
    assert after is not None
    assert after is not before
    np.testing.assert_array_equal(clgemm.matmul(a, b).get(), expected)
    assert space._memory is after


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
