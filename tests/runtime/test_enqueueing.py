"""Tests of kernels that are enqueued without an event."""

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
