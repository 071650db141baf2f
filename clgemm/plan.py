"""From shapes, a config and a device's limits to the kernel launches that make a product.

Pure and cached: a plan holds numbers and the names of buffers, never a buffer, so that the second
call of a kind finds its plan made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from clgemm.config import (
    FLOAT_BYTES,
    DirectConfig,
    Limits,
    LocalConfig,
    PackConfig,
    RegisterConfig,
)
from clgemm.layout import Layout, Level, batch_levels
from clgemm.steps import (
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

__all__ = ["make_copy_plan", "make_plan", "make_scaling_plan"]

# Both packed operands together stay below this, however large the matrices; larger products go in
# blocks. 512 MiB hold a packed 8192 x 8192 pair.
SCRATCH_BYTES = 2**29
# The smallest depth that a blocked product cuts k into: at 1024 the read and write of C that each
# block costs is far below its arithmetic.
SMALLEST_DEPTH = 1024
# The rounding errors of a sum grow with its length: longer ones are cut and added up in C. One more
# read and write of C in so many steps is not to be seen in the time.
LONGEST_SUM = 8192
LAST_GROUP = 2**31 - 1  # work-groups per launch that every device takes

SIDES: tuple[Side, Side] = ("a", "b")
PACKED: tuple[Slot, Slot] = ("packed_a", "packed_b")


@lru_cache(maxsize=1024)
def make_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: LocalConfig | RegisterConfig | DirectConfig,
    pack: tuple[PackConfig, PackConfig] | None,
    limits: Limits,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` for stacks of one shape, none empty.

    Parameters
    ----------
    a, b, c : Layout
        (*batch, m, k), (*batch, k, n) and (*batch, m, n); repeated matrices have strides of zero.
    pack : pair of PackConfig, optional
        How `a` and `b` are packed; a direct config needs none.
    """
    if isinstance(config, DirectConfig):
        return Plan(tuple(_direct_steps(a, b, c, a.columns, config)))
    assert pack is not None
    return _Paneled(a, b, c, config, pack, limits).plan()


@lru_cache(maxsize=1024)
def make_scaling_plan(c: Layout, config: DirectConfig) -> Plan:
    """Return the launches of ``C = beta C``: a product over no depth at all reads no operand."""
    return Plan(tuple(_direct_steps(c, c, c, 0, config)))


