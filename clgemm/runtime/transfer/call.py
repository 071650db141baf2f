"""One product of host arrays, tile by tile.

The caller's thread enqueues everything. Other threads fill and empty pinned memory.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator

import pyopencl as cl

from clgemm.core.layout import Layout
from clgemm.core.transfer import FLOAT_BYTES, Stream, Tile, count_pieces, memory_order
from clgemm.runtime.execute import BoundCall
from clgemm.runtime.finite import watch
from clgemm.runtime.loans import Kept, Loan
from clgemm.runtime.memory import Matrix
from clgemm.runtime.operands import LARGEST_ALIGNMENT, HostArray
from clgemm.runtime.regions import make_room
from clgemm.runtime.transfer.crew import Copy, Crew
from clgemm.runtime.transfer.link import Link
from clgemm.runtime.transfer.pieces import Piece, Slot, cut
from clgemm.runtime.transfer.product import TiledProduct
from clgemm.runtime.transfer.staging import Chunk, Staging
from clgemm.runtime.transfer.sums import LEAST_COLUMNS, RowSums
from clgemm.runtime.waiting import finish

__all__ = ["Call"]

# Pieces that a call moves at least: while one is on the link, the next is filled. Of 16 pieces,
# products of sides from 768 to 2048 took up to 1.3 times as long: threads waited for each other.
LEAST_PIECES = 8
SMALLEST_PIECE_BYTES = 2**19  # enqueueing a smaller one takes longer than its transfer
LOOKS_SECONDS = 5e-5  # between two looks at the transfers while threads copy
SIGNALS_SECONDS = 0.1  # Windows answers signals between two waits only


class Call:
    """One product: its memory on the device, and what is under way."""

    def __init__(
        self,
        staging: Staging,
        product: TiledProduct,
        plan: Stream,
        arrays: tuple[HostArray, HostArray, HostArray],
        kept: tuple[Kept | None, ...],
        loan: Loan,
        is_nested: bool,
    ) -> None:
        self._kept, self._loan, self._is_fresh = kept, loan, False
        self._is_nested = is_nested
        self._staging, self._space, self._product = staging, product.space, product
        self._arrays, self._plan, self._tiles = arrays, plan, plan.tiles
        self._orders = [memory_order(x.strides) for x in arrays]
        config = staging.config
        moved = sum(x.size for x, held in zip(arrays, kept, strict=True) if held is None)
        # A product within another one does not tell for it.
        self._watch = None if is_nested else watch()
        self._sums: RowSums | None = None
        # A thread that is handing work to others cannot be entered again by the same caller.
        is_threaded = moved * FLOAT_BYTES >= config.threaded_bytes and not is_nested
        least = max(moved // LEAST_PIECES, SMALLEST_PIECE_BYTES // FLOAT_BYTES)
        self._longest = min(least, config.chunk_bytes // FLOAT_BYTES)
        self._edge = min(self._longest, config.edge_bytes // FLOAT_BYTES or self._longest)
        self._bound: dict[tuple[Layout, Layout, Layout], BoundCall] = {}
        self._slots: list[list[Slot]] = []
        self._crew = self._new_crew(is_threaded)
        self._up = self._new_link(staging.up, True)
        self._down = self._new_link(staging.down, False)
        self._chunks: list[Chunk] = []
        self._to_load: Iterator[tuple[int, Piece]] = iter(())  # not begun
        self._unbegun = 0  # the number of those
        self._coming = 0  # pieces of operands that are not in chunks
        self._loaded: list[Copy] = []  # in chunks, not enqueued
        self._unsent = [0] * len(self._tiles)  # pieces of each tile that are not enqueued
        self._next = 0  # the tile to enqueue next
        self._results: deque[tuple[Piece, cl.Event]] = deque()  # computed, not enqueued
        self._unstored = 0  # pieces of the result that are not where they belong

    def run(self) -> None:
        """Send the tiles through, and wait for the last result.

        Nothing goes to the result before all that the tiles take is built and allocated.
        """
        self._plan_pieces()
        self._bind()  # which may compile: no chunk waits for that
        config = self._staging.config
        up, down = min(config.chunks, self._coming), min(config.chunks, self._unstored)
        lent = self._staging.lent(up + down, self._space.lock, self._is_nested)
        with lent as self._chunks:
            try:
                self._up.free += self._chunks[:up]
                self._down.free += self._chunks[up:]
                self._begin_loads()
                self._allocate()  # while the first pieces are copied
                self._enqueue()
                while self._unstored:
                    self._wait()
                    self._enqueue()
                while self._up:
                    self._up.wait()  # raises the error of one that failed
                    self._up.take()
                if self._watch and self._sums and self._sums.are_finite():
                    self._watch.elements += self._arrays[2].size
            except BaseException:
                self._abandon()  # before the chunks are given back
                raise

    def _plan_pieces(self) -> None:
        """Count the pieces in which all is sent and received."""
        self._slots = [[Slot() for _ in range(count)] for count in self._plan.slots]
        loads = []
        for number, tile in enumerate(self._tiles):
            for operand, which in enumerate(tile.slots):
                if self._kept[operand] is None:
                    self._slots[operand][which].tiles.append(number)
            for operand in tile.loads:
                slot = self._slots[operand][tile.slots[operand]]
                loads.append((number, self._block(tile, operand), slot, self._most(tile, operand)))
            self._unsent[number] = sum(self._count(tile, operand) for operand in tile.loads)
            self._unstored += self._count(tile, 2, is_result=True) if tile.last else 0
        self._coming = self._unbegun = sum(self._unsent)
        self._to_load = _pieces(loads)

    def _new_crew(self, is_threaded: bool) -> Crew:
        return Crew(self._staging, is_threaded)

    def _new_link(self, queue: cl.CommandQueue, is_up: bool) -> Link:
        return Link(queue, self._space.lock, is_up, self._product.is_slow)

    def _bind(self) -> None:
        """Plan and build what the tiles take."""
        layouts = {self._layouts(tile) for tile in self._tiles}
        self._bound = {each: self._product.bind(*each) for each in layouts}
        if self._watch is not None:
            self._sums = self._new_sums()

    def _allocate(self) -> None:
        """Allocate memory on the device; resident arrays make room if they have to."""
        try:
            self._allocate_all()
        except cl.MemoryError:
            if not make_room(self._product.device):
                raise
            self._allocate_all()

    def _allocate_all(self) -> None:
        for size, slots in zip(self._plan.elements, self._slots, strict=True):
            for slot in slots:
                slot.buffer = self._space.allocate(FLOAT_BYTES * max(size, 1))
        if self._sums is not None:
            self._sums.allocate()
        pending = self._space.order.pending()
        for slot in itertools.chain(*self._slots):
            slot.users = list(pending)

    def _new_sums(self) -> RowSums | None:
        """Return the sums that tell whether the result is finite; None if they do not pay."""
        shapes = [self._block(tile, 2).shape for tile in self._tiles if tile.last]
        blocks = [(math.prod(shape[:-1]), shape[-1]) for shape in shapes]
        if LEAST_COLUMNS * sum(rows for rows, _ in blocks) > self._arrays[2].size:
            return None
        return RowSums(self._product, blocks)

    def _wait(self) -> None:
        """Wait until something has been copied or moved."""
        if not self._crew.under_way:
            (self._up if self._up and self._unbegun else self._down or self._up).wait()
            return
        looks = self._down or (self._unbegun and not self._up.free)
        for copy in self._crew.done(LOOKS_SECONDS if looks else SIGNALS_SECONDS):
            if copy.tile is not None:
                self._coming -= 1
                self._loaded.append(copy)
            else:
                self._unstored -= 1
                self._down.free.append(copy.chunk)
                self._product.advance(copy.piece.size * self._arrays[0].shape[-1])

    def _enqueue(self) -> None:
        """Begin all that can be."""
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
            self._crew.copy(Copy.to_chunk(piece, up.free.pop(), tile))

    def _send(self) -> None:
        """Enqueue the transfers of what is in chunks."""
        if not self._loaded:
            return
        waiting = []
        for load in self._loaded:
            slot, tile = load.piece.slot, load.tile
            assert tile is not None
            if slot.is_needed_before(tile):
                waiting.append(load)
                continue
            # The other pieces of a block come after the first that is sent.
            before, slot.users = slot.users, []
            slot.ready = [self._up.enqueue(load, before)]
            self._unsent[tile] -= 1
        if len(waiting) < len(self._loaded):
            self._up.flush()
        self._loaded = waiting

    def _multiply_next(self) -> bool:
        """Enqueue the next tile if its operands are, and tell whether it was enqueued."""
        if self._next == len(self._tiles) or self._unsent[self._next]:
            return False
        tile = self._tiles[self._next]
        slot = self._slots[2][tile.slots[2]]
        if slot.unfetched:
            return False
        done = self._multiply(tile)
        if tile.last and self._sums is not None:
            self._sums.enqueue(slot.buffer, done)
        if tile.last and (count := self._count(tile, 2, is_result=True)):
            pieces = cut(self._block(tile, 2), slot, self._most(tile, 2, is_result=True))
            self._results.extend((piece, done) for piece in pieces)
            slot.unfetched, slot.users = count, []
        self._next += 1
        return True

    def _receive(self) -> bool:
        """Enqueue transfers of results, as chunks are free, and tell whether there were any."""
        free = self._down.free
        if not (self._results and free):
            return False
        while self._results and free:
            piece, done = self._results.popleft()
            store = Copy.from_chunk(piece, free.pop())
            piece.slot.users.append(self._down.enqueue(store, [done]))
            piece.slot.unfetched -= 1
        self._down.flush()
        return True

    def _store(self) -> None:
        """Have results that have arrived copied to where they belong.

        Nothing is copied before the operands are known to be fresh.
        """
        while self._down.is_over():
            if not self._is_fresh:
                # Until then there is time while operands come in and chunks are free.
                if self._coming and self._down.free and not self._loan.is_compared():
                    return
                self._loan.require_fresh()
                self._is_fresh = True
            self._crew.copy(self._down.take())

    def _block(self, tile: Tile, operand: int) -> HostArray:
        """Return a block of a host array, its axes in the order of its memory."""
        return self._arrays[operand][tile.blocks[operand]].transpose(self._orders[operand])

    def _count(self, tile: Tile, operand: int, is_result: bool = False) -> int:
        """Return the number of pieces of a tile's block."""
        return count_pieces(self._block(tile, operand).shape, self._most(tile, operand, is_result))

    def _most(self, tile: Tile, operand: int, is_result: bool = False) -> int:
        """Return the most elements of a piece of a tile's block, which comes in or goes out."""
        first, last = self._tiles[0], self._tiles[-1]
        is_edge = tile is last if is_result else tile is first and operand == tile.loads[0]
        if not is_edge:
            return self._longest
        # Not in many more pieces than others.
        size = self._block(tile, operand).size
        return min(self._longest, max(self._edge, size // LEAST_PIECES))

    def _layouts(self, tile: Tile) -> tuple[Layout, Layout, Layout]:
        """Return how a tile's blocks lie on the device: dense, in the order of host memory."""
        a, b, c = (self._layout(tile, operand) for operand in range(3))
        return a, b, c

    def _layout(self, tile: Tile, operand: int) -> Layout:
        if (kept := self._kept[operand]) is not None:
            return kept.matrix(self._arrays[operand][tile.blocks[operand]]).layout
        shape = tuple(s.stop - s.start for s in tile.blocks[operand])
        strides, step = [0] * len(shape), 1
        for axis in reversed(self._orders[operand]):
            strides[axis] = step
            step *= shape[axis]
        return Layout(shape, tuple(strides), LARGEST_ALIGNMENT)

    def _multiply(self, tile: Tile) -> cl.Event:
        layouts = self._layouts(tile)
        slots, matrices = [], []
        for operand, layout in enumerate(layouts):
            if (kept := self._kept[operand]) is not None:
                matrices.append(kept.matrix(self._arrays[operand][tile.blocks[operand]]))
            else:
                slots.append(self._slots[operand][tile.slots[operand]])
                matrices.append(Matrix(slots[-1].buffer, 0, layout))
        a, b, c = matrices
        before = [event for slot in slots for event in slot.ready] + slots[-1].users
        with self._space.lock:
            done = self._product.enqueue(self._bound[layouts], a, b, c, tile.first, before)
            self._space.queue.flush()
        for slot in slots:
            slot.ready = []  # what comes after on this queue comes after it too
            slot.users = [done]
            slot.tiles.pop(0)
        return done

    def _abandon(self) -> None:
        """Wait until nothing reads or writes the caller's memory any more.

        Commands that take longer run on, in memory of the device and chunks that nobody else gets.
        """
        self._crew.abandon()
        memory = [self, *self._chunks]
        for queue in (self._staging.up, self._space.queue, self._staging.down):
            with contextlib.suppress(cl.Error):
                if not finish(queue, self._space.lock, (), memory):
                    self._chunks.clear()
                    self._space.order.forget()


def _pieces(loads: Iterable[tuple[int, HostArray, Slot, int]]) -> Iterator[tuple[int, Piece]]:
    """Yield the pieces of blocks of operands, each with the first tile that needs it.

    Parameters
    ----------
    loads : iterable of tuple
        That tile, a block, its slot, and the most elements of a piece.
    """
    for number, block, slot, most in loads:
        for piece in cut(block, slot, most):
            yield number, piece
