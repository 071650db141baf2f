"""The steps of the register family: panels for vector registers and caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from clgemm.config import FLOAT_BYTES, Limits, RegisterConfig, VectorPackConfig
from clgemm.layout import Layout
from clgemm.panels import AnyPackConfig, Panels, packed_strides, stack_over
from clgemm.steps import (
    LAST_GROUP,
    Argument,
    Element,
    Slice,
    Step,
    ceil_div,
    dense_levels,
    reduce_config,
    reduce_step,
    round_up,
    stack_of,
)

__all__ = ["RegisterPanels"]

# What a work-group's reading of its operands costs, in multiply-adds of one row or column: each
# block of C reads its own. Measured on AVX-512 Xeons; a slice of k costs a write and a read of C.
READ_COST = 8
SLICE_COST = 48
SMALLEST_SLICE = 512
FEW_PANELS = 64  # per compute unit: with more pairs of panels, k is not cut
RUN_COST = 12  # of each run of rows that packing reads, in rows
TRANSPOSED = 16  # blocks of k are multiples of this: what packing transposes at once, at most


class RegisterPanels(Panels):
    """Blocks in vector registers: panels of one block of k lie together, blocks behind each other.

    One launch packs an operand to its whole depth and one multiplies, whatever k is.
    """

    def __init__(
        self,
        a: Layout,
        b: Layout,
        c: Layout,
        config: RegisterConfig,
        pack: tuple[AnyPackConfig, AnyPackConfig],
        limits: Limits,
    ) -> None:
        aliases = config.aliasing > 0 and a.row_stride % config.aliasing == 0
        in_place = config.in_place and a.column_stride == 1 and not aliases
        self.config = replace(config, in_place=in_place)
        super().__init__(a, b, c, pack, limits)

    def lies_in_place(self, operand: int) -> bool:
        """Tell whether it is A, and read where it lies."""
        return operand == 0 and self.config.in_place

    @property
    def grain(self) -> int:
        """Whole vectors of packing's transposition."""
        return TRANSPOSED

    @property
    def longest(self) -> int:
        """Any: blocks of k are added up in C."""
        return LAST_GROUP

    def padded(self, depth: int) -> int:
        """Return the columns of a packed block: its own."""
        return depth

    def block_depth(self, depth: int) -> int:
        """Return the depth of the blocks of k: all of one size, the last at most a little less."""
        cuts = ceil_div(depth, self.config.block_k)
        return min(round_up(ceil_div(depth, cuts), TRANSPOSED), self.config.block_k)

    def pack_sizes(self, operand: int, rows: int, depth: int) -> tuple[int, ...]:
        """Return rows, columns, the depth of a block and the panels per work-group."""
        return rows, depth, self.block_depth(depth), self._panels_at_a_time(operand, rows, depth)

    def pack_groups(self, operand: int, rows: int, depth: int) -> int:
        """Return the work-groups that pack one matrix."""
        panels = ceil_div(rows, self.pack[operand].panel)
        parts = ceil_div(panels, self._panels_at_a_time(operand, rows, depth))
        return parts * ceil_div(depth, self.block_depth(depth))

    def _panels_at_a_time(self, operand: int, rows: int, depth: int) -> int:
        """Return the panels per work-group: many, since long runs are read fastest, and even."""
        pack = self.pack[operand]
        assert isinstance(pack, VectorPackConfig)
        panels, blocks = ceil_div(rows, pack.panel), ceil_div(depth, self.block_depth(depth))

        def expected(at_a_time: int) -> float:
            rounds = ceil_div(ceil_div(panels, at_a_time) * blocks, self.limits.compute_units)
            return rounds * (at_a_time * pack.panel + RUN_COST)

        return min(range(1, min(pack.panels, panels) + 1), key=expected)

    def multiply(
        self, part: Slice, sizes: tuple[int, int, int], origins: tuple[int, int, int], first: bool
    ) -> Iterator[Step]:
        """Yield the launch that multiplies, and one that adds up if k is cut into slices."""
        (m, n, k), levels = sizes, part.levels
        block_k = self.block_depth(k)
        panels_a: tuple[Argument, ...] = "packed_a", 0, 0
        strides_a = packed_strides(levels, 0, round_up(m, self.config.tile_m) * k)
        if self.config.in_place:
            panels_a = "a", Element("a", part.offsets[0] + origins[0]), self.rows[0].row_stride
            strides_a = tuple(level.strides[0] for level in levels)
        strides_b = packed_strides(levels, 1, round_up(n, self.config.tile_n) * k)
        stack = stack_over(part, strides_a, strides_b)
        block_m, block_n, slice_k = self._spread(sizes, stack.matrices, block_k)
        cuts = ceil_div(k, slice_k)
        blocks = stack.matrices * cuts
        blocks *= ceil_div(m, block_m * self.config.tile_m)
        blocks *= ceil_div(n, block_n * self.config.tile_n)
        scales: tuple[Argument, ...] = "alpha", "beta" if first else 1.0
        position = Element("c", part.offsets[2] + origins[2])
        to: tuple[Argument, ...] = (
            "c",
            position,
            self.c.row_stride,
            self.c.column_stride,
            0,
            stack.strides[2],
        )
        result: tuple[tuple[Argument, ...], tuple[Argument, ...]] = scales, to
        if cuts > 1:
            self.reserve("partial", FLOAT_BYTES * stack.matrices * cuts * m * n)
            apart = stack_of(dense_levels(levels, cuts * m * n), 1)
            result = (1.0, 0.0), ("partial", 0, n, 1, m * n, apart.strides[0])
        yield Step(
            self.config,
            "iiiiiiiIffbllLbLbllllLib",
            min(blocks, self.limits.compute_units) if self.config.draw else blocks,
            (
                *(m, n, k, slice_k, block_m, block_n, block_k, stack.counts),
                *result[0],
                *(*panels_a, stack.strides[0]),
                *("packed_b", stack.strides[1]),
                *result[1],
                *(blocks, "tickets"),
            ),
        )
        if cuts > 1:
            adding = reduce_config(cuts, self.limits)
            yield reduce_step((m, n, cuts), stack, scales, (*to[:4], to[5]), adding)

    def _spread(
        self, sizes: tuple[int, int, int], matrices: int, block_k: int
    ) -> tuple[int, int, int]:
        """Return the panels of A and of B per work-group and the depth of a slice of k.

        What is expected to end first, in steps of one panel of each per compute unit: all of them
        busy to the end, and little read twice.
        """
        config, (m, n, k) = self.config, sizes
        units = self.limits.compute_units
        panels_m, panels_n = ceil_div(m, config.tile_m), ceil_div(n, config.tile_n)
        work = matrices * panels_m * panels_n

        def expected(choice: tuple[int, int, int]) -> float:
            block_m, block_n, slice_k = choice
            cuts = ceil_div(k, slice_k)
            groups = matrices * cuts * ceil_div(panels_m, block_m) * ceil_div(panels_n, block_n)
            block = block_m * block_n / cuts
            # The last group begins, on average, half a group before the others have ended.
            last = max(ceil_div(groups, units) * block, work / units + block / 2)
            read = READ_COST / (block_m * config.tile_m) + READ_COST / (block_n * config.tile_n)
            return last * (1 + read + (SLICE_COST / slice_k if cuts > 1 else 0))

        cuts_k, slices_k = 1, [k]
        few = work < FEW_PANELS * units
        while few and cuts_k < units * 4 and k // (2 * cuts_k) >= SMALLEST_SLICE:
            cuts_k *= 2
            slices_k.append(round_up(ceil_div(k, cuts_k), block_k))
        return min(
            product(
                _even_parts(panels_m, config.block_m),
                _even_parts(panels_n, config.block_n),
                slices_k,
            ),
            key=expected,
        )


def _even_parts(count: int, most: int) -> list[int]:
    """Return the sizes, up to `most`, that cut `count` things into parts of nearly one size."""
    parts = range(ceil_div(count, most), count + 1)
    sizes = dict.fromkeys(ceil_div(count, n) for n in parts[: 4 * most])
    return list(sizes)
