"""Tests of host operands that are larger than the largest buffer of a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import buffers, integers, problems

import clgemm
from clgemm.core.problem import Problem
from clgemm.hardware.device import Device
from clgemm.planning import cut
from clgemm.planning.cut import parts_within, sizes_for
from clgemm.runtime.operands import layout_of

RNG = np.random.default_rng(21)
LARGEST_BYTES = 2048  # of a buffer over an operand


@pytest.fixture(scope="module")
def limited(device):
    """Return the device with a lower limit for buffers over operands."""
    if not device.shares_host_memory:
        pytest.skip("products go through memory of the device's own")
    limited = Device(device.cl_device)
    limited.limits = replace(device.limits, allocation_bytes=LARGEST_BYTES)
    limited.claims_addresses = False  # they have no size that could be seen here
    with clgemm.device(limited):
        yield limited


@pytest.fixture(scope="module")
def sizes_bytes():
    """Return the list of the sizes of buffers that are made over operands."""
    sizes = []
    original = cl.Buffer

    def spy(context, flags, size=0, hostbuf=None):
        if flags & cl.mem_flags.USE_HOST_PTR:
            sizes.append(hostbuf.nbytes)
        return original(context, flags, size, hostbuf=hostbuf)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cl, "Buffer", spy)
        yield sizes


@st.composite
def stacks(draw):
    """Draw operands and a result of any strides, with A and B broadcast to C's batch."""
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    m, n, k = (draw(st.integers(1, 40)) for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a, b = (
        tuple(1 if draw(st.booleans()) else x for x in batch)[draw(st.integers(0, len(batch))) :]
        for _ in range(2)
    )
    shapes = (*a, m, k), (*b, k, n), (*batch, m, n)
    return tuple(draw(buffers(integers(rng, shape))).view for shape in shapes)


@given(operands=stacks(), most=st.integers(24, 300), keep=st.booleans())
def test_parts_make_the_product_and_stay_within_the_limit(operands, most, keep):
    """The parts keep the limit, and in order their sums give A B, or A B + C."""
    a, b, c = operands
    expected = a @ b + c * keep
    a, b = (x[(None,) * (c.ndim - x.ndim)] for x in (a, b))
    for part in parts_within(*map(layout_of, (a, b, c)), most):
        own = a[part.a], b[part.b], c[part.c]
        for x in own:
            first, last = layout_of(x).extent
            assert last - first < most
        own[2][...] = own[0] @ own[1] + own[2] * (keep or not part.is_first)
    np.testing.assert_array_equal(c, expected)


def test_what_is_not_read_is_not_cut():
    """For a scaling, only the span of C is limited, because A and B are not read."""
    c = np.zeros((4, 5), np.float32)
    a = np.lib.stride_tricks.as_strided(c, (4, 3), (4 * 10**6, 4))
    b = np.lib.stride_tricks.as_strided(c, (3, 5), (4 * 10**6, 4))
    layouts = [layout_of(x) for x in (a, b, c)]
    assert len(list(parts_within(*layouts, 20, read=False))) == 1
    assert len(list(parts_within(*layouts, 20))) > 4


@settings(max_examples=15)  # of hundreds of launches each
@given(problem=problems())
def test_sgemm_is_exact_on_small_integers(problem, limited, sizes_bytes):
    """sgemm in parts is exact on small integers, and only elements of C change."""
    sizes_bytes.clear()
    expected = problem.expected()
    result = clgemm.sgemm(*problem.arguments)
    np.testing.assert_array_equal(result, expected)
    assert max(sizes_bytes, default=0) <= LARGEST_BYTES
    for operand in (problem.a, problem.b):
        assert operand.untouched()
    if problem.c is not None:
        assert problem.c.untouched_outside(problem.c.view)


@given(operands=stacks())
def test_matmul_of_stacks(operands, limited, sizes_bytes):
    """Batches are divided too, and `out` is written in place."""
    sizes_bytes.clear()
    a, b, c = operands
    expected = a @ b
    np.testing.assert_array_equal(clgemm.matmul(a, b), expected)
    if c.shape == expected.shape:  # not where C's stack is larger
        assert clgemm.matmul(a, b, out=c) is c
        np.testing.assert_array_equal(c, expected)
    assert max(sizes_bytes) <= LARGEST_BYTES


LARGE = integers(RNG, (70, 90))


@pytest.mark.parametrize(
    "a",
    [LARGE, LARGE.T, LARGE[::-1], LARGE[:, ::-1], LARGE[:, :8], LARGE.T[::-1, :8], LARGE[:, 5:6]],
    ids=["plain", "transposed", "rows reversed", "reversed", "eight columns", "rows", "one column"],
)
def test_views_of_a_matrix_beyond_the_largest_buffer(a, limited, sizes_bytes):
    """Views of a matrix beyond the largest buffer are multiplied in place, by their own span."""
    sizes_bytes.clear()
    for b in (integers(RNG, a.shape[1]), integers(RNG, (a.shape[1], 3))):
        np.testing.assert_array_equal(clgemm.dot(a, b), a @ b)
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
        out = np.full((a @ b).shape, np.nan, np.float32)
        assert clgemm.dot(a, b, out=out) is out
        np.testing.assert_array_equal(out, a @ b)
        product = a @ b
        b = b.reshape(len(b), -1)
        c = np.asfortranarray(integers(RNG, (a.shape[0], b.shape[1])))
        expected = 2 * product.reshape(c.shape) + 3 * c
        assert clgemm.sgemm(2.0, a, b, 3.0, c, overwrite_c=1) is c
        np.testing.assert_array_equal(c, expected)
    assert max(sizes_bytes) <= LARGEST_BYTES
    square = integers(RNG, (30, 30))
    whole = integers(RNG, (40, 200))
    expected, view = square @ whole[:30, ::6], whole[:30, ::6]
    clgemm.matmul(square, view, out=view)  # which overlaps it
    np.testing.assert_array_equal(view, expected)


def test_what_fits_is_one_product(limited, sizes_bytes):
    """A small view of a large matrix is one product, with one buffer for each operand."""
    for a in (LARGE[3:8, 4:10], LARGE[65:, 85:]):
        clgemm.matmul(a, integers(RNG, (a.shape[1], 4)))  # the first one of a device is checked
        sizes_bytes.clear()
        clgemm.matmul(a, integers(RNG, (a.shape[1], 4)))
        assert len(sizes_bytes) == 3


@given(operands=stacks(), most=st.integers(300, 3000), work=st.integers(1000, 20_000))
def test_parts_cover_the_product_once(operands, most, work, limited):
    """Cut for both reasons, every element of C gets each of its terms once."""
    a, b, c = operands
    problem = Problem(*map(layout_of, (a, b, c)), "float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limited, "limits", replace(limited.limits, allocation_bytes=4 * most))
        patch.setattr(cut, "part_sizes", lambda _, part: sizes_for(part.c.shape, part.k, work))
        found = list(cut.parts(limited, problem))
    expected, result = a @ b, np.full(c.shape, np.nan, np.float32)
    a, b = (x[(None,) * (c.ndim - x.ndim)] for x in (a, b))
    for part in found:
        before = 0 if part.is_first else result[part.c]
        result[part.c] = a[part.a] @ b[part.b] + before
    np.testing.assert_array_equal(result, np.broadcast_to(expected, c.shape))
