"""Tests of schedules: which tile is computed when, what is loaded, and the limits of transfers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.transfer import (
    GRAIN,
    SLOTS,
    TransferConfig,
    _rounded,
    count_pieces,
    make_stream,
    pieces,
    ramped,
    square_order,
)

BATCHES = st.lists(st.integers(1, 3), max_size=2).map(tuple)


def config(memory_bytes=2**30, tile_bytes=1, tiles=4):
    """Return a config that cuts everything that can be cut."""
    return TransferConfig(
        memory_bytes=memory_bytes,
        chunk_bytes=4096,
        chunks=2,
        pool_chunks=8,
        threads=1,
        threaded_bytes=0,
        tile_bytes=tile_bytes,
        tiles=tiles,
        rows=16,
    )


@st.composite
def streams(draw):
    """Draw a product's sizes and limits, and return them with its schedule."""
    batch = draw(BATCHES)
    sizes = draw(st.integers(1, 40)), draw(st.integers(1, 12)), draw(st.integers(0, 40))
    repeated = tuple(tuple(draw(st.booleans()) for _ in batch) for _ in "ab")
    keep = draw(st.booleans())
    memory_bytes = 4 * draw(st.sampled_from([300, 3000, 10**9]))
    allocation_bytes = draw(st.sampled_from([100, 1000, 10**9]))
    own = config(memory_bytes, draw(st.sampled_from([1, 2000])), draw(st.integers(1, 9)))
    own = replace(
        own,
        rows=draw(st.sampled_from([1, 16])),
        ramp=draw(st.integers(0, 2)),
        square=draw(st.sampled_from([0, 0, 2, 5])),
    )
    kept = draw(st.booleans()), draw(st.booleans())
    stream = make_stream(batch, sizes, repeated, keep, own, allocation_bytes, kept=kept)
    return batch, sizes, repeated, keep, own, allocation_bytes, stream, (*kept, False)


def count(block):
    """Return the number of elements of a block."""
    return math.prod(s.stop - s.start for s in block)


@given(streams())
def test_tiles_make_every_element_of_the_result_once_and_in_order_of_k(drawn):
    """The tiles of each element of C cover k once and in order; the first and last are marked."""
    batch, (m, n, k), repeated, *_, stream, _ = drawn
    depth = np.zeros((*batch, m, n), int)
    finished = np.zeros((*batch, m, n), bool)
    for tile in stream.tiles:
        a, b, c = tile.blocks
        p = a[-1]
        assert (a[-2], b[-2:]) == (c[-2], (p, c[-1]))
        for operand, own in zip(repeated, (a, b), strict=True):
            for one, mine, result in zip(operand, own[:-2], c[:-2], strict=True):
                assert mine == (slice(0, 1) if one else result)
        assert (depth[c] == p.start).all()
        assert not finished[c].any()
        assert tile.first == (p.start == 0)
        depth[c] = p.stop
        finished[c] = tile.last
    assert (depth == k).all()
    assert finished.all()


@given(streams())
def test_slots_hold_what_tiles_need(drawn):
    """Each slot holds the block that a tile needs, and C stays until it is finished.

    An operand that the device keeps has no slots and is not loaded.
    """
    _, (_, _, k), _, keep, *_, stream, kept = drawn
    held = [dict.fromkeys(range(slots)) for slots in stream.slots]
    for tile in stream.tiles:
        for operand in tile.loads:
            held[operand][tile.slots[operand]] = tile.blocks[operand]
        assert (2 in tile.loads) == (keep and tile.first)
        if tile.first:
            held[2][tile.slots[2]] = tile.blocks[2]
        for operand in range(3) if k else (2,):
            if kept[operand]:
                assert operand not in tile.loads
                continue
            assert held[operand][tile.slots[operand]] == tile.blocks[operand]
    assert not any(slots for slots, stays in zip(stream.slots, kept, strict=True) if stays)
    if not k:
        assert not any({0, 1} & set(tile.loads) for tile in stream.tiles)


