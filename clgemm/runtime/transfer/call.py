"""One product of host arrays, tile by tile.

The caller's thread enqueues everything. Other threads fill and empty pinned memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import pyopencl as cl

from clgemm.core.problem import FLOAT_BYTES
from clgemm.core.transfer import Tile
from clgemm.runtime.finite import watch
from clgemm.runtime.loans import Loan
from clgemm.runtime.operands import HostArray
from clgemm.runtime.transfer.crew import SIGNALS_SECONDS, Copy, Crew
from clgemm.runtime.transfer.link import Link
from clgemm.runtime.transfer.pieces import Piece, Slot, cut
from clgemm.runtime.transfer.share import Share
from clgemm.runtime.transfer.staging import Chunk, abandon

__all__ = ["Call"]

# Pieces that a call moves at least: while one is on the link, the next is filled. Of 16 pieces,
# products of sides from 768 to 2048 took up to 1.3 times as long: threads waited for each other.
LEAST_PIECES = 8
SMALLEST_PIECE_BYTES = 2**19  # enqueueing a smaller one takes longer than its transfer
LOOKS_SECONDS = 5e-5  # between two looks at the transfers while threads copy


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
        self, shares: Sequence[Share], loan: Loan, is_nested: bool, has_common_b: bool = False
    ) -> None:
        self._shares, self._loan, self._is_fresh = shares, loan, False
        self._is_nested = is_nested
        first = shares[0]
        self._staging, self._product = first.staging, first.product
        config = self._staging.config
        self._has_common_b = has_common_b
        moved = sum(share.moved for share in shares)
        if has_common_b:
            moved -= (len(shares) - 1) * first.arrays[1].size
        # A product within another one does not tell for it.
        self._watch = None if is_nested else watch()
        # A thread that is handing work to others cannot be entered again by the same caller.
        is_threaded = moved * FLOAT_BYTES >= config.threaded_bytes and not is_nested
        least = max(moved // LEAST_PIECES, SMALLEST_PIECE_BYTES // FLOAT_BYTES)
        self._longest = min(least, config.chunk_bytes // FLOAT_BYTES)
        self._edge = min(self._longest, config.edge_bytes // FLOAT_BYTES or self._longest)
        self._crew: Crew[Copy] = Crew(self._staging, is_threaded)
        self._up, self._down = self._new_link(True), self._new_link(False)
        self._chunks: list[Chunk] = []
        self._to_load: Iterator[tuple[int, Piece]] = iter(())  # not begun
        self._unbegun = 0  # the number of those
        self._coming = 0  # pieces of operands that are not in chunks
        self._loaded: list[Copy] = []  # in chunks, not enqueued
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
        lock = self._shares[0].space.lock
        lent = self._staging.lent(up + down, lock, self._is_nested)
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
        self._to_load = _pieces(loads)

    def _new_link(self, is_up: bool) -> Link:
        stagings = [share.staging for share in self._shares]
        queues = [each.up if is_up else each.down for each in stagings]
        locks = [share.space.lock for share in self._shares]
        return Link(queues, locks, is_up, self._product.is_slow)

    def _bind(self) -> None:
        """Plan and build what the tiles take."""
        for share in self._shares:
            share.bind()

    def _allocate(self) -> None:
        for share in self._shares:
            if self._watch is not None:
                share.watch()
            share.allocate()

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
                self._product.advance(copy.piece.size * self._shares[0].arrays[0].shape[-1])

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
        """Enqueue each share's next tile if its operands are, and tell whether there was one."""
        found = False
        for share in self._shares:
            tile = share.ready_tile()
            if tile is None:
                continue
            found = True
            done = share.multiply(tile)
            slot = share.slot(tile, 2)
            if tile.last and (count := self._count(share, tile, 2, is_result=True)):
                most = self._most(share, tile, 2, is_result=True)
                pieces = cut(share.block(tile, 2), (slot,), most)
                self._results.extend((piece, done) for piece in pieces)
                slot.unfetched, slot.users = count, []
        return found

    def _receive(self) -> bool:
        """Enqueue transfers of results, as chunks are free, and tell whether there were any."""
        free = self._down.free
        if not (self._results and free):
            return False
        while self._results and free:
            piece, done = self._results.popleft()
            store = Copy.from_chunk(piece, free.pop())
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
                if self._coming and self._down.free and not self._loan.is_compared():
                    return
                self._loan.require_fresh()
                self._is_fresh = True
            self._crew.copy(self._down.take())

    def _count(self, share: Share, tile: Tile, operand: int, is_result: bool = False) -> int:
        """Return the number of pieces of a tile's block."""
        return share.count(tile, operand, self._most(share, tile, operand, is_result))

    def _most(self, share: Share, tile: Tile, operand: int, is_result: bool = False) -> int:
        """Return the most elements of a piece of a tile's block, which comes in or goes out."""
        first, last = share.tiles[0], share.tiles[-1]
        is_edge = tile is last if is_result else tile is first and operand == tile.loads[0]
        if not is_edge:
            return self._longest
        # Not in many more pieces than others.
        size = share.block(tile, operand).size
        return min(self._longest, max(self._edge, size // LEAST_PIECES))

    def _abandon(self) -> None:
        """Wait until nothing reads or writes the caller's memory any more."""
        self._crew.abandon()
        for share in self._shares:
            for queue in (share.staging.up, share.space.queue, share.staging.down):
                abandon(queue, share.space)


def _pieces(
    loads: Iterable[tuple[int, HostArray, tuple[Slot, ...], int]],
) -> Iterator[tuple[int, Piece]]:
    """Yield the pieces of blocks of operands, each with the first tile that needs it.

    Parameters
    ----------
    loads : iterable of tuple
        That tile, a block, its slots, and the most elements of a piece.
    """
    for number, block, slots, most in loads:
        for piece in cut(block, slots, most):
            yield number, piece
