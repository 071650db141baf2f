"""The steps of the register family: panels for vector registers and caches."""

from __future__ import annotations

from collections.abc import Iterator

from clgemm.config import FLOAT_BYTES, Limits, ReduceConfig, RegisterConfig, VectorPackConfig
from clgemm.layout import Layout
from clgemm.panels import AnyPackConfig, Panels, dense_levels, packed_strides, stack_over
from clgemm.steps import LAST_GROUP, Argument, Element, Slice, Step, ceil_div, round_up, stack_of

__all__ = ["RegisterPanels"]

# Work-groups per compute unit that keep all of them busy to the end, on processors that other
# programs share: the last group of one is what the others wait for.
GROUPS_PER_UNIT = 8
# Blocks of C are not made smaller than this for the sake of more work-groups: each reads its
# operands for itself.
SMALLEST_BLOCK = 64
SMALLEST_SLICE = 1024  # nor is k cut into shorter slices: each costs a write and a read of C
TRANSPOSED = (
    16  # blocks of k are multiples of this, the most columns that packing transposes at once
)


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
        self.config = config
        super().__init__(a, b, c, pack, limits)

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

    def third_size(self, depth: int) -> int:
        """Return the depth of the blocks of k: all of one size, the last at most a little less."""
        cuts = ceil_div(depth, self.config.block_k)
        return min(round_up(ceil_div(depth, cuts), TRANSPOSED), self.config.block_k)

    def pack_groups(self, operand: int, rows: int, depth: int) -> int:
        """Return the work-groups that pack one matrix."""
        pack = self.pack[operand]
        assert isinstance(pack, VectorPackConfig)
        return ceil_div(rows, pack.panel * pack.panels) * ceil_div(depth, self.third_size(depth))

    def multiply(
        self, part: Slice, sizes: tuple[int, int, int], origins: tuple[int, int, int], first: bool
    ) -> Iterator[Step]:
        """Yield the launch that multiplies, and one that adds up if k is cut into slices."""
        (m, n, k), levels = sizes, part.levels
        block_k = self.third_size(k)
        strides_a = packed_strides(levels, 0, round_up(m, self.config.tile_m) * k)
        strides_b = packed_strides(levels, 1, round_up(n, self.config.tile_n) * k)
        stack = stack_over(part, strides_a, strides_b)
        block_m, block_n, slice_k = self._spread(sizes, stack.matrices, block_k)
        cuts = ceil_div(k, slice_k)
        groups = stack.matrices * cuts
        groups *= ceil_div(m, block_m * self.config.tile_m)
        groups *= ceil_div(n, block_n * self.config.tile_n)
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
            "iiiiiiiIffbLbLbllllL",
            groups,
            (
                *(m, n, k, slice_k, block_m, block_n, block_k, stack.counts),
                *result[0],
                *("packed_a", stack.strides[0]),
                *("packed_b", stack.strides[1]),
                *result[1],
            ),
        )
        if cuts > 1:
            reduce = ReduceConfig(group=1, width=self.config.width)
            yield Step(
                reduce,
                "iiiIffbblllL",
                stack.matrices * m * ceil_div(n, reduce.group * reduce.width),
                (m, n, cuts, stack.counts, *scales, "partial", *to[:4], to[5]),
            )

    def _spread(
        self, sizes: tuple[int, int, int], matrices: int, block_k: int
    ) -> tuple[int, int, int]:
        """Return the panels of A and of B per work-group and the depth of a slice of k.

        The largest blocks that the config allows and that keep every compute unit busy; where C
        has too few, k is cut too.
        """
        config, (m, n, k) = self.config, sizes
        panels_m, panels_n = ceil_div(m, config.tile_m), ceil_div(n, config.tile_n)
        blocks_m, blocks_n = ceil_div(panels_m, config.block_m), ceil_div(panels_n, config.block_n)
        wanted = ceil_div(GROUPS_PER_UNIT * self.limits.compute_units, matrices)
        while blocks_m * blocks_n < wanted:
            block_m = ceil_div(panels_m, blocks_m) * config.tile_m
            block_n = ceil_div(panels_n, blocks_n) * config.tile_n
            if max(block_m, block_n) <= SMALLEST_BLOCK:
                break
            if block_m >= block_n and panels_m > blocks_m:
                blocks_m += 1
            elif panels_n > blocks_n:
                blocks_n += 1
            else:
                break
        cuts = min(wanted // (blocks_m * blocks_n), ceil_div(k, SMALLEST_SLICE))
        slice_k = round_up(ceil_div(k, max(cuts, 1)), block_k)
        return ceil_div(panels_m, blocks_m), ceil_div(panels_n, blocks_n), slice_k
