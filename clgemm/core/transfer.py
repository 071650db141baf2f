"""Schedules for products of host arrays: which tile is computed when, and what is loaded. Pure.

A tile is a product that the device makes in one piece: some matrices of a batch, or some rows,
columns and depth of one product. While the device computes a tile, the operands of the next tile
come in and the result of the previous one goes out. Matrices larger than the device's memory are
cut into more tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple, TypeAlias

from clgemm.core.plan import ceil_div
from clgemm.core.problem import FLOAT_BYTES, Triangles

# Blocks of each operand and of the result that the device holds: one in use, one that comes in or
# goes out, one in between.
SLOTS = 3
# Sides of blocks are multiples of this, so that they are whole tiles of the kernels.
GRAIN = 128

# The part of a batch that a tile takes: a slice for each axis of the batch, rows and columns.
Block: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True)
class TransferConfig:
    """The limits of transfers between host arrays and a device with memory of its own.

    A product that fits the device is cut into tiles only so that its transfers overlap.
    `tile_bytes`, `tiles`, `rows`, `ramp` and `square` hold for such tiles.
    """

    memory_bytes: int  # device memory that the operands and the result of one call may take
    threads: int  # threads of one call that copy
    # Bytes from which on a call uses those threads; for fewer, the calling thread copies.
    threaded_bytes: int = 2**22
    # The largest chunk: pinned memory that one thread fills or empties for one transfer.
    chunk_bytes: int = 2**22
    chunks: int = 16  # the most chunks that one call may hold in each direction
    # The most chunks that all calls together may hold, at least twice `chunks`.
    pool_chunks: int = 64
    tile_bytes: int = 2**23  # the fewest bytes that a tile moves
    tiles: int = 4  # the most tiles of a product
    rows: int = 256  # the fewest rows of a tile: fewer would leave parts of the device idle
    # How often the rows of the first and last tiles are halved, so that they are done sooner.
    ramp: int = 0
    # Blocks per side of C, which are computed as A and B come in by turns. 0 for tiles of rows, for
    # which B comes in whole before the first tile.
    square: int = 0
    square_bytes: int = 0  # the fewest bytes of B for which `square` holds
    # The same for A A', where its blocks have at least `tile_bytes`; if both triangles go out, A
    # has at least `triangle_bytes`.
    triangle: int = 0
    triangle_bytes: int = 0
    # The largest transfer of the first block that comes in and the last one that goes out, unless
    # that makes many. 0 for no other limit than for the rest.
    edge_bytes: int = 0
    at_once_bytes: int = 2**26  # the most bytes of a product that is sent at once, without tiles
    # The longest time in microseconds that such a product may take the device, if threads copy: the
    # first tiles of a longer one are computed while others are on the way.
    at_once_us: int = 500


class Tile(NamedTuple):
    """One launch of a schedule: the product of a block of A and a block of B."""

    # The blocks of A, B and C. Where A or B repeats one matrix along an axis of the batch, its
    # slice of that axis is the first element.
    blocks: tuple[Block, Block, Block]
    slots: tuple[int, int, int]  # the slot of each block on the device
    loads: tuple[int, ...]  # the blocks to load first: 0 for A, 1 for B, 2 for C
    # Whether it is the first or the last tile of its block of C. Tiles after the first add to C;
    # the result of the last one goes out.
    first: bool
    last: bool


class Stream(NamedTuple):
    """The schedule of a product: its tiles in order."""

    tiles: tuple[Tile, ...]
    # Elements of a slot of A, B and C, which are those of the largest block.
    elements: tuple[int, int, int]
    slots: tuple[int, int, int]  # the number of slots of A, B and C
    # Whether B is A's transpose and its blocks are A's: the slot of one is that of A's block with
    # the same rows. Only blocks of one triangle of C have tiles; a slot of C has room for two.
    is_sent_once: bool = False


@lru_cache(maxsize=256)
def make_stream(
    batch: tuple[int, ...],
    sizes: tuple[int, int, int],
    repeated: tuple[tuple[bool, ...], tuple[bool, ...]],
    keep: bool,
    config: TransferConfig,
    allocation_bytes: int,
    tile_rows: int = 0,
    kept: tuple[bool, bool] = (False, False),
    item_bytes: int = FLOAT_BYTES,
    has_whole_sums: bool = False,
    is_symmetric: bool = False,
    triangles: Triangles = "",
) -> Stream:
    """Return the schedule of ``C = A B``, or of ``C = A B + C`` if `keep`.

    Parameters
    ----------
    batch : tuple of int
        The batch's shape, () for a single matrix.
    sizes : tuple of int
        m, n and k. Tiles are cut along m first, so m should be at least n. If k is 0, only C is
        loaded.
    repeated : pair of tuple of bool
        For A and B, and for each axis of the batch: whether one matrix is repeated along it.
    allocation_bytes : int
        The device's largest buffer.
    tile_rows : int, optional
        Rows of a tile of a single matrix, whatever m is; fewer if such tiles do not fit. By
        default they depend on m.
    kept : pair of bool, optional
        For A and B: whether the device holds all of it. It needs no slots then and is not loaded.
    item_bytes : int, optional
        The size of an element, of the largest if they differ.
    has_whole_sums : bool, optional
        Whether k may not be cut.
    is_symmetric : bool, optional
        Whether B is A's transpose and C is not read. If A's blocks cannot serve for B, they are
        sent twice.
    triangles : {"", "upper", "lower"}, optional
        The triangle of a symmetric C that alone goes out.
    """
    m, n, k = sizes
    is_sent_once = False
    for stays in ((False, True), kept) if is_symmetric and not any(kept) else (kept,):
        matrices, (rows, columns, depth) = _tile_sizes(
            *(batch, sizes, config, allocation_bytes, tile_rows, stays, item_bytes, has_whole_sums)
        )
        if is_sent_once := stays is not kept and (rows, columns, depth) == sizes:
            break
    is_cut_by_rows = matrices == 1 and (columns, depth) == (n, k)
    is_cut_by_rows &= is_sent_once or not tile_rows
    square = sizes, config, allocation_bytes, item_bytes, is_sent_once, triangles
    if is_cut_by_rows and not any(kept) and (cut := _square_tiles(*square)) is not None:
        rows, columns = cut
        cuts_m, cuts_n = cuts(m, rows), cuts(n, columns)
        order = [(cuts_m[i], cuts_n[j]) for i, j in square_order(len(cuts_m), len(cuts_n))]
        if is_sent_once:
            order = [(i, j) for i, j in order if j.start <= i.start]
            if triangles == "upper":
                order = [(i, j) for j, i in order]
        slots_a, slots_b = _Slots(len(cuts_m)), _Slots(len(cuts_n))
    else:
        cuts_m = cuts(m, rows)
        if is_cut_by_rows and config.ramp:
            cuts_m = ramped(m, rows, config.ramp, GRAIN, min(config.rows, rows))
        order = [(i, j) for j, i in product(cuts(n, columns), cuts_m)]
        slots_a, slots_b = _Slots(SLOTS), _Slots(SLOTS)
    slots_c = _Slots(SLOTS)
    tiles = []
    for stack in _stacks(batch, matrices):
        stack_a, stack_b = (
            tuple(slice(0, 1) if one else s for one, s in zip(axes, stack, strict=True))
            for axes in repeated
        )
        for (i, j), p in product(order, cuts(k, depth)):
            block_a, block_b, block_c = (*stack_a, i, p), (*stack_b, p, j), (*stack, i, j)
            first, last = p.start == 0, p.stop == k
            slot_a, new_a = slots_a.place(block_a)
            if is_sent_once:  # B's block is A's with these rows
                slot_b, new_b = slots_a.place((*block_a[:-2], j, p))
            else:
                slot_b, new_b = slots_b.place(block_b)
            slot_c, _ = slots_c.place(block_c)
            new_a, new_b = new_a and not kept[0], new_b and not kept[1]
            wanted = (new_a and k > 0, new_b and k > 0, keep and first)
            loads = tuple(operand for operand, load in enumerate(wanted) if load)
            tiles.append(
                Tile((block_a, block_b, block_c), (slot_a, slot_b, slot_c), loads, first, last)
            )
    a = (0, 0) if kept[0] else (matrices * rows * depth, len(slots_a.held))
    b = (0, 0) if kept[1] or is_sent_once else (matrices * depth * columns, len(slots_b.held))
    c = matrices * rows * columns, len(slots_c.held)
    if is_sent_once and rows < m:
        c = 2 * c[0], c[1]
    return Stream(tuple(tiles), (a[0], b[0], c[0]), (a[1], b[1], c[1]), is_sent_once)


class _Slots:
    """The blocks in an operand's slots; a new block replaces the least recently used one."""

    def __init__(self, most: int) -> None:
        self._most = most
        # A block's starts and stops to its slot, the least recently used first.
        self.held: dict[tuple[tuple[int, int], ...], int] = {}

    def place(self, block: Block) -> tuple[int, bool]:
        """Return a block's slot, and whether the block is new there."""
        key = tuple((s.start, s.stop) for s in block)
        new = key not in self.held
        if not new:
            slot = self.held.pop(key)
        elif len(self.held) < self._most:
            slot = len(self.held)
        else:
            slot = self.held.pop(next(iter(self.held)))
        self.held[key] = slot
        return slot, new


