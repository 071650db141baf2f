"""Tests of the rules that `dot`, `inner`, `matmul` and `tensordot` share."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from strategies import integers

import clgemm

RNG = np.random.default_rng(2014)
FLOATS = integers(RNG, (4, 4))


@pytest.mark.parametrize("axes", [3, ([2], [0]), ([0], [-3])])
def test_tensordot_over_axes_that_are_not_there(axes, device):
    """tensordot of device arrays over axes that do not exist raises an IndexError."""
    with pytest.raises(IndexError):
        clgemm.tensordot(FLOATS, FLOATS, axes)
    x = cl.array.to_device(device.queue, FLOATS)
    with pytest.raises(IndexError, match=r"not all axes of shapes \(4, 4\) and \(4, 4\)"):
        clgemm.tensordot(x, x, axes)


def test_out_on_the_device_must_fit(device):
    """An `out` on the device of another shape is refused, and the error names both shapes."""
    x = cl.array.to_device(device.queue, FLOATS)
    with pytest.raises(ValueError, match=r"out is float32 of shape \(4, 5\).* \(4, 4\)"):
        clgemm.matmul(x, x, out=cl.array.zeros(device.queue, (4, 5), np.float32))


def test_out_on_the_device_may_not_overlap_itself(device):
    """An `out` on the device with elements that share memory is refused."""
    x = cl.array.to_device(device.queue, FLOATS)
    out = cl.array.Array(device.queue, (4, 4), np.float32, strides=(4, 4), data=x.copy().base_data)
    for product in (clgemm.matmul, clgemm.dot):
        with pytest.raises(ValueError, match=r"elements of out overlap: .* strides \(4, 4\)"):
            product(x, x, out=out)


@pytest.mark.parametrize("function", ["dot", "multi_dot"])
def test_a_scalar_result_is_returned_as_numpy_returns_it(function, device):
    """A result without dimensions is returned as this version of NumPy returns it."""
    x, y = integers(RNG, (7,)), integers(RNG, (7,))
    ours, theirs = np.full((), 7, "f"), np.full((), 7, "f")
    calls = {
        "dot": (lambda out: clgemm.dot(x, y, out=out), lambda out: np.dot(x, y, out=out)),
        "multi_dot": (
            lambda out: clgemm.multi_dot([x, y], out=out),
            lambda out: np.linalg.multi_dot([x, y], out=out),
        ),
    }
    result, expected = (
        call(out) for call, out in zip(calls[function], (ours, theirs), strict=True)
    )
    assert type(result) is type(expected)
    assert result == expected == ours == theirs
