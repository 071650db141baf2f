"""Products of packed panels: what the tiled and the blocked family share.

Pure. A family describes its kernels as `Panels`. The functions here cut the product to fit the
scratch memory, and plan it block by block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Generic, NamedTuple, TypeVar

from clgemm.core.config import KernelConfig
from clgemm.core.plan import (
    LAST_GROUP,
    LONGEST_SUM,
    Argument,
    Batch,
    Element,
    Plan,
    Side,
    Slice,
    Slot,
    Step,
    batch_of,
    ceil_div,
    round_up,
    slices,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, Level, batch_levels
from clgemm.core.traits import Limits
from clgemm.kernels.common.family import Choice
from clgemm.kernels.pack.plan import PackConfig, pack_config, pack_step
from clgemm.kernels.split_k.plan import Target, target

# The most bytes of both packed operands together; larger products are cut into blocks. A pair of
# 8192 x 8192 matrices fits, padding included.
SCRATCH_BYTES = 3 * 2**28
# The smallest depth of a block of k. At this depth, the read and write of C that each block costs
# takes far less time than its arithmetic.
SMALLEST_DEPTH = 1024

SIDES: tuple[Side, Side] = ("a", "b")
PACKED: tuple[Slot, Slot] = ("packed_a", "packed_b")

Pack = TypeVar("Pack", bound=KernelConfig)


class Blocks(NamedTuple):
    """How a product is cut."""

    rows: tuple[int, int]  # of A and of B' in a block
    depth: int  # columns of a block
    matrices: int  # whose blocks are packed at a time


class Place(NamedTuple):
    """A block of a product."""

    part: Slice  # the part of the batch that it belongs to
    sizes: tuple[int, int, int]  # m, n and k
    origins: tuple[int, int, int]  # elements from the first of A, B and C to the block
    is_first: bool  # it is the first block of k, to which beta applies


@dataclass
class Scratch:
    """The bytes of scratch memory that a plan needs, by slot."""

    sizes: dict[Slot, int] = field(default_factory=dict)

    def reserve(self, slot: Slot, size_bytes: int) -> None:
        """Make the memory of a slot at least this large; 0 leaves it out."""
        if size_bytes:
            self.sizes[slot] = max(self.sizes.get(slot, 0), size_bytes)

    def plan(self, steps: Iterable[Step], counted_products: int = 0) -> Plan:
        """Return the plan of these launches, which reserve its memory as they are generated."""
        return Plan(tuple(steps), tuple(self.sizes.items()), counted_products)


@dataclass(frozen=True)
class Panels(ABC, Generic[Pack]):
    """A product of panels, and how a family's kernels want its blocks."""

    a: Layout  # A and B have the batch of C
    b: Layout
    c: Layout
    tiles: tuple[int, int]  # rows of a panel of A, and of B'
    packed: tuple[bool, bool]  # A and B are packed; otherwise kernels read them in place
    pack: tuple[Pack, ...]  # the configs that pack them
    limits: Limits

    @property
    def rows(self) -> tuple[Layout, Layout]:
        """A and B', whose rows form the panels: B is read like A'."""
        return self.a, self.b.transposed()

    @property
    @abstractmethod
    def grain(self) -> int:
        """The depth of every block of k, except the last, is a multiple of this."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """The largest depth that one launch may sum."""

    @abstractmethod
    def padded(self, depth: int) -> int:
        """Return the columns of a packed block of this depth, padding included."""

    @abstractmethod
    def pack_sizes(self, operand: int, rows: int, depth: int) -> dict[str, int]:
        """Return the packing kernel's size arguments, in the order of its parameters."""

    @abstractmethod
    def pack_groups(self, operand: int, rows: int, depth: int) -> int:
        """Return the work-groups that pack one matrix."""

    @abstractmethod
    def multiply(self, place: Place, scratch: Scratch) -> Iterator[Step]:
        """Yield the launches that multiply a block, and reserve their scratch memory."""

    def pack_config(self, operand: int, rows: int, depth: int) -> KernelConfig:
        """Return the config that packs a block of this size."""
        return self.pack[operand]

    def packs_itself(self, place: Place) -> bool:
        """Return whether the launch that multiplies also packs A."""
        return False

    def most_matrices(self, rows: int, depth: int) -> int:
        """Return how many blocks of A of this size may be packed at a time."""
        return LAST_GROUP

    def packed_bytes(self, operand: int, rows: int, depth: int) -> int:
        """Return the bytes of one matrix's packed block, 0 if it is read in place."""
        padded = round_up(rows, self.tiles[operand]) * self.padded(depth)
        return FLOAT_BYTES * padded * self.packed[operand]


