"""Products of host arrays on a device with memory of its own, in overlapping tiles.

The caller's thread enqueues everything. Other threads fill and empty pinned memory.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

import pyopencl as cl

from clgemm.core.layout import Layout
from clgemm.core.nesting import is_within
from clgemm.core.problem import Problem
from clgemm.core.transfer import FLOAT_BYTES, Stream, Tile, make_stream, memory_order, pieces
from clgemm.hardware.device import Device
from clgemm.runtime.execute import BoundCall, bind, execute_matrices
from clgemm.runtime.loans import NOTHING_KEPT, Kept, Loan, StaleError, lend
from clgemm.runtime.memory import Matrix
from clgemm.runtime.operands import LARGEST_ALIGNMENT, HostArray
from clgemm.runtime.regions import make_room
from clgemm.runtime.transfer.pieces import Arriving, Filling, Piece, Slot, is_over, shaped
from clgemm.runtime.transfer.staging import Chunk, Copies, Staging
from clgemm.runtime.waiting import answers_signals, finish, wait
from clgemm.runtime.workspace import Workspace

__all__ = ["TiledProduct", "multiply_through"]

# Pieces that a call's transfers come in at least: while one goes the next is filled.
LEAST_PIECES = 16
SMALLEST_PIECE_BYTES = 2**19  # enqueueing a smaller one takes longer than its transfer


class TiledProduct(NamedTuple):
    """What the device computes with each tile: C = alpha A B + beta C.

    Attributes
    ----------
    precision : str or None
        As `Problem.precision`: without, `a` and `b` are not read.
    wait_for : sequence of pyopencl.Event
        Events that every tile waits for.
    is_slow : bool
        Whether a tile may take so long that signals should be answered meanwhile.
    """

    alpha: float
    beta: float
    precision: str | None
    device: Device
    space: Workspace
    wait_for: Sequence[cl.Event]
    is_slow: bool = False

    def bind(self, a: Layout, b: Layout, c: Layout) -> BoundCall:
        """Return what computes a tile of these layouts, built and set up; enqueue nothing."""
        return bind(Problem(a, b, c, self.precision), self.device, self.space)

    def enqueue(
        self, bound: BoundCall, a: Matrix, b: Matrix, c: Matrix, first: bool, before: list[cl.Event]
    ) -> cl.Event:
        """Enqueue a tile: the `first` of its block of C, or one that adds to what is there."""
        beta = self.beta if first else 1.0
        return execute_matrices(bound, self.alpha, a, b, beta, c, [*self.wait_for, *before])


def multiply_through(
    staging: Staging, product: TiledProduct, a: HostArray, b: HostArray, c: HostArray
) -> None:
    """Multiply host arrays tile by tile; the result is in `c` on return.

    Nothing is written to `c` before all that its tiles take has been built and allocated. If a
    command fails on the device after that, `c` may hold a part of the result.

    Parameters
    ----------
    a, b : float32 array, shapes (..., m, k) and (..., k, n)
        Of any strides; stacks broadcast to that of `c`.
    c : float32 array, shape (..., m, n)
        Of any strides; it overlaps neither `a` nor `b`.
    """
    is_nested = is_within(_Call.run)
    reads = product.precision is not None
    loan = lend(product.device, a, b, is_nested) if reads else NOTHING_KEPT
    try:
        _multiply(staging, product, (a, b, c), loan, is_nested)
    except StaleError:  # nothing is written to `c` yet
        _multiply(staging, product, (a, b, c), NOTHING_KEPT, is_nested)
        loan.drop()
    else:
        loan.count()


def _multiply(
    staging: Staging,
    product: TiledProduct,
    arrays: tuple[HostArray, HostArray, HostArray],
    loan: Loan,
    is_nested: bool,
) -> None:
    (a, b, c), kept = arrays, loan.kept
    if c.shape[-1] > c.shape[-2]:  # tiles are rows of the taller: C' = B' A'
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))
        kept = kept[::-1]
    a, b = (x[(None,) * (c.ndim - x.ndim)] for x in (a, b))
    repeated_a, repeated_b = (
        tuple(n == 1 or s == 0 for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True))
        for x in (a, b)
    )
    sizes = c.shape[-2], c.shape[-1], 0 if product.precision is None else a.shape[-1]
    # The pool rounds an allocation up by a sixteenth at most.
    largest = product.device.limits.allocation_bytes // 17 * 16
    repeated = repeated_a, repeated_b
    keep = product.beta != 0
    stays = kept[0] is not None, kept[1] is not None
    plan = make_stream(c.shape[:-2], sizes, repeated, keep, staging.config, largest, stays)
    call = _Call(staging, product, plan, (a, b, c), (*kept, None), loan, is_nested)
    try:
        call.prepare()
    except cl.MemoryError:
        if not make_room(product.device):
            raise
        call.prepare()
    call.run()


class _Call:
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
        self._copies = Copies(staging, threaded)
        least = max(moved // LEAST_PIECES, SMALLEST_PIECE_BYTES // FLOAT_BYTES)
        self._longest = min(least, staging.config.chunk_bytes // FLOAT_BYTES)
        self._bound: dict[tuple[Layout, Layout, Layout], BoundCall] = {}
        self._slots: list[list[Slot]] = []
        self._to_fill: deque[tuple[int, Piece]] = deque()
        self._filling: deque[Filling] = deque()
        self._arriving: deque[Arriving] = deque()
        # Chunks, and what must be over before they change.
        self._up: deque[tuple[Chunk, cl.Event | None]] = deque()
        self._down: deque[tuple[Chunk, Future[None] | None]] = deque()
        # A transfer's event waits for it when it dies, and so has to live as long as the call.
        self._transfers: list[cl.Event] = []

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
        self._to_fill.extend(
            (number, piece)
            for number, tile in enumerate(self._tiles)
            for operand in tile.loads
            for piece in self._pieces(tile, operand)
        )

    def run(self) -> None:
        """Send the tiles through, and wait for the last result."""
        most = self._staging.config.chunks
        up = min(most, len(self._to_fill))
        down = min(most, sum(len(self._pieces(t, 2)) for t in self._tiles if t.last))
        lent = self._staging.lent(up + down, self._space.lock, self._is_nested)
        with lent as chunks:
            self._up.extend((chunk, None) for chunk in chunks[:up])
            self._down.extend((chunk, None) for chunk in chunks[up:])
            try:
                for number, tile in enumerate(self._tiles):
                    self._fill()
                    while self._filling and self._filling[0].tile == number:
                        self._send()
                        self._fill()
                        self._empty()
                    done = self._multiply(tile)
                    if tile.last:
                        self._receive(tile, done)
                while self._arriving:
                    self._empty(waits=True)
                self._require_fresh()
                self._copies.finish_all()
            except BaseException:
                self._abandon(chunks)
                raise

    def _block(self, tile: Tile, operand: int) -> HostArray:
        """Return a block of a host array, its axes in the order of its memory."""
        return self._arrays[operand][tile.blocks[operand]].transpose(self._orders[operand])

    def _pieces(self, tile: Tile, operand: int) -> list[Piece]:
        block = self._block(tile, operand)
        slot = self._slots[operand][tile.slots[operand]]
        return [
            Piece(slot, block[index], first, size)
            for index, first, size in pieces(block.shape, self._longest)
        ]

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

    def _fill(self) -> None:
        """Have free chunks filled with what goes up next; at least one if nothing else is."""
        while self._to_fill and self._up and (not self._filling or is_over(self._up[0][1])):
            chunk, sent = self._up.popleft()
            if sent is not None:
                self._wait(sent)
            tile, piece = self._to_fill.popleft()
            filled = self._copies.start(shaped(chunk, piece), piece.host)
            self._filling.append(Filling(tile, piece, chunk, filled))

    def _send(self) -> None:
        """Enqueue the transfer of the oldest piece in pinned memory."""
        _, (slot, _, first, size), chunk, filled = self._filling.popleft()
        self._copies.finish(filled)
        with self._space.lock:
            if first == 0:
                slot.ready = []
            event = cl.enqueue_copy(
                self._staging.up,
                slot.buffer,
                chunk[:size],
                dst_offset=FLOAT_BYTES * first,
                is_blocking=False,
                wait_for=slot.users if first == 0 else None,  # the others come after it
            )
            self._staging.up.flush()
        if first == 0:
            slot.users = []
        slot.ready.append(event)
        self._transfers.append(event)
        self._up.append((chunk, event))

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
        return done

    def _receive(self, tile: Tile, done: cl.Event) -> None:
        """Enqueue the transfers of a result."""
        slot = self._slots[2][tile.slots[2]]
        slot.users = []
        for piece in self._pieces(tile, 2):
            if not self._down:
                self._empty(waits=True)
            chunk, emptied = self._down.popleft()
            if emptied is not None:
                self._copies.finish(emptied)
            with self._space.lock:
                event = cl.enqueue_copy(
                    self._staging.down,
                    chunk[: piece.size],
                    slot.buffer,
                    src_offset=FLOAT_BYTES * piece.first,
                    is_blocking=False,
                    wait_for=[done],
                )
                self._staging.down.flush()
            slot.users.append(event)
            self._transfers.append(event)
            self._arriving.append(Arriving(piece, chunk, event))

    def _empty(self, waits: bool = False) -> None:
        """Have what has arrived copied to where it belongs; it `waits` for the next to arrive."""
        if self._arriving and not self._is_fresh:  # the result is not written to before
            if not waits and not self._loan.is_compared():
                return
            self._require_fresh()
        while self._arriving and (waits or is_over(self._arriving[0].event)):
            piece, chunk, event = self._arriving.popleft()
            self._wait(event)
            self._down.append((chunk, self._copies.start(piece.host, shaped(chunk, piece))))
            waits = False

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
        for queue in (self._staging.up, self._space.queue, self._staging.down):
            with contextlib.suppress(cl.Error):
                if not finish(queue, self._space.lock, (), memory):
                    chunks.clear()
