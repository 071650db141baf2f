"""Tests of bound plans and of the memory that calls share."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from whole_numbers import whole

import clgemm
from clgemm.hardware.choice import takes_addresses
from clgemm.runtime import workspace

RNG = np.random.default_rng(2014)


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


@pytest.mark.parametrize("small", [workspace.SMALL_SCRATCH_BYTES, -1])
@pytest.mark.parametrize("n", [5, 150])
def test_a_second_call_of_a_kind_creates_nothing_but_views(n, small, fresh, counts, monkeypatch):
    """A repeated call makes no program, kernel or scratch buffer.

    Where the device shares host memory, it makes a buffer over each operand, unless kernels take
    addresses. Large scratch memory returns to the pool.
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
    makes_views = fresh.shares_host_memory and not takes_addresses(fresh)
    assert counts["views"] == 9 * makes_views
    assert pool.managed_bytes == held
    assert pool.active_blocks == (active if small > 0 else 0)
