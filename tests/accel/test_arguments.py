"""Tests of np.matmul's arguments and of the layout of results."""

from __future__ import annotations

import numpy as np
import pytest
from accelerated import OTHER, RANDOM, SQUARE

import clgemm
from clgemm.accel import enabled, report


def test_results_are_laid_out_as_numpys(device):
    """Results have NumPy's strides and own their data, for operands of any layout."""
    for _ in range(50):
        batch = tuple(RANDOM.integers(2, 4, RANDOM.integers(0, 4)))
        operands = []
        for core in ((4, 5), (5, 6)):
            axes = RANDOM.permutation(len(batch) + 2)
            shape = (*batch, *core)
            x = RANDOM.integers(1, 9, [shape[i] for i in axes]).astype(np.float32)
            operands.append(x.transpose(np.argsort(axes)))
        plain = np.matmul(*operands)
        with enabled(threshold=0):
            found = np.matmul(*operands)
            assert report().offloaded == 1
        np.testing.assert_array_equal(found, plain)
        assert found.strides == plain.strides
        assert found.flags.owndata


STACK = RANDOM.integers(1, 9, (3, 5, 4)).astype(np.float32)


OWNED = {
    "operator": ("accel", lambda: SQUARE @ OTHER),
    "stacks": ("accel", lambda: np.matmul(STACK, STACK[0].T)),
    "np.dot": ("accel", lambda: np.dot(SQUARE, OTHER)),
    "np.dot of a vector": ("accel", lambda: np.dot(SQUARE, OTHER[0])),
    "np.dot of stacks": ("accel", lambda: np.dot(STACK, STACK[0].T)),
    "ndarray.dot": ("accel", lambda: SQUARE.dot(OTHER)),
    "np.inner": ("accel", lambda: np.inner(SQUARE, OTHER)),
    "np.linalg.multi_dot": ("accel", lambda: np.linalg.multi_dot([SQUARE, OTHER, SQUARE])),
    "np.tensordot": ("accel", lambda: np.tensordot(STACK, STACK[0].T, 1)),
    "dot": ("clgemm", lambda: clgemm.dot(SQUARE, OTHER)),
    "inner": ("clgemm", lambda: clgemm.inner(SQUARE, OTHER)),
    "matmul": ("clgemm", lambda: clgemm.matmul(STACK, STACK[0].T)),
    "multi_dot": ("clgemm", lambda: clgemm.multi_dot([SQUARE, OTHER, SQUARE])),
    "tensordot": ("clgemm", lambda: clgemm.tensordot(STACK, STACK[0].T, 1)),
}


@pytest.mark.parametrize("name", OWNED)
def test_results_own_their_data(name, device):
    """Results own their data where NumPy's do, so that they can be resized."""
    side, call = OWNED[name]
    plain = call()
    for _ in range(2):  # the second call is from the call cache
        if side == "accel":
            with enabled(threshold=0):
                found = call()
            assert found.flags.owndata == plain.flags.owndata
        else:
            found = call()
            assert found.flags.owndata == ("tensordot" not in name)
        if found.flags.owndata:
            found.resize((found.size + 1,), refcheck=False)
            assert found[-1] == 0