@dataclass(frozen=True)
class LanePanels(Panels[PackConfig]):
    """A product of panels on devices that spread work-items over lanes."""

    slices: int  # of k

    @property
    def longest(self) -> int:
        """The longest sum, times the slices, which are summed separately."""
        return LONGEST_SUM * self.slices

    def pack_sizes(self, operand: int, rows: int, depth: int) -> dict[str, int]:
        """Return rows, columns, and columns with their padding."""
        return {"rows": rows, "columns": depth, "padded_columns": self.padded(depth)}

    def pack_groups(self, operand: int, rows: int, depth: int) -> int:
        """Return the work-groups that pack one matrix."""
        pack = self.pack[operand]
        return ceil_div(rows, pack.panel) * ceil_div(self.padded(depth), pack.depth)


def with_panels(config: KernelConfig, tiles: tuple[int, ...], limits: Limits) -> Choice:
    """Return the choice of a config whose operands are packed into panels of its tiles."""
    return Choice(config, tuple(pack_config(limits, tile) for tile in tiles))


def blocks_of(panels: Panels[Pack]) -> Blocks:
    """Cut k, then m and n, until each packed block fits; then choose the matrices at a time."""
    # The pool of scratch memory rounds sizes up by a sixteenth at most.
    most_bytes = min(SCRATCH_BYTES // 2, panels.limits.allocation_bytes // 17 * 16)
    rows, depth, grain = [panels.c.rows, panels.c.columns], panels.a.columns, panels.grain

    def too_large(operand: int) -> bool:
        return panels.packed_bytes(operand, rows[operand], depth) > most_bytes

    # Blocks of nearly one size: a last one of a few steps would load and store C for little work.
    cuts = ceil_div(depth, panels.longest)
    depth = round_up(ceil_div(depth, cuts), grain)
    smallest = min(depth, round_up(SMALLEST_DEPTH, grain))
    while depth > smallest and (too_large(0) or too_large(1)):
        depth = max(round_up(ceil_div(depth, 2), grain), smallest)
    groups = 1
    for operand, tile in enumerate(panels.tiles):
        while too_large(operand) and rows[operand] > tile:
            rows[operand] = round_up(ceil_div(rows[operand], 2), tile)
        groups *= ceil_div(rows[operand], tile)
    for operand in range(len(panels.pack)):
        groups = max(groups, panels.pack_groups(operand, rows[operand], depth))
    largest = max(panels.packed_bytes(i, rows[i], depth) for i in (0, 1))
    matrices = max(1, min(most_bytes // max(largest, 1), LAST_GROUP // groups))
    matrices = min(matrices, panels.most_matrices(rows[0], depth))
    return Blocks((rows[0], rows[1]), depth, matrices)


def make_panel_plan(panels: Panels[Pack]) -> Plan:
    """Return the launches that pack and multiply, block by block."""
    scratch = Scratch()
    return scratch.plan(_steps(panels, blocks_of(panels), scratch))


def _steps(panels: Panels[Pack], blocks: Blocks, scratch: Scratch) -> Iterator[Step]:
    (a, b), c = panels.rows, panels.c
    m, n, k = c.rows, c.columns, a.columns
    for part in slices(batch_levels(panels.a, panels.b, c), blocks.matrices, 3):
        for n_0, k_0 in product(range(0, n, blocks.rows[1]), range(0, k, blocks.depth)):
            columns, depth = min(blocks.rows[1], n - n_0), min(blocks.depth, k - k_0)
            b_0 = n_0 * b.row_stride + k_0 * b.column_stride
            yield from _pack(panels, "b", part, b_0, columns, depth, scratch)
            for m_0 in range(0, m, blocks.rows[0]):
                rows = min(blocks.rows[0], m - m_0)
                a_0 = m_0 * a.row_stride + k_0 * a.column_stride
                c_0 = m_0 * c.row_stride + n_0 * c.column_stride
                place = Place(part, (rows, columns, depth), (a_0, b_0, c_0), k_0 == 0)
                if not panels.packs_itself(place):
                    yield from _pack(panels, "a", part, a_0, rows, depth, scratch)
                yield from panels.multiply(place, scratch)


def _pack(
    panels: Panels[Pack],
    side: Side,
    part: Slice,
    origin: int,
    rows: int,
    depth: int,
    scratch: Scratch,
) -> Iterator[Step]:
    operand = SIDES.index(side)
    if not panels.packed[operand]:
        return
    batch = batch_of(own_levels(part.levels, operand), 1)
    size_bytes = panels.packed_bytes(operand, rows, depth)
    scratch.reserve(PACKED[operand], batch.matrices * size_bytes)
    config = panels.pack_config(operand, rows, depth)
    sizes = panels.pack_sizes(operand, rows, depth)
    first, to = Element(side, part.offsets[operand] + origin), (PACKED[operand], 0)
    groups = panels.pack_groups(operand, rows, depth)
    yield pack_step(config, sizes, panels.rows[operand], batch, first, to, groups)


def target_of(
    panels: Panels[Pack],
    place: Place,
    cuts: int,
    batch: Batch,
    scratch: Scratch,
    fused: tuple[int, int] | None = None,
) -> Target:
    """Return where a block of the product is stored, and reserve its scratch memory.

    Parameters
    ----------
    cuts : int
        Slices of k.
    fused : tuple of int, optional
        As for `clgemm.kernels.split_k.plan.target`.
    """
    (m, n, _), part = place.sizes, place.part
    beta: Argument = "beta" if place.is_first else 1.0
    first = place.origins[2] + part.offsets[2]
    result = target((m, n, cuts), part.levels, batch, beta, panels.c, first, panels.limits, fused)
    scratch.reserve("partial", result.partial_bytes)
    return result


def batch_over(part: Slice, strides_a: tuple[int, ...], strides_b: tuple[int, ...]) -> Batch:
    """Return the loops over a part of the batch, with these strides for A and B."""
    every = zip(part.levels, strides_a, strides_b, strict=True)
    return batch_of(tuple(Level(level.count, (i, j, level.strides[2])) for level, i, j in every), 3)


def strides_of(levels: tuple[Level, ...], operand: int) -> tuple[int, ...]:
    """Return an operand's strides in the loops over a batch."""
    return tuple(level.strides[operand] for level in levels)


def own_levels(levels: tuple[Level, ...], operand: int) -> tuple[Level, ...]:
    """Return the loops over distinct matrices of one operand: a repeated one is packed once."""
    return tuple(
        Level(level.count, (level.strides[operand],)) for level in levels if level.strides[operand]
    )


def packed_strides(levels: tuple[Level, ...], operand: int, matrix: int) -> tuple[int, ...]:
    """Return an operand's strides in its packed batch, which has each matrix once, in order."""
    strides: list[int] = []
    step = matrix
    for level in reversed(levels):
        repeated = level.strides[operand] == 0
        strides.insert(0, 0 if repeated else step)
        step *= 1 if repeated else level.count
    return tuple(strides)