@given(streams())
def test_blocks_keep_to_the_devices_memory(drawn):
    """All slots together fit the memory limit, and each buffer fits the allocation limit."""
    *_, own, allocation_bytes, stream, kept = drawn
    for tile in stream.tiles:
        for operand in range(3):
            if kept[operand]:
                assert stream.elements[operand] == 0
                continue
            assert count(tile.blocks[operand]) <= stream.elements[operand]
    assert 4 * max(stream.elements) <= allocation_bytes
    held = zip(stream.elements, stream.slots, strict=True)
    assert 4 * sum(size * slots for size, slots in held) <= own.memory_bytes
    if not own.square:
        assert 4 * SLOTS * sum(stream.elements) <= own.memory_bytes
        assert max(stream.slots) <= SLOTS
    assert stream.slots[2] <= SLOTS


def test_what_fits_is_cut_for_overlap_only():
    """A product that fits loads B once and whole, and A in a few tiles of rows."""
    own = config(tile_bytes=2**20, tiles=8)
    stream = make_stream((), (4096, 1024, 2048), ((), ()), False, own, 2**30)
    assert [tile.blocks[0] for tile in stream.tiles] == [
        (slice(row, row + 512), slice(0, 2048)) for row in range(0, 4096, 512)
    ]
    assert [tile.loads for tile in stream.tiles] == [(0, 1)] + [(0,)] * 7


@pytest.mark.parametrize(
    ("batch", "sizes"),
    [
        ((), (4 * GRAIN + 1, 300, 200)),  # by rows
        ((), (4 * GRAIN - 1, 300, 200)),
        ((), (101, 300, 200)),
        ((), (16, 16, 4 * GRAIN + 1)),  # few rows, along k
        ((5,), (30, 20, 10)),  # by matrices
    ],
)
def test_what_fits_has_no_more_tiles_than_asked_for(batch, sizes):
    """A side or a batch that does not divide by the number of tiles has fewer, longer ones."""
    none = (False,) * len(batch)
    stream = make_stream(batch, sizes, (none, none), False, config(tiles=4), 2**30)
    assert 1 < len(stream.tiles) <= 4


def test_square_tiles_bring_in_each_block_once():
    """A and B come in by turns, each block once, and the first tile needs one of each."""
    own = replace(config(tiles=8), square=4)
    stream = make_stream((), (4096, 2048, 1024), ((), ()), False, own, 2**30)
    assert stream.slots == (4, 4, SLOTS)
    assert len(stream.tiles) == 16
    loads = [operand for tile in stream.tiles for operand in tile.loads]
    assert loads == [0, 1] * 4
    assert stream.tiles[0].blocks[2] == (slice(0, 1024), slice(0, 512))


def test_square_tiles_are_for_large_operands():
    """Not where B comes in soon."""
    sizes, own = (2048, 1024, 512), replace(config(tiles=8), square=4)
    plans = [
        make_stream((), sizes, ((), ()), False, replace(own, square_bytes=least), 2**30)
        for least in (4 * 1024 * 512, 4 * 1024 * 512 + 1)
    ]
    assert len({str(tile.blocks[1]) for tile in plans[0].tiles}) > 1
    assert len({str(tile.blocks[1]) for tile in plans[1].tiles}) == 1


def test_square_tiles_need_room_for_both_operands():
    """Where A and B do not fit the device together, tiles are rows."""
    small = replace(config(memory_bytes=2**24, tiles=8), square=4)
    plain = replace(small, square=0)
    arguments = (), (4096, 2048, 1024), ((), ()), False
    assert make_stream(*arguments, small, 2**30) == make_stream(*arguments, plain, 2**30)


def test_square_tiles_may_take_all_memory_that_there_is():
    """They are used where they need exactly the limits, and not where they need a byte more."""
    sizes, own = (4096, 512, 1024), replace(config(tiles=8), square=2)
    stream = make_stream((), sizes, ((), ()), False, own, 2**30)
    largest = 4 * max(stream.elements)
    held = 4 * sum(map(math.prod, zip(stream.elements, stream.slots, strict=True)))
    for less in (0, 1):
        for memory_bytes, allocation_bytes in ((held - less, 2**30), (2**30, largest - less)):
            tight = replace(own, memory_bytes=memory_bytes)
            same = make_stream((), sizes, ((), ()), False, tight, allocation_bytes) == stream
            assert same == (less == 0), (memory_bytes, allocation_bytes)


