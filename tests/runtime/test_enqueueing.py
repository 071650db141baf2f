"""Tests of kernels without an event, and of transfers."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from clgemm.runtime import enqueueing

SOURCE = "kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }"


@pytest.fixture
def kernel(device):
    return cl.Program(device.context, SOURCE).build().twice


@pytest.mark.skipif(not enqueueing.has_direct_calls(), reason="the loader's functions are hidden")
def test_a_kernel_runs_with_the_arguments_of_the_moment(device, kernel):
    """Each call runs the kernel once over all work-items."""
    queue = cl.CommandQueue(device.context)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    x, y = (cl.Buffer(device.context, flags, hostbuf=np.arange(24, dtype=np.int32)) for _ in "xy")
    enqueue = enqueueing.enqueuer(queue, kernel, 24, 8)
    for buffer, times in ((x, 1), (y, 3)):
        kernel.set_arg(0, buffer)
        assert [enqueue() for _ in range(times)] == [0] * times
        result = np.empty(24, np.int32)
        cl.enqueue_copy(queue, result, buffer)
        np.testing.assert_array_equal(result, np.arange(24) * 2**times)


@pytest.mark.skipif(not enqueueing.has_direct_calls(), reason="the loader's functions are hidden")
def test_a_failure_is_a_code(device, kernel):
    """A kernel without its argument is not enqueued."""
    assert enqueueing.enqueuer(cl.CommandQueue(device.context), kernel, 24, 8)() != 0


@pytest.mark.parametrize("is_direct", [False, True])
def test_transfers_there_and_back(device, monkeypatch, is_direct):
    """Each waits for what it was given, by OpenCL itself or by pyopencl."""
    if not is_direct:
        monkeypatch.setattr(enqueueing, "_write", None)
        monkeypatch.setattr(enqueueing, "_read", lambda *_: -5)
    queue = cl.CommandQueue(device.context)
    buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 64)
    sent, found, gate = np.arange(8, dtype=np.float32), np.zeros(8), cl.UserEvent(device.context)
    found = found.astype(np.float32)
    up = enqueueing.enqueue_transfer(queue, True, buffer, 32, sent, [gate])
    down = enqueueing.enqueue_transfer(queue, False, buffer, 32, found, [up])
    queue.flush()
    assert not found.any()
    gate.set_status(cl.command_execution_status.COMPLETE)
    down.wait()
    np.testing.assert_array_equal(found, sent)


def test_a_transfer_that_fails(device):
    """Its error names the command."""
    queue, buffer = (
        cl.CommandQueue(device.context),
        cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 64),
    )
    with pytest.raises(cl.Error, match="INVALID"):
        enqueueing.enqueue_transfer(queue, True, buffer, 60, np.zeros(8, np.float32), [])
