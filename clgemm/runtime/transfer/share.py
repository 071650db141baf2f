"""What one device makes of a product of host arrays: its memory, and its tiles in order."""

from __future__ import annotations

import itertools

import pyopencl as cl

from clgemm.core.problem import Layout, dense_layout, memory_order
from clgemm.core.transfer import Stream, Tile, count_pieces
from clgemm.runtime.execute import BoundCall
from clgemm.runtime.loans import Kept
from clgemm.runtime.memory import Matrix
from clgemm.runtime.operands import LARGEST_ALIGNMENT, HostArray
from clgemm.runtime.transfer.checks import Checks
from clgemm.runtime.transfer.pieces import Slot
from clgemm.runtime.transfer.product import TiledProduct
from clgemm.runtime.transfer.staging import Staging

__all__ = ["Share"]


class Share:
    """The part of a call that one device makes.

    Attributes
    ----------
    unsent : list of int
        Pieces of each tile's operands that are not enqueued.
    checks : Checks or None
        What tells whether the result is finite.

    Parameters
    ----------
    arrays : tuple of float32 array
        A, B and C of this part.
    kept : tuple of Kept or None
        The copies of A and B that the device holds; None for C.
    """

    def __init__(
        self,
        staging: Staging,
        product: TiledProduct,
        plan: Stream,
        arrays: tuple[HostArray, HostArray, HostArray],
        kept: tuple[Kept | None, ...] = (None, None, None),
    ) -> None:
        self.staging, self.product, self.space = staging, product, product.space
        self.arrays, self.tiles, self.kept = arrays, plan.tiles, kept
        self.unsent = [0] * len(plan.tiles)
        self.checks: Checks | None = None
        self._elements, self._counts = plan.elements, plan.slots
        self._orders = [memory_order(x.strides) for x in arrays]
        self._bound: dict[tuple[Layout, Layout, Layout], BoundCall] = {}
        self._slots: list[list[Slot]] = []
        self._next = 0  # the tile to enqueue next

    @property
    def moved(self) -> int:
        """The elements that are sent or received."""
        pairs = zip(self.arrays, self.kept, strict=True)
        return sum(x.size for x, held in pairs if held is None)

    def make_slots(self, number: int) -> None:
        """Make the slots, without memory; this is share `number` of its call."""
        self._slots = [[Slot(number) for _ in range(count)] for count in self._counts]
        for index, tile in enumerate(self.tiles):
            for operand, which in enumerate(tile.slots):
                if self.kept[operand] is None:
                    self._slots[operand][which].tiles.append(index)

    def slot(self, tile: Tile, operand: int) -> Slot:
        """Return where a tile's block lies on the device."""
        return self._slots[operand][tile.slots[operand]]

    def block(self, tile: Tile, operand: int) -> HostArray:
        """Return a block of a host array, its axes in the order of its memory."""
        return self.arrays[operand][tile.blocks[operand]].transpose(self._orders[operand])

    def count(self, tile: Tile, operand: int, most: int) -> int:
        """Return the number of pieces of a tile's block."""
        return count_pieces(self.block(tile, operand).shape, most)

    def bind(self) -> None:
        """Plan and build what the tiles take."""
        layouts = {self._layouts(tile) for tile in self.tiles}
        self._bound = {
            each: self.product.bind(*each, is_whole=self._is_whole(each)) for each in layouts
        }

    @property
    def has_whole_tiles(self) -> bool:
        """Whether each tile has whole matrices."""
        return all(map(self._is_whole, self._bound))

    def _is_whole(self, layouts: tuple[Layout, Layout, Layout]) -> bool:
        a, _, c = self.arrays
        block_a, _, block_c = layouts
        return block_c.shape[-2:] == c.shape[-2:] and block_a.columns == a.shape[-1]

    def watch(self) -> None:
        """Prepare to tell whether the result is finite."""
        blocks = [self.block(tile, 2).size for tile in self.tiles if tile.last]
        self.checks = Checks(self.product, blocks)

    def allocate(self) -> None:
        """Allocate memory on the device."""
        for size, slots in zip(self._elements, self._slots, strict=True):
            for slot in slots:
                slot.buffer = self.product.allocate(max(size, 1))
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
        layouts = self._layouts(tile)
        slots, matrices = [], []
        for operand, layout in enumerate(layouts):
            if (kept := self.kept[operand]) is not None:
                matrices.append(kept.matrix(self.arrays[operand][tile.blocks[operand]]))
            else:
                slots.append(self.slot(tile, operand))
                matrices.append(Matrix(slots[-1].buffer, 0, layout))
        a, b, c = matrices
        before = [event for slot in slots for event in slot.ready] + slots[-1].users
        with self.space.lock:
            done = self.product.enqueue(self._bound[layouts], a, b, c, tile.first, before)
            self.space.queue.flush()
        for slot in slots:
            slot.ready = []  # what comes after on this queue comes after it too
            slot.users = [done]
            slot.tiles.pop(0)
        if tile.last and self.checks is not None:
            self.checks.enqueue(slots[-1].buffer, done)
        self._next += 1
        return done

    def _layouts(self, tile: Tile) -> tuple[Layout, Layout, Layout]:
        """Return how a tile's blocks lie on the device: dense, in the order of host memory."""
        a, b, c = (self._layout(tile, operand) for operand in range(3))
        return a, b, c

    def _layout(self, tile: Tile, operand: int) -> Layout:
        if (kept := self.kept[operand]) is not None:
            return kept.matrix(self.arrays[operand][tile.blocks[operand]]).layout
        shape = tuple(s.stop - s.start for s in tile.blocks[operand])
        return dense_layout(shape, self._orders[operand], LARGEST_ALIGNMENT)
