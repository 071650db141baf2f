"""Products of host arrays in tiles: some are multiplied while others come in or go out.

The caller's thread enqueues everything. Other threads fill and empty pinned memory.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyopencl as cl

from clgemm.core.plan import round_up
from clgemm.core.problem import (
    FLOAT_BYTES,
    Layout,
    Problem,
    Triangles,
    dense_layout,
    memory_order,
)
from clgemm.core.transfer import Stream, Tile, count_pieces, make_stream, pieces
from clgemm.hardware.device import Device
from clgemm.kernels.exact.types import Types
from clgemm.kernels.pack.plan import copy_plan
from clgemm.runtime import exact
from clgemm.runtime.enqueueing import enqueue_transfer
from clgemm.runtime.execute import BoundCall, bind, execute_matrices
from clgemm.runtime.finite import are_all_set, check_of, watch
from clgemm.runtime.operands import LARGEST_ALIGNMENT, HostArray, Layouts, Matrix, with_axes
from clgemm.runtime.workspace import Workspace
from clgemm.transfer.copy_threads import SIGNALS_SECONDS, ArrayCopy, Copier
from clgemm.transfer.resident import OperandCopies, OperandCopy, make_room
from clgemm.transfer.staging import Chunk, Staging, abandon

# Pieces that a call moves at least: while one is on the link, the next is filled. Of 16 pieces,
# products of sides from 768 to 2048 took up to 1.3 times as long: threads waited for each other.
LEAST_PIECES = 8
SMALLEST_PIECE_BYTES = 2**19  # enqueueing a smaller one takes longer than its transfer
LOOKS_SECONDS = 5e-5  # between two looks at the transfers while threads copy
FLAGS_STEP = LARGEST_ALIGNMENT // FLOAT_BYTES  # the flags of each block begin at a multiple
TURNED: dict[Triangles, Triangles] = {"upper": "lower", "lower": "upper", "": ""}
SLOW_LOOKS_SECONDS = 0.0005  # between two looks at a command that may take long


class TiledProduct(NamedTuple):
    """What the device computes with each tile: C = alpha A B + beta C.

    Attributes
    ----------
    precision : str or None
        As `Problem.precision`: without, `a` and `b` are not read.
    is_slow : bool
        Whether a tile may take so long that signals should be answered meanwhile.
    is_symmetric : bool
        As `Problem.is_symmetric`, of the product as a whole.
    triangles : Triangles
        The triangle of a symmetric C that alone is written, if not all of C is.
    advance : callable
        Called with the multiply-adds of each part that has arrived; it may raise to end the call.
    types : Types, optional
        The dtypes, if they are not float32.
    """

    alpha: float
    beta: float
    precision: str | None
    device: Device
    space: Workspace
    is_slow: bool = False
    is_symmetric: bool = False
    triangles: Triangles = ""
    advance: Callable[[int], object] = int
    types: Types | None = None

    def bind(self, layouts: Layouts, is_symmetric: bool = False) -> BoundCall:
        """Return what computes a tile of these layouts, built and set up; enqueue nothing."""
        if self.types is not None:
            return exact.bind(
                layouts, self.types, self.device, self.space, is_symmetric=is_symmetric
            )
        return bind(Problem(*layouts, self.precision, is_symmetric), self.device, self.space)

    def allocate(self, size_bytes: int) -> cl.Buffer:
        """Return memory on the device; resident arrays make room if they have to."""
        try:
            return self.space.allocate(size_bytes)
        except cl.MemoryError:
            if not make_room(self.device):
                raise
            return self.space.allocate(size_bytes)

    def enqueue(
        self, bound: BoundCall, a: Matrix, b: Matrix, c: Matrix, first: bool, before: list[cl.Event]
    ) -> cl.Event:
        """Enqueue a tile: the `first` of its block of C, or one that adds to what is there."""
        beta = self.beta if first else 1.0
        return execute_matrices(bound, self.alpha, a, b, beta, c, before)


def run_product(make: Callable[[], None]) -> None:
    """Compute a product. All of them run here, so that a nested one is recognised."""
    make()


class Slot:
    """Device memory for one block of an operand or of the result.

    Attributes
    ----------
    buffer : pyopencl.Buffer
        The memory, once it is allocated.
    ready : list of pyopencl.Event
        What brings its contents.
    users : list of pyopencl.Event
        What must be over before the contents change.
    tiles : list of int
        Those that use its contents and are not enqueued, in order.
    unfetched : int
        Pieces of a result whose transfers to the host are not enqueued.

    Parameters
    ----------
    share : int
        The number of the share that it belongs to.
    """

    buffer: cl.Buffer

    def __init__(self, share: int = 0) -> None:
        self.share = share
        self.ready: list[cl.Event] = []
        self.users: list[cl.Event] = []
        self.tiles: list[int] = []
        self.unfetched = 0

    def is_needed_before(self, tile: int) -> bool:
        """Return whether commands that use the contents before a tile are still to be enqueued."""
        return bool(self.unfetched) or any(user < tile for user in self.tiles)


class Piece(NamedTuple):
    """A part of a block, which a transfer moves to each of its slots, or from its only one."""

    slots: tuple[Slot, ...]
    host: HostArray  # with its axes in the order of its memory
    first: int  # element of the slot
    size: int
    # Where only one triangle of a result is written: that one, and its diagonal as in `numpy.tri`.
    part: Triangles = ""
    diagonal: int = 0


def cut(
    block: HostArray,
    slots: tuple[Slot, ...],
    most: int,
    start: int = 0,
    part: Triangles = "",
) -> Iterator[Piece]:
    """Cut a block, its axes in the order of its memory, into pieces of `most` elements at most.

    Parameters
    ----------
    start : int, optional
        The block's first element in the slots.
    part : {"", "upper", "lower"}, optional
        The triangle of the block that alone is written.
    """
    for index, first, size in pieces(block.shape, most):
        diagonal = index[-2].start - index[-1].start if part else 0
        yield Piece(slots, block[index], start + first, size, part, diagonal)


def has_ended(event: cl.Event) -> bool:
    """Return whether a command is over; raise its error if it failed."""
    status = event.command_execution_status
    if status < cl.command_execution_status.COMPLETE:
        event.wait()
    return status == cl.command_execution_status.COMPLETE


def shaped(chunk: Chunk, piece: Piece) -> HostArray:
    """Return a chunk's part for a piece, in the piece's shape and dtype."""
    return chunk.view(piece.host.dtype)[: piece.size].reshape(piece.host.shape)


class ChunkCopy(NamedTuple):
    """One copy between a chunk and a piece of a host array.

    Attributes
    ----------
    tile : int or None
        The first tile that needs the piece of an operand; None for a piece of the result.
    """

    target: HostArray
    source: HostArray
    piece: Piece
    chunk: Chunk
    tile: int | None

    @classmethod
    def to_chunk(cls, piece: Piece, chunk: Chunk, tile: int) -> ChunkCopy:
        """Return the copy of a piece of an operand to a chunk."""
        return cls(shaped(chunk, piece), piece.host, piece, chunk, tile)

    @classmethod
    def from_chunk(cls, piece: Piece, chunk: Chunk) -> ChunkCopy:
        """Return the copy of a piece of the result from a chunk."""
        return cls(piece.host, shaped(chunk, piece), piece, chunk, None)

    def make(self, copy: ArrayCopy) -> None:
        """Make it."""
        part = self.piece.part
        if not part:
            copy(self.target, self.source)
            return
        rows, columns = self.target.shape
        diagonal = self.piece.diagonal - (part == "upper")
        below = np.tri(rows, columns, diagonal, dtype=np.bool_)
        np.copyto(self.target, self.source, where=below if part == "lower" else ~below)


class Link:
    """Transfers in one direction, which run one after the other on each device.

    Attributes
    ----------
    free : list of Chunk
        Chunks that nothing uses. The last one was used last, so it may still be in the cache.

    Parameters
    ----------
    queues, locks : sequence
        Of each share of the call; the lock is held while commands are enqueued.
    is_up : bool
        Whether they go to the device.
    is_slow : bool
        Whether a command may take so long that signals should be answered meanwhile.
    """

    def __init__(
        self,
        queues: Sequence[cl.CommandQueue],
        locks: Sequence[threading.RLock],
        is_up: bool,
        is_slow: bool,
    ) -> None:
        self.free: list[Chunk] = []
        self._queues, self._locks, self._is_up, self._is_slow = queues, locks, is_up, is_slow
        self._unflushed: set[int] = set()
        self._under_way: deque[tuple[list[cl.Event], ChunkCopy]] = deque()

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def enqueue(self, copy: ChunkCopy, before: Sequence[Sequence[cl.Event]]) -> list[cl.Event]:
        """Enqueue the transfers of what is copied before them to a chunk, or after one from it.

        Parameters
        ----------
        before : sequence of sequence of pyopencl.Event
            For each slot of the piece: what has to be over first.
        """
        piece, host = copy.piece, copy.target if self._is_up else copy.source
        events: list[cl.Event] = []
        self._under_way.append((events, copy))  # what is enqueued is known even if the next fails
        for slot, first in zip(piece.slots, before, strict=True):
            with self._locks[slot.share]:
                queue, offset_bytes = self._queues[slot.share], host.itemsize * piece.first
                event = enqueue_transfer(queue, self._is_up, slot.buffer, offset_bytes, host, first)
            events.append(event)
            self._unflushed.add(slot.share)
        return events

    def flush(self) -> None:
        """Have the devices begin what is enqueued."""
        while self._unflushed:
            number = self._unflushed.pop()
            with self._locks[number]:
                self._queues[number].flush()

    def is_over(self) -> bool:
        """Return whether the oldest transfer is over; raise its error if it failed."""
        return bool(self._under_way) and all(map(has_ended, self._under_way[0][0]))

    def take(self) -> ChunkCopy:
        """Return the copy that belongs to the oldest transfer, and forget that one."""
        return self._under_way.popleft()[1]

    def wait(self) -> None:
        """Wait for the oldest transfers; raise the error of one that failed."""
        for event in self._under_way[0][0]:
            while self._is_slow and not has_ended(event):
                time.sleep(SLOW_LOOKS_SECONDS)
            event.wait()


class Checks:
    """Whether a result is finite: the device looks at each block before it is sent.

    Parameters
    ----------
    product : TiledProduct
        What computes the blocks.
    blocks : sequence of int
        The elements of each block.
    """

    def __init__(self, product: TiledProduct, blocks: Sequence[int]) -> None:
        self._product = product
        device, space = product.device, product.space
        self._checks = [check_of(elements, device, space) for elements in blocks]
        self._starts = [0]
        for check in self._checks:
            self._starts.append(self._starts[-1] + round_up(check.flags, FLAGS_STEP))
        self._enqueued = 0

    def allocate(self) -> None:
        """Allocate memory on the device, before the first block is made."""
        self._flags = self._product.allocate(FLOAT_BYTES * self._starts[-1])

    def enqueue(self, block: cl.Buffer, made: cl.Event) -> None:
        """Enqueue the check of the next block."""
        number, self._enqueued = self._enqueued, self._enqueued + 1
        self._checks[number].enqueue(block, self._flags, self._starts[number], [made])

    def are_finite(self, chunk: Chunk) -> bool:
        """Wait for all checks. Return whether the result is finite.

        Parameters
        ----------
        chunk : Chunk
            Where the flags go, if they fit: to pinned memory, they take half the time.
        """
        space, size = self._product.space, self._starts[-1]
        host = chunk[:size] if size <= chunk.size else np.empty(size, np.float32)
        with space.lock:
            event = cl.enqueue_copy(space.queue, host, self._flags, is_blocking=False)
            space.queue.flush()
        event.wait()
        pairs = zip(self._starts, self._checks, strict=False)
        return all(are_all_set(host[start : start + check.flags]) for start, check in pairs)


class Share:
    """The part of a call that one device computes: its memory, and its tiles in order.

    Attributes
    ----------
    unsent : list of int
        Pieces of each tile's operands that are not enqueued.
    checks : Checks or None
        Those of the result; None if nobody asks whether it is finite.

    Parameters
    ----------
    arrays : tuple of array
        A, B and C of this part.
    kept : tuple of OperandCopy or None
        The copies of A and B that the device holds; None for C.
    """

    def __init__(
        self,
        staging: Staging,
        product: TiledProduct,
        plan: Stream,
        arrays: tuple[HostArray, HostArray, HostArray],
        kept: tuple[OperandCopy | None, ...] = (None, None, None),
    ) -> None:
        self.staging, self.product, self.space = staging, product, product.space
        self.arrays, self.tiles, self.kept = arrays, plan.tiles, kept
        self.is_sent_once = plan.is_sent_once
        self.unsent = [0] * len(plan.tiles)
        self.checks: Checks | None = None
        self._elements, self._counts = plan.elements, plan.slots
        self._orders = [memory_order(x.strides) for x in arrays]
        self._bound: dict[tuple[Layouts, bool], BoundCall] = {}
        self._slots: list[list[Slot]] = []
        self._next = 0  # the tile to enqueue next

    @property
    def moved_bytes(self) -> int:
        """The bytes that are sent or received."""
        sent = (x.nbytes for x, kept in zip(self.arrays, self.kept, strict=True) if kept is None)
        return sum(sent) - self.is_sent_once * self.arrays[1].nbytes

    def make_slots(self, number: int) -> None:
        """Make the slots, without memory; this is share `number` of its call."""
        self._slots = [[Slot(number) for _ in range(count)] for count in self._counts]
        for index, tile in enumerate(self.tiles):
            for slot in self._slots_of(tile):
                slot.tiles.append(index)

    def slot(self, tile: Tile, operand: int) -> Slot:
        """Return where a tile's block lies on the device."""
        slots = self._slots[0 if operand == 1 and self.is_sent_once else operand]
        return slots[tile.slots[operand]]

    def _slots_of(self, tile: Tile) -> list[Slot]:
        """Return the slots that a tile uses, that of its result last."""
        sent = (operand for operand in range(3) if self.kept[operand] is None)
        return list(dict.fromkeys(self.slot(tile, operand) for operand in sent))

    def block(self, tile: Tile, operand: int) -> HostArray:
        """Return a block of a host array, its axes in the order of its memory."""
        return self.arrays[operand][tile.blocks[operand]].transpose(self._orders[operand])

    def results(self, tile: Tile) -> list[HostArray]:
        """Return where a tile's result goes, as `block` does, and where its mirror image goes."""
        found = [self.block(tile, 2)]
        if self._is_mirrored(tile):
            *stack, rows, columns = tile.blocks[2]
            mirrored = self.arrays[2][(*stack, columns, rows)]
            found.append(mirrored.transpose(self._orders[2]))
        return found

    def result_pieces(self, tile: Tile, most: int) -> Iterator[Piece]:
        """Cut a tile's results, which follow one another in the slot, into pieces."""
        part: Triangles = ""
        if self._is_on_diagonal(tile):
            part = self.product.triangles
            if self._orders[2] != (0, 1):
                part = TURNED[part]
        start = 0
        for block in self.results(tile):
            yield from cut(block, (self.slot(tile, 2),), most, start, part)
            start += block.size

    def _is_mirrored(self, tile: Tile) -> bool:
        """Return whether a tile's result is also one on the other side of the diagonal."""
        return self.is_sent_once and not (self.product.triangles or self._is_on_diagonal(tile))

    def bind(self) -> None:
        """Plan and build what the tiles take."""
        for each in {self._kind(tile) for tile in self.tiles}:
            self._bound[each] = self.product.bind(*each)

    def _kind(self, tile: Tile) -> tuple[Layouts, bool]:
        """Return what tiles must have in common to be computed alike."""
        return self._layouts(tile), self.product.is_symmetric and self._is_on_diagonal(tile)

    @property
    def has_symmetric_tiles(self) -> bool:
        """Whether C is symmetric once all tiles of a symmetric product have been stored."""
        return self.is_sent_once or all(is_symmetric for _, is_symmetric in self._bound)

    def _is_on_diagonal(self, tile: Tile) -> bool:
        """Return whether a tile is a block of A times its own transpose, if B is A's."""
        rows, columns = tile.blocks[2][-2:]
        return rows == columns and tile.first and tile.last

    def watch(self) -> None:
        """Prepare the check whether the result is finite."""
        blocks = [self.block(tile, 2).size for tile in self.tiles if tile.last]
        self.checks = Checks(self.product, blocks)

    def allocate(self) -> None:
        """Allocate memory on the device."""
        for size, slots, x in zip(self._elements, self._slots, self.arrays, strict=True):
            for slot in slots:
                slot.buffer = self.product.allocate(x.itemsize * max(size, 1))
        if self.checks is not None:
            self.checks.allocate()
        pending = self.space.order.pending()
        for slot in itertools.chain(*self._slots):
            slot.users = list(pending)

    def ready_tile(self) -> Tile | None:
        """Return the next tile if all that it takes is enqueued."""
        if self._next == len(self.tiles) or self.unsent[self._next]:
            return None
        tile = self.tiles[self._next]
        return None if self.slot(tile, 2).unfetched else tile

    def multiply(self, tile: Tile) -> cl.Event:
        """Enqueue a tile that is ready."""
        kind, matrices, slots = self._kind(tile), [], self._slots_of(tile)
        for operand, layout in enumerate(kind[0]):
            if (kept := self.kept[operand]) is not None:
                matrices.append(kept.matrix(self.arrays[operand][tile.blocks[operand]]))
            else:
                matrices.append(Matrix(self.slot(tile, operand).buffer, 0, layout))
        a, b, c = matrices
        before = [event for slot in slots for event in slot.ready] + slots[-1].users
        with self.space.lock:
            done = self.product.enqueue(self._bound[kind], a, b, c, tile.first, before)
            self.space.queue.flush()
        for slot in slots:
            slot.ready = []  # what comes after on this queue comes after it too
            slot.users = [done]
            slot.tiles.pop(0)
        if tile.last and self.checks is not None:
            self.checks.enqueue(slots[-1].buffer, done)
        if self._is_mirrored(tile):
            done = self._mirror(c)
            slots[-1].users = [done]
        self._next += 1
        return done

    def _mirror(self, c: Matrix) -> cl.Event:
        """Enqueue the copy of a result's transpose to where `result_pieces` has it."""
        turned, axes = c.layout.transposed(), self._orders[2]
        shape, strides = (tuple(x[i] for i in axes) for x in (turned.shape, turned.strides))
        source, place = Layout(shape, strides, LARGEST_ALIGNMENT), math.prod(shape)
        dense = dense_layout(shape, tuple(range(len(shape))), LARGEST_ALIGNMENT)
        plan = copy_plan(source, self.product.device.limits)
        slots = {"a": Matrix(c.buffer, 0, source), "c": Matrix(c.buffer, place, dense)}
        with self.space.lock:
            done = self.space.run(plan, self.product.device, slots)
            self.space.queue.flush()
        return done

    def _layouts(self, tile: Tile) -> Layouts:
        """Return how a tile's blocks lie on the device: dense, in the order of host memory."""
        a, b, c = (self._layout(tile, operand) for operand in range(3))
        return a, b, c

    def _layout(self, tile: Tile, operand: int) -> Layout:
        if (kept := self.kept[operand]) is not None:
            return kept.matrix(self.arrays[operand][tile.blocks[operand]]).layout
        shape = tuple(s.stop - s.start for s in tile.blocks[operand])
        if operand == 1 and self.is_sent_once:
            rows_first = (*shape[:-2], shape[-1], shape[-2])
            return dense_layout(rows_first, self._orders[0], LARGEST_ALIGNMENT).transposed()
        return dense_layout(shape, self._orders[operand], LARGEST_ALIGNMENT)


