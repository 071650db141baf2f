"""Tests of operands as OpenCL buffers."""

from __future__ import annotations

import pyopencl as cl
import pytest
from staged import integers

import clgemm
from clgemm.runtime import memory

pytestmark = pytest.mark.usefixtures("nothing_stays")


def test_protected_memory_is_no_other_memory_to_a_kernel(device):
    """Intel's runtime would copy what it is told that kernels only read."""
    w = integers(60, 50)
    fixed = w[:]
    fixed.flags.writeable = False
    with clgemm.resident(w):
        for array in (w, w[::2, 1:]):
            buffer = memory._buffer_over(array, device.context)
            assert buffer.flags & cl.mem_flags.READ_WRITE
    assert memory._buffer_over(fixed, device.context).flags & cl.mem_flags.READ_ONLY
