"""One product of host arrays, tile by tile.

The caller's thread enqueues everything. Other threads fill and empty pinned memory.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable
from functools import partial

import pyopencl as cl

from clgemm.core.layout import Layout
from clgemm.core.transfer import FLOAT_BYTES, Stream, Tile, memory_order
from clgemm.runtime.execute import BoundCall
from clgemm.runtime.finite import watch
from clgemm.runtime.loans import Kept, Loan
from clgemm.runtime.memory import Matrix
from clgemm.runtime.operands import LARGEST_ALIGNMENT, HostArray
from clgemm.runtime.regions import make_room
from clgemm.runtime.transfer.crew import Crew, Load, Store
from clgemm.runtime.transfer.pieces import Piece, Slot, cut, wait_until_over
from clgemm.runtime.transfer.product import TiledProduct
from clgemm.runtime.transfer.staging import Chunk, Staging
from clgemm.runtime.transfer.sums import LEAST_COLUMNS, RowSums
from clgemm.runtime.waiting import finish

__all__ = ["Call"]

# Pieces that a call moves at least: while one is on the link, the next is filled. Of 16 pieces,
# products of sides from 768 to 2048 took up to 1.3 times as long: threads waited for each other.
LEAST_PIECES = 8
SMALLEST_PIECE_BYTES = 2**19  # enqueueing a smaller one takes longer than its transfer


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
        self._threaded = moved * FLOAT_BYTES >= config.threaded_bytes and not is_nested
        least = max(moved // LEAST_PIECES, SMALLEST_PIECE_BYTES // FLOAT_BYTES)
        self._longest = min(least, config.chunk_bytes // FLOAT_BYTES)
        self._edge = min(self._longest, config.edge_bytes // FLOAT_BYTES or self._longest)
        self._bound: dict[tuple[Layout, Layout, Layout], BoundCall] = {}
        self._slots: list[list[Slot]] = []
        # A transfer's event waits for it when it dies, and so has to live as long as the call.
        self._transfers: list[cl.Event] = []
        self._crew = self._new_crew(product.is_slow)
        self._chunks: list[Chunk] = []
        self._to_load: deque[tuple[int, Piece]] = deque()  # by tile; not begun
        self._coming = 0  # loads that are not in chunks
        self._loaded: list[Load] = []  # in chunks, not enqueued
        self._unsent = [0] * len(self._tiles)  # loads of each tile that are not enqueued
        self._next = 0  # the tile to enqueue next
        self._outgoing: list[list[Piece]] = []  # the pieces of each tile's result
        self._results: deque[tuple[Piece, cl.Event]] = deque()  # of those, not enqueued
        self._free: list[Chunk] = []  # for results
        self._held: list[Store] = []  # until it is known that resident operands have not changed
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
        with lent as self._chunks, self._staging.threads_lent(self._threaded) as has_threads:
            try:
                for chunk in self._chunks[:up]:
                    self._begin_load(chunk, None)
                self._free += self._chunks[up:]
                if not self._coming:
                    self._crew.end_loads()
                if has_threads:
                    most = max(self._coming, self._unstored)
                    self._crew.start(min(config.threads, most), config.storers)
                self._allocate()  # while the first pieces are copied
                self._enqueue()
                while self._unstored:
                    self._note(self._crew.next())
                    self._enqueue()
                for event in self._transfers:
                    wait_until_over(event)  # raises the error of one that failed
                self._crew.end()
                if self._watch and self._sums and self._sums.are_finite():
                    self._watch.elements += self._arrays[2].size
            except BaseException:
                self._abandon()  # before the chunks are given back
                raise

    def _plan_pieces(self) -> None:
        """Cut all that is sent and received into pieces."""
        self._slots = [[Slot() for _ in range(count)] for count in self._plan.slots]
        for number, tile in enumerate(self._tiles):
            for operand, slot in enumerate(tile.slots):
                if self._kept[operand] is None:
                    self._slots[operand][slot].tiles.append(number)
            pieces = [piece for operand in tile.loads for piece in self._pieces(tile, operand)]
            self._to_load.extend((number, piece) for piece in pieces)
            self._unsent[number] = len(pieces)
            self._outgoing.append(self._pieces(tile, 2, is_result=True) if tile.last else [])
        self._coming = len(self._to_load)
        self._unstored = sum(map(len, self._outgoing))

    def _new_crew(self, is_slow: bool) -> Crew:
        return Crew(self._staging, is_slow)

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

    def _begin_load(self, chunk: Chunk, before: cl.Event | None) -> None:
        """Have the next piece copied to a chunk once a transfer is over."""
        if self._to_load:
            tile, piece = self._to_load.popleft()
            self._crew.load(Load(tile, piece, chunk, before))
            if not self._to_load:
                self._crew.end_loads()

    def _note(self, done: Load | Store) -> None:
        """Note what has been copied."""
        if isinstance(done, Load):
            self._coming -= 1
            self._loaded.append(done)
        else:
            self._unstored -= 1
            self._free.append(done.chunk)
            self._product.advance(done.piece.size * self._arrays[0].shape[-1])

    def _enqueue(self) -> None:
        """Enqueue all that can be, each of which may make way for more."""
        while self._send() | self._multiply_next() | self._receive():
            pass
        if self._held:
            self._store_held()

    def _send(self) -> bool:
        """Enqueue the transfers of what is in chunks, and tell whether there were any."""
        waiting = []
        for load in self._loaded:
            slot = load.piece.slot
            if slot.is_needed_before(load.tile):
                waiting.append(load)
                continue
            # The other pieces of a block come after the first that is sent.
            before, slot.users = slot.users, []
            event = self._transfer_up(load.piece, load.chunk, before)
            slot.ready = [event]  # all before it on the same queue are over by then
            self._unsent[load.tile] -= 1
            self._begin_load(load.chunk, event)
        found, self._loaded = len(waiting) < len(self._loaded), waiting
        if found:
            self._flush(self._staging.up)
        return found

    def _transfer_up(self, piece: Piece, chunk: Chunk, before: list[cl.Event]) -> cl.Event:
        queue, start = self._staging.up, FLOAT_BYTES * piece.first
        ends = queue, piece.slot.buffer, chunk[: piece.size]
        return self._transfer(partial(cl.enqueue_copy, *ends, dst_offset=start), before)

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
        if pieces := self._outgoing[self._next]:
            self._results.extend((piece, done) for piece in pieces)
            slot.unfetched, slot.users = len(pieces), []
        self._next += 1
        return True

    def _receive(self) -> bool:
        """Enqueue transfers of results, as chunks are free, and tell whether there were any."""
        found = bool(self._results and self._free)
        while self._results and self._free:
            piece, done = self._results.popleft()
            chunk = self._free.pop()  # the last one used: it may still be in the cache
            event = self._transfer_down(piece, chunk, done)
            piece.slot.users.append(event)
            piece.slot.unfetched -= 1
            self._held.append(Store(piece, chunk, event))
        if found:
            self._flush(self._staging.down)
        return found

    def _store_held(self) -> None:
        """Have results copied to where they belong, once the operands are known to be fresh."""
        if not self._is_fresh:
            # Until then there is time while operands come in and chunks are free.
            if self._coming and self._free and not self._loan.is_compared():
                return
            self._loan.require_fresh()
            self._is_fresh = True
        for store in self._held:
            self._crew.store(store)
        self._held = []

    def _transfer_down(self, piece: Piece, chunk: Chunk, done: cl.Event) -> cl.Event:
        queue, start = self._staging.down, FLOAT_BYTES * piece.first
        ends = queue, chunk[: piece.size], piece.slot.buffer
        return self._transfer(partial(cl.enqueue_copy, *ends, src_offset=start), [done])

    def _transfer(self, copy: Callable[..., cl.Event], before: list[cl.Event]) -> cl.Event:
        """Enqueue a transfer without waiting for it."""
        with self._space.lock:
            event = copy(is_blocking=False, wait_for=before)
        self._transfers.append(event)
        return event

    def _flush(self, queue: cl.CommandQueue) -> None:
        with self._space.lock:
            queue.flush()

    def _block(self, tile: Tile, operand: int) -> HostArray:
        """Return a block of a host array, its axes in the order of its memory."""
        return self._arrays[operand][tile.blocks[operand]].transpose(self._orders[operand])

    def _pieces(self, tile: Tile, operand: int, is_result: bool = False) -> list[Piece]:
        """Return the pieces in which a tile's block comes in, or its result goes out."""
        block = self._block(tile, operand)
        slot = self._slots[operand][tile.slots[operand]]
        first, last = self._tiles[0], self._tiles[-1]
        is_edge = tile is last if is_result else tile is first and operand == tile.loads[0]
        most = self._longest
        if is_edge:  # not in many more pieces than others
            most = min(most, max(self._edge, block.size // LEAST_PIECES))
        return list(cut(block, slot, most))

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