class Call:
    """One product: its memory on the devices, and what is under way.

    Parameters
    ----------
    shares : sequence of Share
        Parts of C, one for each device. The first one's staging has the pinned memory and the
        threads.
    is_nested : bool
        Whether this thread is in another product.
    has_common_b : bool, optional
        Whether all shares have one B, and their tiles the same order: a piece of B is copied to
        pinned memory once and sent to all.
    """

    def __init__(
        self,
        shares: Sequence[Share],
        operand_copies: OperandCopies,
        is_nested: bool,
        has_common_b: bool = False,
    ) -> None:
        self._shares, self._operand_copies, self._is_fresh = shares, operand_copies, False
        self._is_nested = is_nested
        first = shares[0]
        self._staging, self._product = first.staging, first.product
        config = self._staging.config
        self._has_common_b = has_common_b
        moved_bytes = sum(share.moved_bytes for share in shares)
        if has_common_b:
            moved_bytes -= (len(shares) - 1) * first.arrays[1].nbytes
        # A nested product does not record finiteness for the outer one.
        self._watch = None if is_nested else watch()
        # A thread that is handing work to others cannot be entered again by the same caller.
        is_threaded = moved_bytes >= config.threaded_bytes and not is_nested
        least = max(moved_bytes // LEAST_PIECES, SMALLEST_PIECE_BYTES)
        self._longest_bytes = min(least, config.chunk_bytes)
        self._edge_bytes = min(self._longest_bytes, config.edge_bytes or self._longest_bytes)
        self._copier: Copier[ChunkCopy] = Copier(self._staging, is_threaded)
        self._up, self._down = self._new_link(True), self._new_link(False)
        self._chunks: list[Chunk] = []
        # Pieces that are not begun, each with the first tile that needs it.
        self._to_load: Iterator[tuple[int, Piece]] = iter(())
        self._unbegun = 0  # the number of those
        self._coming = 0  # pieces of operands that are not in chunks
        self._loaded: list[ChunkCopy] = []  # in chunks, not enqueued
        self._results: deque[tuple[Piece, cl.Event]] = deque()  # computed, not enqueued
        self._unstored = 0  # pieces of the result that are not where they belong

    def run(self) -> None:
        """Send the tiles through, and wait for the last result.

        Nothing goes to the result before all that the tiles take is built and allocated.
        """
        self._plan_pieces()
        for share in self._shares:
            share.bind()  # which may compile: no chunk waits for that
        config = self._staging.config
        up, down = min(config.chunks, self._coming), min(config.chunks, self._unstored)
        lock = self._shares[0].space.lock
        lent = self._staging.lent(up + down, lock, self._is_nested)
        with lent as self._chunks:
            try:
                self._up.free += self._chunks[:up]
                self._down.free += self._chunks[up:]
                self._begin_loads()
                for share in self._shares:  # while the first pieces are copied
                    if self._watch is not None:
                        share.watch()
                    share.allocate()
                self._enqueue()
                while self._unstored:
                    self._wait()
                    self._enqueue()
                while self._up:
                    self._up.wait()  # raises the error of one that failed
                    self._up.take()
                for share in self._shares:
                    # Nothing else is in the chunks any more.
                    if self._watch and share.checks and share.checks.are_finite(self._chunks[0]):
                        self._watch.elements += share.arrays[2].size
            except BaseException:
                self._abandon()  # before the chunks are given back
                raise

    def _plan_pieces(self) -> None:
        """Count the pieces in which all is sent and received."""
        for number, share in enumerate(self._shares):
            share.make_slots(number)
        loads = []
        for number in range(max(len(share.tiles) for share in self._shares)):
            for share in self._shares:
                if number >= len(share.tiles):
                    continue
                tile = share.tiles[number]
                self._unstored += self._count(share, tile, 2, is_result=True) if tile.last else 0
                for operand in tile.loads:
                    takers = self._shares if operand == 1 and self._has_common_b else [share]
                    if share is not takers[0]:
                        continue
                    slots = tuple(each.slot(each.tiles[number], operand) for each in takers)
                    most = self._most(share, tile, operand)
                    loads.append((number, share.block(tile, operand), slots, most))
                    count = self._count(share, tile, operand)
                    self._coming += count
                    for taker in takers:
                        taker.unsent[number] += count
        self._unbegun = self._coming
        self._to_load = (
            (number, piece)
            for number, block, slots, most in loads
            for piece in cut(block, slots, most)
        )

    def _new_link(self, is_up: bool) -> Link:
        stagings = [share.staging for share in self._shares]
        queues = [each.up if is_up else each.down for each in stagings]
        locks = [share.space.lock for share in self._shares]
        return Link(queues, locks, is_up, self._product.is_slow)

    def _wait(self) -> None:
        """Wait until something has been copied or moved."""
        if not self._copier.under_way:
            (self._up if self._up and self._unbegun else self._down or self._up).wait()
            return
        looks = self._down or (self._unbegun and not self._up.free)
        for copy in self._copier.done(LOOKS_SECONDS if looks else SIGNALS_SECONDS):
            if copy.tile is not None:
                self._coming -= 1
                self._loaded.append(copy)
            else:
                self._unstored -= 1
                self._down.free.append(copy.chunk)
                self._product.advance(copy.piece.size * self._shares[0].arrays[0].shape[-1])

    def _enqueue(self) -> None:
        """Enqueue and start all that is ready."""
        self._send()
        # Each tile frees what the next one needs, and so does each result that is under way.
        while self._multiply_next() | self._receive():
            self._send()
        self._store()
        self._begin_loads()

    def _begin_loads(self) -> None:
        """Have pieces of operands copied to free chunks."""
        up = self._up
        while self._unbegun:
            if not up.free:
                if not up.is_over():
                    return
                up.free.append(up.take().chunk)
            tile, piece = next(self._to_load)
            self._unbegun -= 1
            self._copier.copy(ChunkCopy.to_chunk(piece, up.free.pop(), tile))

    def _send(self) -> None:
        """Enqueue the transfers of what is in chunks."""
        if not self._loaded:
            return
        waiting = []
        for load in self._loaded:
            slots, tile = load.piece.slots, load.tile
            assert tile is not None
            if any(slot.is_needed_before(tile) for slot in slots):
                waiting.append(load)
                continue
            # The other pieces of a block come after the first that is sent.
            before = [slot.users for slot in slots]
            for slot, event in zip(slots, self._up.enqueue(load, before), strict=True):
                slot.users, slot.ready = [], [event]
                self._shares[slot.share].unsent[tile] -= 1
        if len(waiting) < len(self._loaded):
            self._up.flush()
        self._loaded = waiting

    def _multiply_next(self) -> bool:
        """Enqueue the next ready tile of each device. Return whether any was ready."""
        found = False
        for share in self._shares:
            tile = share.ready_tile()
            if tile is None:
                continue
            found = True
            done = share.multiply(tile)
            if tile.last:
                slot, most = share.slot(tile, 2), self._most(share, tile, 2, is_result=True)
                results = list(share.result_pieces(tile, most))
                self._results.extend((piece, done) for piece in results)
                slot.unfetched, slot.users = len(results), []
        return found

    def _receive(self) -> bool:
        """Enqueue transfers of results into free chunks. Return whether there were any."""
        free = self._down.free
        if not (self._results and free):
            return False
        while self._results and free:
            piece, done = self._results.popleft()
            store = ChunkCopy.from_chunk(piece, free.pop())
            (slot,) = piece.slots
            slot.users += self._down.enqueue(store, [[done]])
            slot.unfetched -= 1
        self._down.flush()
        return True

    def _store(self) -> None:
        """Have results that have arrived copied to where they belong.

        Nothing is copied before the operands are known to be fresh.
        """
        while self._down.is_over():
            if not self._is_fresh:
                # Until then there is time while operands come in and chunks are free.
                if self._coming and self._down.free and not self._operand_copies.is_compared():
                    return
                self._operand_copies.require_fresh()
                self._is_fresh = True
            self._copier.copy(self._down.take())

    def _count(self, share: Share, tile: Tile, operand: int, is_result: bool = False) -> int:
        """Return the number of pieces of a tile's block, or of its results."""
        most = self._most(share, tile, operand, is_result)
        blocks = share.results(tile) if is_result else [share.block(tile, operand)]
        return sum(count_pieces(block.shape, most) for block in blocks)

    def _most(self, share: Share, tile: Tile, operand: int, is_result: bool = False) -> int:
        """Return the most elements of a piece of a tile's block, which comes in or goes out."""
        block = share.block(tile, operand)
        longest, edge = self._longest_bytes // block.itemsize, self._edge_bytes // block.itemsize
        first, last = share.tiles[0], share.tiles[-1]
        is_edge = tile is last if is_result else tile is first and operand == tile.loads[0]
        if not is_edge:
            return longest
        # Not in many more pieces than others.
        return min(longest, max(edge, block.size // LEAST_PIECES))

    def _abandon(self) -> None:
        """Wait until nothing reads or writes the caller's memory any more."""
        self._copier.abandon()
        for share in self._shares:
            for queue in (share.staging.up, share.space.queue, share.staging.down):
                abandon(queue, share.space)


def multiply_tiles(
    staging: Staging,
    product: TiledProduct,
    arrays: tuple[HostArray, HostArray, HostArray],
    operand_copies: OperandCopies,
    is_nested: bool,
) -> bool:
    """Multiply host arrays tile by tile. Return whether a symmetric C has become so.

    Raises
    ------
    StaleError
        If the operands are not what was copied. Nothing is written to a C that is read.
    """
    (a, b, c), kept = arrays, operand_copies.of_operands
    if _are_tiles_columns(c, kept, staging.config.rows):  # C' = B' A'
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))
        kept = kept[::-1]
        if product.types is not None:
            product = product._replace(types=exact.types_of(a, b, c))
    a, b = (with_axes(x, c.ndim) for x in (a, b))
    share = share_of(staging, product, (a, b, c), kept)
    run_product(lambda: Call([share], operand_copies, is_nested).run())
    return share.has_symmetric_tiles


def share_of(
    staging: Staging,
    product: TiledProduct,
    arrays: tuple[HostArray, HostArray, HostArray],
    kept: tuple[OperandCopy | None, OperandCopy | None] = (None, None),
) -> Share:
    """Return the part of a call that one device computes, with its tiles."""
    a, b, c = arrays
    repeated_a, repeated_b = (
        tuple(n == 1 or s == 0 for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True))
        for x in (a, b)
    )
    sizes = c.shape[-2], c.shape[-1], 0 if product.precision is None else a.shape[-1]
    # The pool rounds an allocation up by a sixteenth at most.
    largest = product.device.limits.allocation_bytes // 17 * 16
    batch, repeated, keep = c.shape[:-2], (repeated_a, repeated_b), product.beta != 0
    stays = kept[0] is not None, kept[1] is not None
    # The device makes a whole result symmetric in less time than the host does.
    rows = c.shape[-2] if product.is_symmetric else 0
    types = product.types
    item_bytes = FLOAT_BYTES if types is None else max(x.itemsize for x in arrays)
    has_whole_sums = types is not None and types.c == "f2"  # they are rounded once

    plan = make_stream(
        *(batch, sizes, repeated, keep, staging.config, largest, rows, stays),
        *(item_bytes, has_whole_sums, product.is_symmetric, product.triangles),
    )
    return Share(staging, product, plan, arrays, (*kept, None))


def _are_tiles_columns(
    c: HostArray, kept: tuple[OperandCopy | None, OperandCopy | None], least: int
) -> bool:
    """Return whether tiles are cut along the columns of C and not along its rows.

    The operand with the other axis comes in whole before the first tile, so the longer axis is
    cut. Where one operand stays on the device, the other one is cut if it is long enough: nothing
    comes in whole then.

    Parameters
    ----------
    least : int
        The fewest rows of a tile.
    """
    m, n = map(int, c.shape[-2:])
    stays_a, stays_b = (each is not None for each in kept)
    if stays_a != stays_b and (n if stays_a else m) >= 2 * least:
        return stays_a
    return n > m
