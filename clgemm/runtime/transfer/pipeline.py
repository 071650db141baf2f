"""Products of host arrays on a device with memory of its own, in overlapping tiles.

The caller's thread enqueues everything. Other threads fill and empty pinned memory.
"""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import Future

import pyopencl as cl

from clgemm.core.layout import Layout
from clgemm.core.nesting import is_within
from clgemm.core.transfer import FLOAT_BYTES, Stream, Tile, make_stream, memory_order
from clgemm.runtime.execute import BoundCall
from clgemm.runtime.loans import NOTHING_KEPT, Kept, Loan, StaleError, lend
from clgemm.runtime.memory import Matrix
from clgemm.runtime.operands import LARGEST_ALIGNMENT, HostArray, with_axes
from clgemm.runtime.regions import make_room
from clgemm.runtime.transfer.pieces import Arriving, Piece, Slot, cut, is_over, is_refused, shaped
from clgemm.runtime.transfer.product import TiledProduct
from clgemm.runtime.transfer.staging import Chunk, Staging
from clgemm.runtime.transfer.uploads import Lane, Uploads
from clgemm.runtime.waiting import answers_signals, finish, wait

__all__ = ["Call", "TiledProduct", "multiply_through"]

# Pieces that a call's transfers come in at least: while one goes the next is filled.
LEAST_PIECES = 16
SMALLEST_PIECE_BYTES = 2**19  # enqueueing a smaller one takes longer than its transfer


def multiply_through(
    staging: Staging,
    product: TiledProduct,
    a: HostArray,
    b: HostArray,
    c: HostArray,
    call_type: type[Call] | None = None,
) -> None:
    """Multiply host arrays tile by tile; the result is in `c` on return.

    Nothing is written to `c` before all that its tiles take has been built and allocated. If a
    command fails on the device after that, `c` may hold a part of the result.

    Parameters
    ----------
    a, b : float32 array, shapes (..., m, k) and (..., k, n)
        Of any strides; batches broadcast to that of `c`.
    c : float32 array, shape (..., m, n)
        Of any strides; it overlaps neither `a` nor `b`.
    call_type : type, optional
        The call's class if not `Call`: `bench --timeline` has one that records.
    """
    is_nested = is_within(Call.run)
    reads = product.precision is not None
    loan = lend(product.device, a, b, is_nested) if reads else NOTHING_KEPT
    kind = call_type or Call
    try:
        _multiply(staging, product, (a, b, c), loan, is_nested, kind)
        is_stale = False
    except StaleError:  # nothing is written yet to a `c` that is read
        is_stale = True
    if not is_stale:
        loan.count()
        return
    # Not while the exception is handled: its frames keep the chunks of the call that failed.
    _multiply(staging, product, (a, b, c), NOTHING_KEPT, is_nested, kind)
    loan.drop()