@lru_cache(maxsize=1024)
def make_copy_plan(source: Layout, config: PackConfig) -> Plan:
    """Return the launches that copy a to c, a dense row-major stack: panels of a single row."""
    assert config.panel == 1
    rows, columns = source.rows, source.columns
    groups = rows * ceil_div(columns, config.depth)
    steps: list[Step] = []
    copied = 0
    for offsets, levels in slices(batch_levels(source), LAST_GROUP // groups, 1):
        stack = stack_of(levels, 1)
        first, to = Element("a", offsets[0]), Element("c", copied)
        sizes = rows, columns, columns
        steps.append(_pack_step(config, sizes, source, stack, first, ("c", to)))
        copied += stack.matrices * rows * columns
    return Plan(tuple(steps))


def _pack_step(
    config: PackConfig,
    sizes: tuple[int, int, int],
    layout: Layout,
    stack: Stack,
    first: Element,
    to: tuple[Slot, int | Element],
) -> Step:
    """Return the launch that packs `rows`, `columns`, `padded_columns` of an operand's matrices."""
    rows, _, padded = sizes
    return Step(
        config,
        "iiiIblllLbl",
        ceil_div(rows, config.panel) * ceil_div(padded, config.depth) * stack.matrices,
        (
            *(*sizes, stack.counts),
            *(first.slot, first, layout.row_stride, layout.column_stride, stack.strides[0]),
            *to,
        ),
    )


def _direct_steps(a: Layout, b: Layout, c: Layout, k: int, config: DirectConfig) -> Iterator[Step]:
    m, n = c.rows, c.columns
    tile_m, tile_n = config.items_m * config.work_m, config.items_n * config.width
    groups = ceil_div(m, tile_m) * ceil_div(n, tile_n)
    slot_a: Slot = "a" if k else "c"  # an argument must be some buffer, even if it is not read
    slot_b: Slot = "b" if k else "c"
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // groups, 3):
        stack = stack_of(levels, 3)
        yield Step(
            config,
            "iiiIffblllLblllLblllL",
            groups * stack.matrices,
            (
                m,
                n,
                k,
                stack.counts,
                "alpha",
                "beta",
                *(slot_a, Element(slot_a, offsets[0])),
                *(a.row_stride, a.column_stride, stack.strides[0]),
                *(slot_b, Element(slot_b, offsets[1])),
                *(b.row_stride, b.column_stride, stack.strides[1]),
                *("c", Element("c", offsets[2])),
                *(c.row_stride, c.column_stride, stack.strides[2]),
            ),
        )


class _Paneled:
    """The steps of the families that read panels: pack, multiply, block by block."""

    def __init__(
        self,
        a: Layout,
        b: Layout,
        c: Layout,
        config: LocalConfig | RegisterConfig,
        pack: tuple[PackConfig, PackConfig],
        limits: Limits,
    ) -> None:
        self.c, self.config, self.pack = c, config, pack
        # B is read like A': both are panels of rows, k deep.
        self.rows = (a, b.transposed())
        self.levels = batch_levels(a, b, c)
        self.packs = tuple(not self._lies_in_place(operand) for operand in (0, 1))
        self.most_bytes = min(SCRATCH_BYTES // 2, limits.allocation_bytes)
        self.blocks = [c.rows, c.columns]  # rows of A and of B that are packed at a time
        self.depth = a.columns  # and their depth
        self.matrices = 1  # and how many of them
        self._fit_blocks()
        self.packed_bytes = [0, 0]

    def _lies_in_place(self, operand: int) -> bool:
        """Tell whether whole, aligned tiles can be loaded from the operand itself."""
        config, rows = self.config, self.rows[operand]
        if not (isinstance(config, LocalConfig) and config.in_place):
            return False
        width = (config.width_a, config.width_b)[operand]
        return (
            rows.row_stride == 1
            and rows.rows % self.pack[operand].panel == 0
            and rows.columns % config.tile_k == 0
            and rows.alignment_bytes >= FLOAT_BYTES * width
            and all(stride % width == 0 for stride in (rows.column_stride, *rows.strides[:-2]))
        )

    def _bytes(self, operand: int, rows: int, depth: int) -> int:
        padded = round_up(rows, self.pack[operand].panel) * round_up(depth, self.config.tile_k)
        return FLOAT_BYTES * padded * self.packs[operand]

    def _fit_blocks(self) -> None:
        """Cut k, then m and n, until each packed block fits; then count the matrices at a time."""
        config, tile_k = self.config, self.config.tile_k

        def too_large(operand: int) -> bool:
            return self._bytes(operand, self.blocks[operand], self.depth) > self.most_bytes

        longest = config.block_k if isinstance(config, RegisterConfig) else LONGEST_SUM
        # Blocks of one size: a last one of a few steps would load and store C for nothing.
        self.depth = round_up(ceil_div(self.depth, ceil_div(self.depth, longest)), tile_k)
        smallest = min(self.depth, round_up(SMALLEST_DEPTH, tile_k))
        while self.depth > smallest and (too_large(0) or too_large(1)):
            self.depth = max(round_up(ceil_div(self.depth, 2), tile_k), smallest)
        groups = ceil_div(self.blocks[0], self.pack[0].panel)
        groups *= ceil_div(self.blocks[1], self.pack[1].panel)
        for operand, pack in enumerate(self.pack):
            while too_large(operand) and self.blocks[operand] > pack.panel:
                self.blocks[operand] = round_up(ceil_div(self.blocks[operand], 2), pack.panel)
            depths = ceil_div(round_up(self.depth, tile_k), pack.depth)
            groups = max(groups, ceil_div(self.blocks[operand], pack.panel) * depths)
        largest = max(self._bytes(i, self.blocks[i], self.depth) for i in (0, 1))
        self.matrices = max(1, min(self.most_bytes // max(largest, 1), LAST_GROUP // groups))

    def plan(self) -> Plan:
        """Return the finished plan."""
        return Plan(tuple(self._steps()), *self.packed_bytes)

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
                    a_0 = m_0 * a.row_stride + k_0 * a.column_stride
                    yield from self._pack("a", part, a_0, rows, depth)
                    c_0 = m_0 * c.row_stride + n_0 * c.column_stride
                    sizes = rows, columns, depth
                    yield self._multiply(part, sizes, (a_0, b_0, c_0), k_0 == 0)

    def _pack(self, side: Side, part: Slice, origin: int, rows: int, depth: int) -> Iterator[Step]:
        operand = SIDES.index(side)
        if not self.packs[operand]:
            return
        stack = stack_of(_own_levels(part.levels, operand), 1)
        needed = stack.matrices * self._bytes(operand, rows, depth)
        self.packed_bytes[operand] = max(self.packed_bytes[operand], needed)
        sizes = rows, depth, round_up(depth, self.config.tile_k)
        first, to = Element(side, part.offsets[operand] + origin), (PACKED[operand], 0)
        yield _pack_step(self.pack[operand], sizes, self.rows[operand], stack, first, to)

    def _multiply(
        self,
        part: Slice,
        sizes: tuple[int, int, int],
        origins: tuple[int, int, int],
        first: bool,
    ) -> Step:
        m, n, k = sizes
        config = self.config
        a, strides_a = self._panels("a", part, m, k, origins[0])
        b, strides_b = self._panels("b", part, n, k, origins[1])
        every = zip(part.levels, strides_a, strides_b, strict=True)
        stack = stack_of(
            tuple(Level(level.count, (i, j, level.strides[2])) for level, i, j in every), 3
        )
        panels_m, panels_n = ceil_div(m, config.tile_m), ceil_div(n, config.tile_n)
        if isinstance(config, RegisterConfig):
            groups, signature = ceil_div(panels_m, config.block_m) * panels_n, "bllL"
        else:
            groups, signature = panels_m * panels_n, "blllL"
        return Step(
            config,
            f"iiiIff{signature}{signature}blllL",
            groups * stack.matrices,
            (
                *(m, n, k, stack.counts),
                "alpha",
                "beta" if first else 1.0,  # later blocks of k add to what the first has stored
                *(*a, stack.strides[0]),
                *(*b, stack.strides[1]),
                *("c", Element("c", part.offsets[2] + origins[2])),
                *(self.c.row_stride, self.c.column_stride, stack.strides[2]),
            ),
        )

    def _panels(
        self, side: Side, part: Slice, rows: int, depth: int, origin: int
    ) -> tuple[list[Argument], tuple[int, ...]]:
        """Return where a kernel finds an operand's panels, and the stack's strides over them."""
        operand = SIDES.index(side)
        tile = self.pack[operand].panel
        if self.packs[operand]:
            panel = tile * round_up(depth, self.config.tile_k)
            strides = _packed_strides(part.levels, operand, ceil_div(rows, tile) * panel)
            slot: Slot = PACKED[operand]
            arguments: list[Argument] = [slot, 0, panel, tile]
        else:
            strides = tuple(level.strides[operand] for level in part.levels)
            first = Element(side, part.offsets[operand] + origin)
            arguments = [side, first, tile, self.rows[operand].column_stride]
        # The register family reads packed panels only, and knows their pitch.
        return arguments[: 3 if isinstance(self.config, RegisterConfig) else 4], strides


def _own_levels(levels: tuple[Level, ...], operand: int) -> tuple[Level, ...]:
    """Return the loops that reach new matrices of one operand: repeated ones are packed once."""
    return tuple(
        Level(level.count, (level.strides[operand],)) for level in levels if level.strides[operand]
    )


def _packed_strides(levels: tuple[Level, ...], operand: int, matrix: int) -> tuple[int, ...]:
    """Return an operand's strides in its packed stack: each of its matrices once, in order."""
    strides: list[int] = []
    step = matrix
    for level in reversed(levels):
        repeated = level.strides[operand] == 0
        strides.insert(0, 0 if repeated else step)
        step *= 1 if repeated else level.count
    return tuple(strides)
