"""Tests of how the arrays of a small product travel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from staged import TINY, integers

from clgemm.runtime.transfer.route import STEP, copies, make_route

CALLER = replace(TINY, threaded_bytes=2**30)


@st.composite
def arrays(draw):
    """A float32 array of up to four axes, in any order of memory, with any steps."""
    shape = draw(st.lists(st.integers(1, 9), min_size=2, max_size=4))
    steps = [draw(st.sampled_from([1, 2, -1, -3])) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    padded = [shape[axis] * abs(steps[axis]) for axis in order]
    whole = integers(*padded).transpose(np.argsort(order))
    view = whole[tuple(slice(None, None, step) for step in steps)]
    assert view.shape == tuple(shape)
    return view


def travel(route, transfers, views, chunks, buffers, is_up):
    """Do what a call does, with arrays for chunks and for memory of the device."""
    moves = list(copies(transfers, views, chunks, is_up))
    assert [copy.number for copy in moves if copy.is_last] == list(range(len(transfers)))
    if is_up:
        for copy in moves:
            np.copyto(copy.target, copy.source)
    for number, each in enumerate(transfers):
        buffer = buffers[int(is_up and number < route.operands)]
        device = buffer[each.start : each.start + each.size]
        assert device.size == each.size
        chunk = chunks[each.chunk][each.first : each.first + each.size]
        assert chunk.size == each.size
        np.copyto(*((device, chunk) if is_up else (chunk, device)))
    if not is_up:
        for copy in moves:
            np.copyto(copy.target, copy.source)


@settings(max_examples=200)
@given(
    a=arrays(),
    b=arrays(),
    c=arrays(),
    reads_c=st.booleans(),
    chunk=st.sampled_from([64, 256, 4096]),
    threaded=st.sampled_from([0, 2**30]),
    is_nested=st.booleans(),
    flags=st.integers(0, 16),
)
def test_every_element_arrives_where_its_layout_says(
    a, b, c, reads_c, chunk, threaded, is_nested, flags
):
    """On the device, and C's and flags on the host again; nothing else is written."""
    config = replace(TINY, chunk_bytes=chunk, threaded_bytes=threaded)
    route = make_route((a, b, c), reads_c, config, is_nested, flags)
    assert route.is_threaded == (not threaded and not is_nested)
    views = [x.transpose(axes) for x, axes in zip((a, b, c), route.axes, strict=True)]
    chunks = np.full((route.chunks, chunk // 4), np.nan, np.float32)
    operands, result = (np.full(size, np.nan, np.float32) for size in route.sizes)
    travel(route, route.up, views, chunks, (result, operands), True)
    for start, view in zip(route.starts, views, strict=False):
        assert start % STEP == 0
        np.testing.assert_array_equal(operands[start : start + view.size], view.ravel())
    if reads_c:
        np.testing.assert_array_equal(result[: c.size], views[2].ravel())
    else:
        assert np.isnan(result).all()
    result[:] = np.arange(result.size)
    views.append(np.zeros(flags, np.float32))
    travel(route, route.down, views, chunks, (result, operands), False)
    np.testing.assert_array_equal(views[2].ravel(), result[: c.size])
    np.testing.assert_array_equal(views[3], result[result.size - flags :])
    for each in route.up + route.down:
        assert len(each.parts) == 1 or not route.is_threaded


def test_the_caller_sends_a_chunk_at_a_time():
    """What is in it goes in one transfer, unless it goes to two buffers."""
    a, b, c = integers(10, 20), integers(20, 30), integers(10, 30)
    route = make_route((a, b, c), True, CALLER, False)
    assert [(each.chunk, each.first, each.size) for each in route.up] == [(0, 0, 808), (1, 0, 300)]
    assert (route.operands, route.chunks) == (1, 2)
    route = make_route((a, b, c), True, replace(CALLER, chunk_bytes=2**14), False)
    assert [(each.chunk, each.first, each.size) for each in route.up] == [
        (0, 0, 808),
        (0, 816, 300),
    ]
    assert (route.operands, route.chunks) == (1, 1)


def test_threads_get_pieces_of_a_share_of_the_product():
    """They are no smaller than copies that pay, and no larger than a chunk."""
    cases = (1200, 2**24, 6), (300, 2**24, 1), (1200, 2**19, 12), (3000, 2**26, 6)
    for n, chunk_bytes, pieces in cases:
        x = np.empty((n, n), np.float32)
        config = replace(TINY, chunk_bytes=chunk_bytes)
        route = make_route((x, x, x), False, config, False)
        assert [len(route.up), len(route.down)] == [2 * pieces, pieces]


@pytest.mark.parametrize("is_threaded", [False, True])
def test_routes_of_equal_arrays_are_made_once(is_threaded):
    """They are looked up by shapes and strides."""
    config = replace(TINY, threaded_bytes=0 if is_threaded else 2**30)
    first, second = (
        make_route([integers(9, 9) for _ in range(3)], False, config, False) for _ in range(2)
    )
    assert first is second