def _multiply(
    staging: Staging,
    product: TiledProduct,
    arrays: tuple[HostArray, HostArray, HostArray],
    loan: Loan,
    is_nested: bool,
    call_type: type[Call],
) -> None:
    (a, b, c), kept, rows = arrays, loan.kept, product.tile_rows
    if c.shape[-1] > c.shape[-2] and not rows:  # tiles are rows of the taller: C' = B' A'
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))
        kept = kept[::-1]
    a, b = (with_axes(x, c.ndim) for x in (a, b))
    repeated_a, repeated_b = (
        tuple(n == 1 or s == 0 for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True))
        for x in (a, b)
    )
    sizes = c.shape[-2], c.shape[-1], 0 if product.precision is None else a.shape[-1]
    # The pool rounds an allocation up by a sixteenth at most.
    largest = product.device.limits.allocation_bytes // 17 * 16
    batch, repeated, keep = c.shape[:-2], (repeated_a, repeated_b), product.beta != 0
    stays = kept[0] is not None, kept[1] is not None
    plan = make_stream(batch, sizes, repeated, keep, staging.config, largest, rows, stays)
    call = call_type(staging, product, plan, (a, b, c), (*kept, None), loan, is_nested)
    try:
        call.prepare()
    except cl.MemoryError:
        if not make_room(product.device):
            raise
        call.prepare()
    call.run()


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
        # Waits for a GPU are short: signals are answered between them.
        self._answers = product.is_slow and answers_signals()
        self._staging, self._space, self._product = staging, product.space, product
        self._arrays, self._plan, self._tiles = arrays, plan, plan.tiles
        self._orders = [memory_order(x.strides) for x in arrays]
        moved = sum(x.size for x, held in zip(arrays, kept, strict=True) if held is None)
        # A thread that is handing work to others cannot be entered again by the same caller.
        threaded = moved * FLOAT_BYTES >= staging.config.threaded_bytes and not is_nested
        self._copies = staging.copies(threaded)
        config = staging.config
        # After an interruption, slow commands run on in memory that is not the caller's.
        in_place = threaded and not (product.is_slow or product.wait_for)
        self._load_share = config.locking.loads if in_place else 0.0
        # C that is read stays whole until results arrive: they go through chunks.
        self._result_share = config.locking.results if in_place and product.beta == 0 else 0.0
        self._region_bytes = min(config.locking.region_bytes, config.chunk_bytes)
        self._prefaults = bool(config.prefault) and threaded and product.beta == 0
        self._locks = staging.page_locks(product.space.lock)
        least = max(moved // LEAST_PIECES, SMALLEST_PIECE_BYTES // FLOAT_BYTES)
        self._longest = min(least, config.chunk_bytes // FLOAT_BYTES)
        self._edge = min(self._longest, config.edge_bytes // FLOAT_BYTES or self._longest)
        self._bound: dict[tuple[Layout, Layout, Layout], BoundCall] = {}
        self._slots: list[list[Slot]] = []
        self._arriving: deque[Arriving] = deque()
        # Chunks, and what must be over before they change.
        self._down: deque[tuple[Chunk, Future[None] | None]] = deque()
        # A transfer's event waits for it when it dies, and so has to live as long as the call.
        self._transfers: list[cl.Event] = []
        lane = Lane(staging, self._copies, self._locks, self._space.lock, self._transfers)
        self._uploads = self._uploads_of(lane)

    def _uploads_of(self, lane: Lane) -> Uploads:
        return Uploads(lane)

    def prepare(self) -> None:
        """Build and allocate all that the tiles take."""
        layouts = {self._layouts(tile) for tile in self._tiles}
        self._bound = {each: self._product.bind(*each) for each in layouts}
        allocate, plan = self._space.allocate, self._plan
        buffers = [
            [allocate(FLOAT_BYTES * max(size, 1)) for _ in range(count)]
            for size, count in zip(plan.elements, plan.slots, strict=True)
        ]
        pending = self._space.pending()
        self._slots = [[Slot(buffer, pending) for buffer in own] for own in buffers]
        uploads = self._uploads
        for number, tile in enumerate(self._tiles):
            for operand, slot in enumerate(tile.slots):
                if self._kept[operand] is None:
                    self._slots[operand][slot].tiles.append(number)
            for operand in tile.loads:
                uploads.to_fill.extend((number, piece) for piece in self._pieces(tile, operand))
            if tile.last and self._result_share:
                results = self._pieces(tile, 2, is_result=True)
                uploads.to_fill.extend((number, piece) for piece in results if piece.in_place)
            if tile.last and self._prefaults and (block := self._block(tile, 2)).flags.c_contiguous:
                flat, step = block.reshape(-1), self._longest
                starts = range(0, flat.size, step)
                uploads.to_prefault.extend((number, flat[i : i + step]) for i in starts)

    def run(self) -> None:
        """Send the tiles through, and wait for the last result."""
        most = self._staging.config.chunks
        uploads = self._uploads
        up = min(most, sum(not piece.is_result for _, piece in uploads.to_fill))
        results = (len(self._pieces(t, 2, is_result=True)) for t in self._tiles if t.last)
        down = min(most, sum(results))
        lent = self._staging.lent(up + down, self._space.lock, self._is_nested)
        with lent as chunks:
            uploads.take(chunks[:up])
            self._down.extend((chunk, None) for chunk in chunks[up:])
            try:
                for number, tile in enumerate(self._tiles):
                    uploads.fill(self._wait)
                    while uploads.needs(number):
                        uploads.send()
                        uploads.fill(self._wait)
                        self._empty()
                    done = self._multiply(tile)
                    if tile.last:
                        uploads.end_prefault(number)
                        self._receive(tile, done)
                while self._arriving:
                    self._empty(waits=True)
                self._require_fresh()
                self._copies.finish_all()
                self._release_locks()
            except BaseException:
                self._abandon(chunks)
                raise

    def _block(self, tile: Tile, operand: int) -> HostArray:
        """Return a block of a host array, its axes in the order of its memory."""
        return self._arrays[operand][tile.blocks[operand]].transpose(self._orders[operand])

    def _pieces(self, tile: Tile, operand: int, is_result: bool = False) -> list[Piece]:
        """Return the pieces in which a tile's block comes in, or its result goes out."""
        block = self._block(tile, operand)
        slot = self._slots[operand][tile.slots[operand]]
        loads = self._load_share if operand < 2 else 0.0
        share = self._result_share if is_result else loads
        first, last = self._tiles[0], self._tiles[-1]
        is_edge = tile is last if is_result else tile is first and operand == tile.loads[0]
        most = self._longest
        if is_edge:  # not in many more pieces than others
            most = min(most, max(self._edge, block.size // LEAST_PIECES))
        return list(cut(block, slot, most, share, self._region_bytes, is_result))

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
            slot.ready = []  # what comes after on this queue comes after them too
            slot.users = [done]
            slot.tiles.pop(0)
        return done

    def _receive(self, tile: Tile, done: cl.Event) -> None:
        """Enqueue the transfers of a result."""
        slot = self._slots[2][tile.slots[2]]
        slot.users = []
        queue = self._staging.down
        for piece in self._pieces(tile, 2, is_result=True):
            lock = self._uploads.result_locks.popleft() if piece.in_place else None
            chunk = self._emptied() if lock is None or is_refused(lock) else None
            offset_bytes = FLOAT_BYTES * piece.first
            with self._space.lock:
                if lock is not None and chunk is None:
                    event = self._locks.receive(
                        queue, lock, piece.host, slot.buffer, offset_bytes, [done]
                    )
                else:
                    assert chunk is not None
                    event = cl.enqueue_copy(
                        queue,
                        chunk[: piece.size],
                        slot.buffer,
                        src_offset=offset_bytes,
                        is_blocking=False,
                        wait_for=[done],
                    )
                queue.flush()
            slot.users.append(event)
            self._transfers.append(event)
            self._arriving.append(Arriving(piece, chunk, event))

    def _emptied(self) -> Chunk:
        """Return a chunk whose contents have been copied to where they belong."""
        while not self._down:
            self._empty(waits=True)
        chunk, emptied = self._down.popleft()
        if emptied is not None:
            self._copies.finish(emptied)
        return chunk

    def _empty(self, waits: bool = False) -> None:
        """Have what has arrived copied to where it belongs; it `waits` for the next to arrive."""
        if self._arriving and not self._is_fresh:  # the result is not written to before
            if not waits and not self._loan.is_compared():
                return
            self._require_fresh()
        while self._arriving and (waits or is_over(self._arriving[0].event)):
            piece, chunk, event = self._arriving.popleft()
            self._wait(event)
            if chunk is not None:
                self._down.append((chunk, self._copies.start(piece.host, shaped(chunk, piece))))
            self._product.advance(piece.size * self._arrays[0].shape[-1])
            waits = False
        self._locks.release_over()

    def _require_fresh(self) -> None:
        if not self._is_fresh:
            self._loan.require_fresh()
            self._is_fresh = True

    def _wait(self, event: cl.Event) -> None:
        if self._answers and not is_over(event):
            wait(event, self)
        else:
            event.wait()

    def _abandon(self, chunks: list[Chunk]) -> None:
        """Wait until nothing reads or writes the caller's memory any more.

        Commands that take longer run on, in memory of the device and chunks that nobody else gets.
        """
        self._copies.abandon()
        memory = [self, *chunks]
        in_place = bool(self._load_share or self._result_share)  # their transfers are waited for
        for queue in (self._staging.up, self._space.queue, self._staging.down):
            with contextlib.suppress(cl.Error):
                if not finish(queue, self._space.lock, (), memory, to_the_end=in_place):
                    chunks.clear()
        if in_place:
            self._release_locks()

    def _release_locks(self) -> None:
        """Release page-locked memory and the events that may refer to it; all commands are over."""
        self._locks.close()
        self._transfers.clear()
        for slot in (slot for own in self._slots for slot in own):
            slot.ready, slot.users = [], []