def _tile_sizes(
    batch: tuple[int, ...],
    sizes: tuple[int, int, int],
    config: TransferConfig,
    allocation_bytes: int,
    tile_rows: int,
    kept: tuple[bool, bool],
    item_bytes: int,
    has_whole_sums: bool,
) -> tuple[int, tuple[int, int, int]]:
    """Return how many matrices a tile takes, and the rows, columns and depth of each.

    A tile of more than one matrix takes them whole.
    """
    most = allocation_bytes // item_bytes
    budget = config.memory_bytes // item_bytes // SLOTS

    def fits(matrices: int, m: int, n: int, k: int) -> bool:
        a, b = matrices * m * k * (not kept[0]), matrices * k * n * (not kept[1])
        blocks = a, b, matrices * m * n
        return max(blocks) <= most and sum(blocks) <= budget

    m, n, k = sizes
    total = math.prod(batch)
    moved_bytes = item_bytes * (m * k + k * n + m * n)
    matrices = max(config.tile_bytes // moved_bytes, ceil_div(total, config.tiles))
    matrices = min(matrices, total)
    while matrices > 1 and not fits(matrices, *sizes):
        matrices = ceil_div(matrices, 2)
    if matrices > 1:
        return matrices, sizes
    # Cut A and C into tiles of rows and load B whole; if there are few rows, cut A and B along k.
    # Then halve the longest side until the tile fits.
    rows = max(config.tile_bytes // (item_bytes * (k + n)), ceil_div(m, config.tiles))
    loaded_bytes = item_bytes * (m * (not kept[0]) + n * (not kept[1]))  # for each step of depth
    cut = [min(_rounded(max(rows, config.rows)), m), n, k]
    if tile_rows:
        cut[0] = tile_rows
    elif m <= config.rows and loaded_bytes and not has_whole_sums:
        depth = max(config.tile_bytes // loaded_bytes, ceil_div(k, config.tiles))
        cut[2] = min(_rounded(depth), k)
    sides = 2 if has_whole_sums else 3
    while not fits(1, *cut) and max(cut[:sides]) > 1:
        longest = cut.index(max(cut[:sides]))
        cut[longest] = _rounded(ceil_div(cut[longest], 2))
    return 1, (cut[0], cut[1], cut[2])


def _square_tiles(
    sizes: tuple[int, int, int],
    config: TransferConfig,
    allocation_bytes: int,
    item_bytes: int,
    is_sent_once: bool,
    triangles: Triangles,
) -> tuple[int, int] | None:
    """Return rows and columns of tiles that keep all of A and B; None if they do not pay or fit."""
    m, n, k = sizes
    blocks = min(config.square, m // max(config.rows, 1), n // max(config.rows, 1))
    if is_sent_once:
        if item_bytes != FLOAT_BYTES:  # the device mirrors tiles of floats
            return None
        blocks = min(config.triangle, item_bytes * m * k // config.tile_bytes)
        if not triangles and item_bytes * m * k < config.triangle_bytes:
            return None
    elif item_bytes * k * n < config.square_bytes:
        return None
    if blocks < 2 or k == 0:
        return None
    rows, columns = (_rounded(ceil_div(size, blocks)) for size in (m, n))
    largest = item_bytes * max(rows * k, columns * k, rows * columns)
    whole = ceil_div(m, rows) * rows * k
    whole += 0 if is_sent_once else ceil_div(n, columns) * columns * k
    held = item_bytes * (whole + SLOTS * rows * columns)
    return (rows, columns) if largest <= allocation_bytes and held <= config.memory_bytes else None


def _rounded(size: int) -> int:
    """Round a size above GRAIN up to a multiple of it; the result is less than twice the size."""
    return ceil_div(size, GRAIN) * GRAIN if size > GRAIN else size


def cuts(size: int, step: int) -> list[slice]:
    """Cut an axis into slices of `step`; an axis of length 0 is one slice."""
    return [slice(i, min(i + step, size)) for i in range(0, max(size, 1), max(step, 1))]


def ramped(size: int, step: int, halvings: int, grain: int, least: int) -> list[slice]:
    """Cut an axis into slices of `step`, with shorter ones at both ends.

    The first slice takes ``step / 2**halvings``, and each of the next twice as much until `step`.
    The last slices are the first ones in reverse. So the device starts before much has come in,
    and little remains to go out after its last tile.

    Parameters
    ----------
    grain : int
        Slices but the last are multiples of this where `step` is.
    least : int
        The shortest slice, unless the axis or `step` is shorter.
    """
    sizes = []
    for power in range(halvings, 0, -1):
        part = max(-(-step // 2**power // grain) * grain, least)
        if part < step:
            sizes.append(part)
    while 2 * sum(sizes) + step > size and sizes:
        sizes.pop()  # the longest: an axis of few slices keeps the shortest
    middle = size - 2 * sum(sizes)
    whole, rest = divmod(middle, max(step, 1))
    lengths = [*sizes, *[step] * whole, *([rest] if rest else []), *reversed(sizes)]
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    return [slice(i, j) for i, j in pairwise(edges)] or [slice(0, 0)]


def square_order(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks of C, as row and column, so that each new block of A or B serves many.

    After s blocks of A and s of B have come in, s squared blocks of C are computed. So the device
    has work early, and A and B arrive in turns.
    """
    for step in range(max(rows, columns)):
        if step < rows:
            yield from ((step, j) for j in range(min(step, columns)))
        if step < columns:
            yield from ((i, step) for i in range(min(step + 1, rows)))


def _stacks(batch: tuple[int, ...], matrices: int) -> Iterator[Block]:
    """Cut a batch into parts of at most `matrices` matrices; each spans whole inner axes."""
    inner, step = _stack(batch, matrices)
    whole = tuple(slice(0, count) for count in batch[inner:])
    if not inner:
        yield whole
        return
    for outer in product(*(range(count) for count in batch[: inner - 1])):
        for cut in cuts(batch[inner - 1], step):
            yield (*(slice(i, i + 1) for i in outer), cut, *whole)


def _stack(batch: tuple[int, ...], matrices: int) -> tuple[int, int]:
    """Return the first axis that each part spans, and a part's length along the one before."""
    inner = len(batch)
    while inner and math.prod(batch[inner - 1 :]) <= matrices:
        inner -= 1
    return inner, max(1, matrices // math.prod(batch[inner:]))


def pieces(shape: tuple[int, ...], most: int) -> Iterator[tuple[Block, int, int]]:
    """Cut a dense row-major array into runs of at most `most` elements.

    Yields
    ------
    block : Block
        A slice for each axis.
    first, count : int
        The position of its first element, and its number of elements.
    """
    if 0 in shape:
        return
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for block in _stacks(shape, most):
        first = sum(s.start * stride for s, stride in zip(block, strides, strict=True))
        yield block, first, math.prod(s.stop - s.start for s in block)


def count_pieces(shape: tuple[int, ...], most: int) -> int:
    """Return the number of runs that `pieces` yields."""
    inner, step = _stack(shape, most) if 0 not in shape else (0, 1)
    outer = math.prod(shape[: max(inner - 1, 0)]) * (0 not in shape)
    return outer * ceil_div(shape[inner - 1], step) if inner else outer
