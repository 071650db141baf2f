"""Tests of bound plans."""

from __future__ import annotations

import numpy as np
import pytest

import clgemm
from clgemm.hardware.choice import takes_addresses
from clgemm.runtime import workspace


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
