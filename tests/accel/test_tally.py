"""Tests of the counts of products."""

from __future__ import annotations

import numpy as np
from accelerated import A, B

from clgemm.accel import enabled, report


def test_a_profile_counts_everything(device):
    """A profile counts and times small products and other dtypes, too, by function."""
    with enabled(threshold=10**9, profile=True):
        A @ B, np.dot(A, B), np.inner(A, A), A.dot(B)
        A.astype(float) @ B.astype(float), np.dot(np.eye(3), np.eye(3)), np.arange(3) @ np.arange(3)
    counted = {(row.function, row.reason): row.calls for row in report().rows}
    assert counted[("matmul", "dtype")] == 2
    assert counted[("dot", "dtype")] == 1
    for name in ("matmul", "dot", "inner", "ndarray.dot"):
        assert counted[(name, "size")] == 1
    assert all(row.seconds is not None for row in report().rows)