@given(
    n=st.integers(1, 900),
    k=st.integers(1, 300),
    blocks=st.sampled_from([0, 2, 3, 8]),
    triangles=st.sampled_from(["", "upper", "lower"]),
    memory_bytes=st.sampled_from([2**18, 2**20, 2**30]),
    item_bytes=st.sampled_from([4, 8]),
)
def test_the_tiles_of_a_triangle_take_each_block_of_a_once(
    n, k, blocks, triangles, memory_bytes, item_bytes
):
    """It serves for A and B. Tiles and their mirror images cover C; slots have room for both."""
    own = replace(config(memory_bytes), triangle=blocks, tile_bytes=2**14)
    stream = make_stream(
        *((), (n, n, k), ((), ()), False, own, 2**30, n, (False, False), item_bytes, False),
        *(True, triangles),
    )
    if not stream.is_sent_once:  # it does not fit
        assert item_bytes * n * k > memory_bytes // 6 or item_bytes * n * n > memory_bytes // 6
        return
    held, covered = {}, np.zeros((n, n), int)
    assert stream.slots[1] == 0
    assert len(stream.tiles) == 1 or item_bytes == 4
    for tile in stream.tiles:
        (a, depth), (_, b), (rows, columns) = tile.blocks
        assert (a, b, depth) == (rows, columns, slice(0, k))
        assert tile.first
        assert tile.last
        for operand, block in enumerate((a, b)):
            slot = tile.slots[operand]
            if operand in tile.loads:
                assert slot not in held
                held[slot] = block
            assert held[slot] == block
            assert (block.stop - block.start) * k <= stream.elements[0]
        covered[rows, columns] += 1
        if rows != columns:
            assert (rows.start > columns.start) == (triangles != "upper")
            covered[columns, rows] += 1
            size = (rows.stop - rows.start) * (columns.stop - columns.start)
            assert 2 * size <= stream.elements[2]
    assert (covered == 1).all()
    assert len(held) == stream.slots[0]


@given(st.integers(1, 10**6))
def test_sides_of_tiles_are_rounded_up_to_whole_grains(size):
    """A rounded side is no shorter than asked for, so that there are no more tiles."""
    rounded = _rounded(size)
    assert size <= rounded < 2 * size
    assert rounded == size or rounded % GRAIN == 0


def test_a_ramp_makes_the_first_and_last_tiles_short():
    """Rows of the first and last tiles are halved, but not below the fewest."""
    own = replace(config(tile_bytes=2**20, tiles=4), ramp=2, rows=256)
    stream = make_stream((), (4096, 1024, 2048), ((), ()), False, own, 2**30)
    rows = [tile.blocks[2][0].stop - tile.blocks[2][0].start for tile in stream.tiles]
    assert rows == [256, 512, 1024, 1024, 512, 512, 256]


def test_few_rows_are_cut_along_k():
    """A product of few rows is cut along k into tiles that share one block of C."""
    own = config(tile_bytes=2**10, tiles=8)
    stream = make_stream((), (16, 16, 4096), ((), ()), False, own, 2**30)
    assert [tile.loads for tile in stream.tiles] == [(0, 1)] * 8
    assert stream.slots == (SLOTS, SLOTS, 1)


def test_an_operand_that_stays_is_not_cut_for_its_transfer():
    """A few rows times a large matrix that stays are one tile; what is sent alone is cut."""
    own, sizes = config(tile_bytes=2**10, tiles=8), (16, 16, 4096)
    stream = make_stream((), sizes, ((), ()), False, own, 2**30, kept=(True, True))
    assert [tile.loads for tile in stream.tiles] == [()]
    stream = make_stream((), sizes, ((), ()), False, own, 2**30, kept=(True, False))
    assert [tile.loads for tile in stream.tiles] == [(1,)] * 8


