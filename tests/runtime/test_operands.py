"""Tests of arrays as operands."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from whole_numbers import whole

import clgemm


def test_results_on_the_device_are_arrays_like_any(device):
    """Device results equal pyopencl's own arrays, each with its own memory and events."""
    queue = device.queue
    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
    a = cl_array.to_device(queue, whole(12, 9), allocator=pool)
    b = cl_array.to_device(queue, whole(9, 5))
    for order in ("C", "F"):
        plain = cl_array.empty(queue, (12, 5), np.float32, order, allocator=pool)
        one, other = (clgemm.sgemm(1.0, a, b, order=order) for _ in range(2))
        for result in (one, other):
            for name in ("shape", "strides", "dtype", "size", "nbytes", "offset", "allocator"):
                assert getattr(result, name) == getattr(plain, name), name
            assert result.queue == queue
            assert result.context == queue.context
            assert result.flags.f_contiguous == (order == "F")
            assert type(result.base_data) is type(plain.base_data)
        assert one.base_data != other.base_data
        assert one.events is not other.events
        np.testing.assert_array_equal((one + other).get(), 2 * (a.get() @ b.get()))
