"""Tests of the workspace: what calls share, keep and wait for."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from whole_numbers import whole

import clgemm
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
