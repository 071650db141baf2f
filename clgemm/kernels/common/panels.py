"""The steps of the kernel families that read packed panels: pack, multiply, block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import product
from typing import TypeAlias

from clgemm.core.config import FLOAT_BYTES, KernelConfig, Limits
from clgemm.core.layout import Layout, Level, batch_levels
from clgemm.core.steps import (
    LAST_GROUP,
    Argument,
    Element,
    Plan,
    Side,
    Slice,
    Slot,
    Stack,
    Step,
    ceil_div,
    round_up,
    slices,
    stack_of,
)
from clgemm.kernels.pack.config import PackConfig, VectorPackConfig
from clgemm.kernels.split_k.plan import Target, target

__all__ = [
    "PACKED",
    "SIDES",
    "AnyPackConfig",
    "Panels",
    "own_levels",
    "pack_step",
    "packed_strides",
    "stack_over",
]

AnyPackConfig: TypeAlias = PackConfig | VectorPackConfig

# Both packed operands together stay below this, however large the matrices; larger products go in
# blocks. 768 MiB hold a packed 8192 x 8192 pair, padding included.
SCRATCH_BYTES = 3 * 2**28
# The smallest depth that a blocked product cuts k into: at 1024 the read and write of C that each
# block costs is far below its arithmetic.
SMALLEST_DEPTH = 1024

SIDES: tuple[Side, Side] = ("a", "b")
PACKED: tuple[Slot, Slot] = ("packed_a", "packed_b")


def pack_step(
    config: KernelConfig,
    sizes: Mapping[str, int],
    layout: Layout,
    stack: Stack,
    first: Element,
    to: tuple[Slot, int | Element],
    groups: int,
) -> Step:
    """Return the launch that packs an operand's matrices, `groups` work-groups for each.

    Parameters
    ----------
    sizes : mapping of str to int
        `rows`, `columns`, and what else of sizes the packing kernel takes, in its order.
    """
    slot, offset = to
    arguments: dict[str, Argument] = {
        **sizes,
        "counts": stack.counts,
        "from": first.slot,
        "from_offset": first,
        "row_stride": layout.row_stride,
        "column_stride": layout.column_stride,
        "from_strides": stack.strides[0],
        "to": slot,
        "to_offset": offset,
    }
    return Step(config, groups * stack.matrices, arguments)


class Panels(ABC):
    """What the families share: operands cut until their packed blocks fit the scratch memory."""

    def __init__(
        self,
        a: Layout,
        b: Layout,
        c: Layout,
        tiles: tuple[int, int],
        pack: tuple[AnyPackConfig, ...],
        limits: Limits,
    ) -> None:
        self.c, self.tiles, self.pack, self.limits = c, tiles, pack, limits
        # B is read like A': both are panels of rows, k deep.
        self.rows = (a, b.transposed())
        self.levels = batch_levels(a, b, c)
        self.packs = tuple(not self.lies_in_place(operand) for operand in (0, 1))
        # The pool that scratch is of goes up by a sixteenth at most.
        self.most_bytes = min(SCRATCH_BYTES // 2, limits.allocation_bytes // 17 * 16)
        self.blocks = [c.rows, c.columns]  # rows of A and of B that are packed at a time
        self.depth = a.columns  # and their depth
        self.matrices = 1  # and how many of them
        self.scratch: dict[Slot, int] = {}  # bytes
        self._fit_blocks()

    def lies_in_place(self, operand: int) -> bool:  # noqa: ARG002 - what subclasses look at
        """Tell whether the kernel reads the operand itself."""
        return False

    def packs_itself(
        self,
        part: Slice,  # noqa: ARG002 - what subclasses look at
        sizes: tuple[int, int, int],  # noqa: ARG002 - likewise
    ) -> bool:
        """Tell whether the launch that multiplies packs A."""
        return False

    def pack_config(
        self,
        operand: int,
        rows: int,  # noqa: ARG002 - what subclasses look at
        depth: int,  # noqa: ARG002 - likewise
    ) -> AnyPackConfig:
        """Return how blocks of that size are packed."""
        return self.pack[operand]

    @property
    @abstractmethod
    def grain(self) -> int:
        """Blocks of k are multiples of this, but the last."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """The depth that one launch may sum."""

    @abstractmethod
    def padded(self, depth: int) -> int:
        """Return the columns that a packed block of so many takes."""

    @abstractmethod
    def pack_sizes(self, operand: int, rows: int, depth: int) -> dict[str, int]:
        """Return the sizes that the packing kernel takes, by its parameters, in their order."""

    @abstractmethod
    def pack_groups(self, operand: int, rows: int, depth: int) -> int:
        """Return the work-groups that pack one matrix."""

    @abstractmethod
    def multiply(
        self, part: Slice, sizes: tuple[int, int, int], origins: tuple[int, int, int], first: bool
    ) -> Iterator[Step]:
        """Yield the launches that multiply packed blocks; only the first of k applies beta."""

    def packed_bytes(self, operand: int, rows: int, depth: int) -> int:
        """Return what the packed block of one matrix takes, 0 if it is read where it lies."""
        padded = round_up(rows, self.tiles[operand]) * self.padded(depth)
        return FLOAT_BYTES * padded * self.packs[operand]

    def _fit_blocks(self) -> None:
        """Cut k, then m and n, until each packed block fits; then count the matrices at a time."""

        def too_large(operand: int) -> bool:
            return self.packed_bytes(operand, self.blocks[operand], self.depth) > self.most_bytes

        # Blocks of one size: a last one of a few steps would load and store C for nothing.
        cuts = ceil_div(self.depth, self.longest)
        self.depth = round_up(ceil_div(self.depth, cuts), self.grain)
        smallest = min(self.depth, round_up(SMALLEST_DEPTH, self.grain))
        while self.depth > smallest and (too_large(0) or too_large(1)):
            self.depth = max(round_up(ceil_div(self.depth, 2), self.grain), smallest)
        groups = 1
        for operand, tile in enumerate(self.tiles):
            while too_large(operand) and self.blocks[operand] > tile:
                self.blocks[operand] = round_up(ceil_div(self.blocks[operand], 2), tile)
            groups *= ceil_div(self.blocks[operand], tile)
        for operand in range(len(self.pack)):
            groups = max(groups, self.pack_groups(operand, self.blocks[operand], self.depth))
        largest = max(self.packed_bytes(i, self.blocks[i], self.depth) for i in (0, 1))
        self.matrices = max(1, min(self.most_bytes // max(largest, 1), LAST_GROUP // groups))

    def plan(self) -> Plan:
        """Return the finished plan."""
        steps = tuple(self._steps())
        return Plan(steps, tuple(self.scratch.items()))

    def reserve(self, slot: Slot, size_bytes: int) -> None:
        """Make the scratch memory of a slot large enough."""
        self.scratch[slot] = max(self.scratch.get(slot, 0), size_bytes)

    def target(
        self,
        sizes: tuple[int, int, int],
        part: Slice,
        stack: Stack,
        origin: int,
        first: bool,
        pieces: tuple[int, int] | None = None,
    ) -> Target:
        """Return where a block of the product, m x n x slices of k, is stored; its scratch taken.

        Parameters
        ----------
        origin : int
            Elements from the first of C to the block.
        first : bool
            Whether it is the first of k, which beta is for.
        pieces : tuple of int, optional
            As for `clgemm.core.steps.target`.
        """
        beta: Argument = "beta" if first else 1.0
        origin += part.offsets[2]
        result = target(sizes, part.levels, stack, beta, self.c, origin, self.limits, pieces)
        if result.partial_bytes:
            self.reserve("partial", result.partial_bytes)
        return result

    def _steps(self) -> Iterator[Step]:
        a, b, c = *self.rows, self.c
        m, n, k = c.rows, c.columns, a.columns
        for part in slices(self.levels, self.matrices, 3):
            for n_0, k_0 in product(range(0, n, self.blocks[1]), range(0, k, self.depth)):
                columns, depth = min(self.blocks[1], n - n_0), min(self.depth, k - k_0)
                b_0 = n_0 * b.row_stride + k_0 * b.column_stride
                yield from self._pack("b", part, b_0, columns, depth)
                for m_0 in range(0, m, self.blocks[0]):
                    rows = min(self.blocks[0], m - m_0)
                    sizes = rows, columns, depth
                    a_0 = m_0 * a.row_stride + k_0 * a.column_stride
                    if not self.packs_itself(part, sizes):
                        yield from self._pack("a", part, a_0, rows, depth)
                    c_0 = m_0 * c.row_stride + n_0 * c.column_stride
                    yield from self.multiply(part, sizes, (a_0, b_0, c_0), k_0 == 0)

    def _pack(self, side: Side, part: Slice, origin: int, rows: int, depth: int) -> Iterator[Step]:
        operand = SIDES.index(side)
        if not self.packs[operand]:
            return
        stack = stack_of(own_levels(part.levels, operand), 1)
        self.reserve(PACKED[operand], stack.matrices * self.packed_bytes(operand, rows, depth))
        config = self.pack_config(operand, rows, depth)
        sizes = self.pack_sizes(operand, rows, depth)
        first, to = Element(side, part.offsets[operand] + origin), (PACKED[operand], 0)
        groups = self.pack_groups(operand, rows, depth)
        yield pack_step(config, sizes, self.rows[operand], stack, first, to, groups)


def stack_over(part: Slice, strides_a: tuple[int, ...], strides_b: tuple[int, ...]) -> Stack:
    """Return a part's loops with other strides for A and B than the operands' own."""
    every = zip(part.levels, strides_a, strides_b, strict=True)
    return stack_of(tuple(Level(level.count, (i, j, level.strides[2])) for level, i, j in every), 3)


def own_levels(levels: tuple[Level, ...], operand: int) -> tuple[Level, ...]:
    """Return the loops that reach new matrices of one operand: repeated ones are packed once."""
    return tuple(
        Level(level.count, (level.strides[operand],)) for level in levels if level.strides[operand]
    )


def packed_strides(levels: tuple[Level, ...], operand: int, matrix: int) -> tuple[int, ...]:
    """Return an operand's strides in its packed stack: each of its matrices once, in order."""
    strides: list[int] = []
    step = matrix
    for level in reversed(levels):
        repeated = level.strides[operand] == 0
        strides.insert(0, 0 if repeated else step)
        step *= 1 if repeated else level.count
    return tuple(strides)