def test_a_shared_matrix_comes_once():
    """A matrix that a whole batch shares is loaded once, with the first tile."""
    stream = make_stream((100,), (64, 64, 64), ((False,), (True,)), False, config(), 2**30)
    assert [tile.loads for tile in stream.tiles] == [(0, 1), (0,), (0,), (0,)]


@given(shape=st.lists(st.integers(0, 7), max_size=4).map(tuple), most=st.integers(1, 50))
def test_pieces_are_runs_of_memory(shape, most):
    """Pieces are contiguous in memory and together make the whole array."""
    array = np.arange(math.prod(shape)).reshape(shape)
    parts = list(pieces(shape, most))
    assert count_pieces(shape, most) == len(parts)
    assert all(array[block].size == size <= most for block, _, size in parts)
    assert all(array[block].ravel()[0] == first for block, first, _ in parts)
    joined = np.concatenate([array[block].ravel() for block, _, _ in parts] or [array.ravel()])
    np.testing.assert_array_equal(joined, array.ravel())


@given(streams(), st.integers(1, 40))
def test_tile_rows_do_not_depend_on_the_product(drawn, rows):
    """With `tile_rows`, the rows and depth of tiles are the same for any number of rows of C."""
    _, (m, n, k), _, keep, own, allocation_bytes, *_ = drawn

    def tiles_of(count):
        repeated = ((), ())
        sizes = (count, n, k)
        return make_stream((), sizes, repeated, keep, own, allocation_bytes, rows).tiles

    def depths(tiles):
        return {(tile.blocks[0][-1].start, tile.blocks[0][-1].stop) for tile in tiles}

    several, one = tiles_of(3 * rows + m), tiles_of(rows)
    assert depths(several) == depths(one)
    starts = {tile.blocks[2][-2].start for tile in several}
    step = min(starts - {0})
    assert all(start % step == 0 for start in starts)
    assert step <= rows


@given(
    size=st.integers(0, 5000),
    step=st.integers(1, 800),
    halvings=st.integers(0, 4),
    least=st.integers(1, 300),
)
def test_ramped_slices_cover_the_axis(size, step, halvings, least):
    """Slices follow one another, none is longer than the step, and the ends are not the longest."""
    found = ramped(size, step, halvings, 16, least)
    assert [s.start for s in found] == [0, *(s.stop for s in found[:-1])]
    assert found[-1].stop == size
    assert max(s.stop - s.start for s in found) <= step
    if size:
        assert all(s.stop > s.start for s in found)


def test_a_short_axis_keeps_the_shortest_tiles():
    """Where a whole ramp does not fit, its longer tiles are left out."""
    found = ramped(1536, 1024, 2, 128, 256)
    assert [s.stop - s.start for s in found] == [256, 1024, 256]


def test_square_order():
    """Each block of A and B comes once, and every block of C that it allows follows at once."""
    assert list(square_order(2, 3)) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    for rows, columns in ((1, 1), (4, 4), (5, 2), (1, 7)):
        order = list(square_order(rows, columns))
        assert sorted(order) == [(i, j) for i in range(rows) for j in range(columns)]
        steps = [max(i, j) for i, j in order]
        assert steps == sorted(steps)


DEFAULT = TransferConfig(memory_bytes=2**34, threads=8)


def test_two_calls_find_chunks_at_the_same_time():
    """Each holds as many as a call may in each direction; otherwise one would wait for itself."""
    assert DEFAULT.pool_chunks >= 2 * DEFAULT.chunks


def test_what_is_sent_at_once_fits_the_chunks_of_a_call():
    """Both operands are in chunks together: two of three equal arrays."""
    assert 2 / 3 * DEFAULT.at_once_bytes <= DEFAULT.chunks * DEFAULT.chunk_bytes
    assert DEFAULT.threaded_bytes < DEFAULT.at_once_bytes
