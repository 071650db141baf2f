"""Tests of multi_dot against NumPy's, on every device."""

from __future__ import annotations

import itertools

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import integers

import clgemm

RNG = np.random.default_rng(2014)


@pytest.mark.parametrize(
    "shapes",
    [
        [(3, 4), (4, 5)],
        [(3, 4), (4, 5), (5, 6)],
        [(4,), (4, 5), (5, 6), (6,)],
        [(30, 2), (2, 40), (40, 3), (3, 20), (20, 1)],
        [(4,), (4,)],
    ],
)
def test_multi_dot(shapes, device):
    """Chains in any order, with vectors at the ends, are right on host and device."""
    chain = [RNG.integers(-2, 3, s).astype(np.float32) for s in shapes]
    expected = np.linalg.multi_dot(chain)
    result = clgemm.multi_dot(chain)
    assert type(result) is type(expected)
    np.testing.assert_array_equal(result, expected)
    on_device = clgemm.multi_dot([cl.array.to_device(device.queue, x) for x in chain])
    np.testing.assert_array_equal(on_device.get(), expected)
    if expected.ndim == 2:
        out = np.full(expected.shape, np.nan, np.float32)
        assert clgemm.multi_dot(chain, out=out) is out
        np.testing.assert_array_equal(out, expected)


@st.composite
def chains(draw):
    """Draw a chain, perhaps with vectors or a wrong size, and an `out` of some shape."""
    count = draw(st.integers(2, 5))
    sizes = draw(st.lists(st.integers(0, 5), min_size=count + 1, max_size=count + 1))
    shapes = [list(pair) for pair in itertools.pairwise(sizes)]
    if draw(st.booleans()):
        del shapes[0][0]
    if draw(st.booleans()):
        del shapes[-1][-1]
    if draw(st.integers(0, 9)) == 0:
        shapes[draw(st.integers(0, count - 1))][0] += 1
    m, n = sizes[0], sizes[-1]
    at_hand = [None, (m, n), (m,), (n,), (m, 1), (1, n), (1, 1), (), (n, m)]
    return [tuple(shape) for shape in shapes], draw(st.sampled_from(at_hand))


def outcome(function, arrays, out):
    """Return what a function returns, or the exception that it raises."""
    try:
        return function(arrays, out=out)
    except Exception as error:
        return error


@given(chain=chains(), order=st.sampled_from("CF"))
def test_multi_dot_takes_and_refuses_what_numpy_does(chain, order, device):
    """Any chain with any `out` gives NumPy's result, type and shape, or NumPy's error."""
    shapes, shape_out = chain
    arrays = [integers(RNG, shape) for shape in shapes]
    outs = [None if shape_out is None else np.full(shape_out, 7, "f", order) for _ in range(2)]
    expected = outcome(np.linalg.multi_dot, arrays, outs[0])
    result = outcome(clgemm.multi_dot, arrays, outs[1])
    assert type(result) is type(expected)
    if isinstance(expected, Exception):
        assert str(result) == str(expected)
    else:
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result, expected)
        assert (result is outs[1]) == (expected is outs[0])
        assert np.may_share_memory(result, outs[1]) == np.may_share_memory(expected, outs[0])
    if shape_out is not None:
        np.testing.assert_array_equal(*outs)


@pytest.mark.parametrize("first", [(4,), (3, 4)])
@pytest.mark.parametrize("last", [(6,), (6, 2)])
def test_multi_dot_of_device_arrays_takes_both_shapes_of_out(first, last, device):
    """For a vector at an end of a chain on the device, `out` may be a vector or a matrix."""
    chain = [integers(RNG, shape) for shape in (first, (4, 5), (5, 6), last)]
    expected = np.linalg.multi_dot(chain)
    matrix = (first[0] if len(first) == 2 else 1, last[1] if len(last) == 2 else 1)
    on_device = [cl.array.to_device(device.queue, x) for x in chain]
    for shape in {matrix, expected.shape} - {()}:
        out = cl.array.zeros(device.queue, shape, np.float32)
        result = clgemm.multi_dot(on_device, out=out)
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result.get(), expected)
        np.testing.assert_array_equal(out.get().reshape(expected.shape), expected)


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_chains_of_other_dtypes_on_the_device(device, dtype):
    """Device arrays of one dtype are multiplied in it."""
    if dtype == np.float64 and not device.cl_device.double_fp_config:
        pytest.skip("it has no float64")
    chain = [RNG.integers(-2, 3, shape).astype(dtype) for shape in ((5, 6), (6, 7), (7, 4))]
    found = clgemm.multi_dot([cl.array.to_device(device.queue, x) for x in chain])
    np.testing.assert_array_equal(found.get(), np.linalg.multi_dot(chain))
