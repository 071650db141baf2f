"""How a product of host arrays goes through a device in tiles: what is loaded when, and where to.

Pure. A tile is a product that the device makes at once: some matrices of a stack, or some rows,
columns and depth of one. While it is computed the operands of the next come in and the result of
the one before goes out. Matrices larger than the device's memory only make for more tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple, TypeAlias

__all__ = [
    "FLOAT_BYTES",
    "Block",
    "Stream",
    "Tile",
    "TransferConfig",
    "make_stream",
    "memory_order",
    "pieces",
]

FLOAT_BYTES = 4
# Blocks of each operand and of the result that the device holds: one in use, one that comes in or
# goes out, one in between.
SLOTS = 3
# Larger blocks are cut to a multiple of this: whole tiles of the kernels.
GRAIN = 128

# Which matrices of a stack, a slice for each of its axes, and which of their rows and columns.
Block: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True)
class TransferConfig:
    """How host arrays reach a device that has memory of its own.

    Attributes
    ----------
    memory_bytes : int
        Device memory that the operands and the result of one call may take.
    threads : int
        Threads that fill and empty chunks.
    threaded_bytes : int
        What a call must move for those threads to be worth their while; below, the caller copies.
    chunk_bytes : int
        The pinned memory of one transfer at most, which one thread fills or empties.
    chunks : int
        Chunks that one call may hold each way.
    pool_chunks : int
        Chunks that all calls may hold together, at least twice `chunks`.
    tile_bytes : int
        What a tile moves at least where a product is cut only for its transfers to overlap.
    tiles : int
        Parts that such a product is cut into at most.
    rows : int
        Rows of such a tile at least: fewer would leave parts of the device idle.
    """

    memory_bytes: int
    threads: int
    threaded_bytes: int = 2**22
    chunk_bytes: int = 2**22
    chunks: int = 16
    pool_chunks: int = 64
    tile_bytes: int = 2**23
    tiles: int = 8
    rows: int = 256


class Tile(NamedTuple):
    """One product of the device, or one summand of it.

    Attributes
    ----------
    blocks : tuple of Block
        Of A, B and C. Of A and B, an axis of the stack that is repeated has its only element.
    slots : tuple of int
        Where each of them lies on the device.
    loads : tuple of int
        Which of them have to come there first: 0 for A, 1 for B, 2 for C.
    first, last : bool
        The first and the last tile of its block of C: the others add to what the first has left,
        and the last one's result goes out.
    """

    blocks: tuple[Block, Block, Block]
    slots: tuple[int, int, int]
    loads: tuple[int, ...]
    first: bool
    last: bool


class Stream(NamedTuple):
    """A product's tiles in order.

    Attributes
    ----------
    elements : tuple of int
        Of the largest block of A, B and C: what a slot takes.
    slots : tuple of int
        Slots of A, B and C.
    """

    tiles: tuple[Tile, ...]
    elements: tuple[int, int, int]
    slots: tuple[int, int, int]


@lru_cache(maxsize=256)
def make_stream(
    batch: tuple[int, ...],
    sizes: tuple[int, int, int],
    repeated: tuple[tuple[bool, ...], tuple[bool, ...]],
    keep: bool,
    config: TransferConfig,
    allocation_bytes: int,
) -> Stream:
    """Return the tiles of ``C = A B``, or of ``C = A B + C`` if `keep`.

    Parameters
    ----------
    batch : tuple of int
        The stack's shape, () for a single matrix.
    sizes : tuple of int
        m, n and k. Tiles are cut along m first, so it should be the larger of m and n. With a k
        of 0 only C is loaded.
    repeated : pair of tuple of bool
        For A and B, and each axis of the stack: whether one matrix serves for all.
    allocation_bytes : int
        The largest single buffer of the device.
    """
    matrices, (rows, columns, depth) = _tile_sizes(batch, sizes, config, allocation_bytes)
    m, n, k = sizes
    slots_a, slots_b, slots_c = _Slots(), _Slots(), _Slots()
    tiles = []
    for stack in _stacks(batch, matrices):
        stack_a, stack_b = (
            tuple(slice(0, 1) if one else s for one, s in zip(axes, stack, strict=True))
            for axes in repeated
        )
        for j, i, p in product(_cuts(n, columns), _cuts(m, rows), _cuts(k, depth)):
            block_a, block_b, block_c = (*stack_a, i, p), (*stack_b, p, j), (*stack, i, j)
            first, last = p.start == 0, p.stop == k
            slot_a, new_a = slots_a.place(block_a)
            slot_b, new_b = slots_b.place(block_b)
            slot_c, _ = slots_c.place(block_c)
            wanted = (new_a and k > 0, new_b and k > 0, keep and first)
            loads = tuple(operand for operand, load in enumerate(wanted) if load)
            tiles.append(
                Tile((block_a, block_b, block_c), (slot_a, slot_b, slot_c), loads, first, last)
            )
    elements = matrices * rows * depth, matrices * depth * columns, matrices * rows * columns
    counts = len(slots_a.held), len(slots_b.held), len(slots_c.held)
    return Stream(tuple(tiles), elements, counts)


class _Slots:
    """Which block lies in which slot; the one that was used longest ago makes way."""

    def __init__(self) -> None:
        # By where its slices start and stop; what was used longest ago first.
        self.held: dict[tuple[tuple[int, int], ...], int] = {}

    def place(self, block: Block) -> tuple[int, bool]:
        """Return a block's slot, and whether it was not there yet."""
        key = tuple((s.start, s.stop) for s in block)
        new = key not in self.held
        if not new:
            slot = self.held.pop(key)
        elif len(self.held) < SLOTS:
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
) -> tuple[int, tuple[int, int, int]]:
    """Return how many matrices a tile takes, and the rows, columns and depth of each of them.

    More than one only if it takes them whole.
    """
    most = allocation_bytes // FLOAT_BYTES
    budget = config.memory_bytes // FLOAT_BYTES // SLOTS

    def fits(matrices: int, m: int, n: int, k: int) -> bool:
        blocks = matrices * m * k, matrices * k * n, matrices * m * n
        return max(blocks) <= most and sum(blocks) <= budget

    m, n, k = sizes
    total = math.prod(batch)
    moved_bytes = FLOAT_BYTES * (m * k + k * n + m * n)
    matrices = max(config.tile_bytes // moved_bytes, _ceil_div(total, config.tiles))
    matrices = min(matrices, total)
    while matrices > 1 and not fits(matrices, *sizes):
        matrices = _ceil_div(matrices, 2)
    if matrices > 1:
        return matrices, sizes
    # B comes first and whole, A and C in tiles of rows; where there are few rows, A and B in tiles
    # of k. Then whatever is longest is cut until it fits.
    rows = max(config.tile_bytes // (FLOAT_BYTES * (k + n)), _ceil_div(m, config.tiles))
    depth = max(config.tile_bytes // (FLOAT_BYTES * (m + n)), _ceil_div(k, config.tiles))
    cut = [min(_rounded(max(rows, config.rows)), m), n, k]
    if m <= config.rows:
        cut[2] = min(_rounded(depth), k)
    while not fits(1, *cut) and max(cut) > 1:
        longest = cut.index(max(cut))
        cut[longest] = _rounded(_ceil_div(cut[longest], 2))
    return 1, (cut[0], cut[1], cut[2])


def _ceil_div(x: int, y: int) -> int:
    return -(-x // y)


def _rounded(size: int) -> int:
    """Return a size as a multiple of GRAIN, unless it is smaller; less than twice itself."""
    return _ceil_div(size, GRAIN) * GRAIN if size > GRAIN else size


def _cuts(size: int, step: int) -> list[slice]:
    """Cut an axis; one of no length is one part."""
    return [slice(i, min(i + step, size)) for i in range(0, max(size, 1), max(step, 1))]


def _stacks(batch: tuple[int, ...], matrices: int) -> Iterator[Block]:
    """Cut a stack into parts of at most so many matrices, each one run of whole inner axes."""
    inner = len(batch)
    while inner and math.prod(batch[inner - 1 :]) <= matrices:
        inner -= 1
    whole = tuple(slice(0, count) for count in batch[inner:])
    if not inner:
        yield whole
        return
    step = max(1, matrices // math.prod(batch[inner:]))
    for outer in product(*(range(count) for count in batch[: inner - 1])):
        for cut in _cuts(batch[inner - 1], step):
            yield (*(slice(i, i + 1) for i in outer), cut, *whole)


def memory_order(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return an array's axes from the outermost in its memory to the innermost."""
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


def pieces(shape: tuple[int, ...], most: int) -> Iterator[tuple[Block, int, int]]:
    """Cut a dense row-major array into runs of at most `most` elements.

    Yields
    ------
    block : Block
        The slices of each axis.
    first, count : int
        The position of its first element, and its elements.
    """
    if 0 in shape:
        return
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for block in _stacks(shape, most):
        first = sum(s.start * stride for s, stride in zip(block, strides, strict=True))
        yield block, first, math.prod(s.stop - s.start for s in block)
