"""How the arrays of a small product travel: their places in chunks and on the device."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from clgemm.core.plan import round_up
from clgemm.core.problem import FLOAT_BYTES, Layout, dense_layout, memory_order
from clgemm.core.transfer import Block, TransferConfig, pieces
from clgemm.runtime.operands import LARGEST_ALIGNMENT, HostArray
from clgemm.runtime.transfer.staging import Chunk

__all__ = ["PlacedCopy", "Route", "Transfer", "copies", "make_route"]

Forms: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # shapes and strides

STEP = LARGEST_ALIGNMENT // FLOAT_BYTES  # arrays begin at multiples of so many elements
# Pieces that threads copy: about so many of a product, unless they would be smaller than that.
PIECES, SMALLEST_PIECE_BYTES = 18, 2**20
# Threads copy from so many times the bytes on from which they do for a product of tiles: the caller
# has little else to do. Beside an H100, they take 0.8 to 1.2 times as long for 5 to 8 MB, and half
# to 0.8 for more (2026-11-26).
THREADED_FACTOR = 2


class Part(NamedTuple):
    """A block of an array, its axes in the order of memory, and where it begins in a chunk."""

    array: int
    block: Block
    first: int
    size: int


class Transfer(NamedTuple):
    """What one command moves: elements of a chunk, and their place in a buffer of the device."""

    chunk: int
    first: int
    size: int
    start: int
    parts: tuple[Part, ...]


class Route(NamedTuple):
    """How a product's arrays travel.

    Attributes
    ----------
    axes : tuple of tuple of int
        Of each array, the axes from the outermost in memory.
    layouts : tuple of Layout
        How the arrays lie on the device: dense, in the order of their memory.
    starts : tuple of int
        Where A and B begin in their buffer.
    sizes : tuple of int
        Elements of that buffer, and of C's, whose last elements are the flags. C has its own, even
        if it is not read: kernels may take it that what they write to is no operand's.
    up, down : tuple of Transfer
        In order. A C that is read goes up last, and comes back to chunks that are free again.
    operands : int
        How many of `up` belong to A and B.
    chunks : int
        How many are needed.
    is_threaded : bool
        Whether threads copy; each transfer has one part then.
    """

    axes: tuple[tuple[int, ...], ...]
    layouts: tuple[Layout, Layout, Layout]
    starts: tuple[int, int]
    sizes: tuple[int, int]
    up: tuple[Transfer, ...]
    down: tuple[Transfer, ...]
    operands: int
    chunks: int
    is_threaded: bool


class PlacedCopy(NamedTuple):
    """A copy between a host array and a chunk.

    Attributes
    ----------
    number : int
        That of its transfer.
    is_last : bool
        Whether it is the last copy of that transfer.
    """

    target: HostArray
    source: HostArray
    number: int
    is_last: bool


def make_route(
    arrays: Sequence[HostArray],
    reads_c: bool,
    config: TransferConfig,
    is_nested: bool,
    flags: int = 0,
) -> Route:
    """Return how A, B and C travel; routes of equal shapes and strides are equal.

    Parameters
    ----------
    is_nested : bool
        Whether the caller is in another product: it copies itself then.
    flags : int, optional
        Elements that come back after C, as a fourth array.
    """
    return _route(tuple((x.shape, x.strides) for x in arrays), reads_c, config, is_nested, flags)


def copies(
    transfers: Sequence[Transfer],
    views: Sequence[HostArray],
    chunks: Sequence[Chunk],
    is_up: bool,
) -> Iterator[PlacedCopy]:
    """Yield the copies to chunks, or from them to the arrays.

    Parameters
    ----------
    views : sequence of array
        The arrays, their axes in the order of memory.
    """
    for number, transfer in enumerate(transfers):
        for part in transfer.parts:
            block = views[part.array][part.block]
            run = chunks[transfer.chunk][part.first : part.first + part.size].reshape(block.shape)
            target, source = (run, block) if is_up else (block, run)
            yield PlacedCopy(target, source, number, part is transfer.parts[-1])


@functools.lru_cache(maxsize=256)
def _route(
    forms: Forms, reads_c: bool, config: TransferConfig, is_nested: bool, flags: int
) -> Route:
    axes = tuple(memory_order(strides) for _, strides in forms)
    shapes = [tuple(shape[i] for i in order) for (shape, _), order in zip(forms, axes, strict=True)]
    sizes = [math.prod(shape) for shape in shapes]
    moved_bytes, longest = FLOAT_BYTES * sum(sizes), config.chunk_bytes // FLOAT_BYTES
    is_threaded = moved_bytes >= THREADED_FACTOR * config.threaded_bytes and not is_nested
    most = longest
    if is_threaded:
        most = min(longest, max(sum(sizes) // PIECES, SMALLEST_PIECE_BYTES // FLOAT_BYTES))
    starts, end_of_c = (0, round_up(sizes[0], STEP)), sizes[2]

    up, down = _Places(longest, not is_threaded), _Places(longest, not is_threaded)
    for operand in (0, 1):
        up.add(operand, shapes[operand], starts[operand], most)
    operands = len(up.transfers)
    up.end()
    if reads_c:
        up.add(2, shapes[2], 0, most)
    down.add(2, shapes[2], 0, most)
    if flags:
        first_flag = round_up(sizes[2], STEP)
        down.add(3, (flags,), first_flag, flags)
        end_of_c = first_flag + flags
    a, b, c = (
        dense_layout(shape, order, LARGEST_ALIGNMENT)
        for (shape, _), order in zip(forms, axes, strict=True)
    )
    return Route(
        axes,
        (a, b, c),
        starts,
        (starts[1] + sizes[1], end_of_c),
        tuple(up.transfers),
        tuple(down.transfers),
        operands,
        1 + max(each.chunk for each in up.transfers + down.transfers),
        is_threaded,
    )


class _Places:
    """Places for parts of arrays, one after the other, each whole in a chunk.

    Parameters
    ----------
    elements : int
        Of a chunk.
    joins : bool
        Whether one transfer takes all that is in a chunk and goes to one buffer.
    """

    def __init__(self, elements: int, joins: bool) -> None:
        self.transfers: list[Transfer] = []
        self._elements, self._joins = elements, joins
        self._chunk = self._used = 0
        self._first_to_join = 0

    def add(self, array: int, shape: tuple[int, ...], start: int, most: int) -> None:
        """Place an array that begins at element `start` of its buffer, in parts of `most`."""
        for block, begin, size in pieces(shape, most):
            if self._joins and self._join(array, block, start + begin, size):
                continue
            if self._used + size > self._elements:
                self._chunk, self._used = self._chunk + 1, 0
            part = Part(array, block, self._used, size)
            self.transfers.append(Transfer(self._chunk, self._used, size, start + begin, (part,)))
            self._used += round_up(size, STEP)

    def _join(self, array: int, block: Block, start: int, size: int) -> bool:
        """Place a part in the last transfer, as far from its start as on the device, if it fits."""
        if len(self.transfers) == self._first_to_join:
            return False
        last = self.transfers[-1]
        first = last.first + start - last.start
        if first + size > self._elements:
            return False
        part = Part(array, block, first, size)
        whole = first + size - last.first
        self.transfers[-1] = last._replace(size=whole, parts=(*last.parts, part))
        self._used = round_up(first + size, STEP)
        return True

    def end(self) -> None:
        """Let what comes next go to another buffer."""
        self._first_to_join = len(self.transfers)
