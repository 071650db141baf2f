"""The steps of the local family: panels for tiles in local memory."""

from __future__ import annotations

from collections.abc import Iterator

from clgemm.config import FLOAT_BYTES, Limits, LocalConfig, PackConfig
from clgemm.layout import Layout
from clgemm.panels import PACKED, SIDES, AnyPackConfig, Panels, packed_strides, stack_over
from clgemm.steps import (
    LONGEST_SUM,
    Argument,
    Element,
    Side,
    Slice,
    Step,
    ceil_div,
    round_up,
)

__all__ = ["LocalPanels"]


class LocalPanels(Panels):
    """Tiles in local memory: panels as deep as the block, padded to whole tiles of k."""

    def __init__(
        self,
        a: Layout,
        b: Layout,
        c: Layout,
        config: LocalConfig,
        pack: tuple[AnyPackConfig, AnyPackConfig],
        limits: Limits,
    ) -> None:
        self.config = config
        super().__init__(a, b, c, pack, limits)

    @property
    def grain(self) -> int:
        """Whole tiles."""
        return self.config.tile_k

    @property
    def longest(self) -> int:
        """What one chain of additions may sum."""
        return LONGEST_SUM

    def padded(self, depth: int) -> int:
        """Return the columns of a packed block: whole tiles."""
        return round_up(depth, self.config.tile_k)

    def pack_sizes(self, operand: int, rows: int, depth: int) -> tuple[int, ...]:  # noqa: ARG002
        """Return rows, columns, and columns with their padding."""
        return rows, depth, self.padded(depth)

    def pack_groups(self, operand: int, rows: int, depth: int) -> int:
        """Return the work-groups that pack one matrix."""
        pack = self.pack[operand]
        assert isinstance(pack, PackConfig)
        return ceil_div(rows, pack.panel) * ceil_div(self.padded(depth), pack.depth)

    def lies_in_place(self, operand: int) -> bool:
        """Tell whether whole, aligned tiles can be loaded from the operand itself."""
        config, rows = self.config, self.rows[operand]
        width = (config.width_a, config.width_b)[operand]
        return (
            config.in_place
            and rows.row_stride == 1
            and rows.rows % self.pack[operand].panel == 0
            and rows.columns % config.tile_k == 0
            and rows.alignment_bytes >= FLOAT_BYTES * width
            and all(stride % width == 0 for stride in (rows.column_stride, *rows.strides[:-2]))
        )

    def multiply(
        self, part: Slice, sizes: tuple[int, int, int], origins: tuple[int, int, int], first: bool
    ) -> Iterator[Step]:
        """Yield the launch that multiplies."""
        m, n, k = sizes
        a, strides_a = self._panels("a", part, m, k, origins[0])
        b, strides_b = self._panels("b", part, n, k, origins[1])
        stack = stack_over(part, strides_a, strides_b)
        groups = ceil_div(m, self.config.tile_m) * ceil_div(n, self.config.tile_n)
        yield Step(
            self.config,
            "iiiIffblllLblllLblllL",
            groups * stack.matrices,
            (
                *(m, n, k, stack.counts),
                *("alpha", "beta" if first else 1.0),
                *(*a, stack.strides[0]),
                *(*b, stack.strides[1]),
                *("c", Element("c", part.offsets[2] + origins[2])),
                *(self.c.row_stride, self.c.column_stride, stack.strides[2]),
            ),
        )

    def _panels(
        self, side: Side, part: Slice, rows: int, depth: int, origin: int
    ) -> tuple[tuple[Argument, ...], tuple[int, ...]]:
        """Return where the kernel finds an operand's panels, and the stack's strides over them."""
        operand = SIDES.index(side)
        tile = self.pack[operand].panel
        if not self.packs[operand]:
            strides = tuple(level.strides[operand] for level in part.levels)
            first = Element(side, part.offsets[operand] + origin)
            return (side, first, tile, self.rows[operand].column_stride), strides
        panel = tile * self.padded(depth)
        strides = packed_strides(part.levels, operand, ceil_div(rows, tile) * panel)
        return (PACKED[operand], 0, panel, tile), strides
