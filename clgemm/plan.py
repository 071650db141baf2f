"""From shapes, a config and a device's limits to the kernel launches that make a product.

Pure and cached: a plan holds numbers and the names of buffers, never a buffer, so that the second
call of a kind finds its plan made.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple

from clgemm.config import (
    FLOAT_BYTES,
    DirectConfig,
    KernelConfig,
    Limits,
    LocalConfig,
    PackConfig,
)
from clgemm.layout import Layout, Level, batch_levels

__all__ = [
    "Argument",
    "Element",
    "Plan",
    "Step",
    "make_copy_plan",
    "make_plan",
    "make_scaling_plan",
]

Slot = Literal["a", "b", "c", "packed_a", "packed_b", "alpha", "beta"]

# Both packed operands together stay below this, however large the matrices; larger products go in
# blocks. 512 MiB hold a packed 8192 x 8192 pair.
SCRATCH_BYTES = 2**29
# The smallest depth that a blocked product cuts k into: at 1024 the read and write of C that each
# block costs is far below its arithmetic.
SMALLEST_DEPTH = 1024
KERNEL_LEVELS = 4  # nested loops over a stack inside a kernel: the lanes of an int4
LAST_GROUP = 2**31 - 1  # work-groups per launch that every device takes


class Element(NamedTuple):
    """Argument: the position in elements of an operand's first element, plus `offset`."""

    slot: Slot
    offset: int


# A number or packed vector as it goes into the kernel, or the name of what launch.py puts there.
Argument = int | float | bytes | Slot | Element


@dataclass(frozen=True)
class Step:
    """One kernel launch.

    Attributes
    ----------
    signature : str
        A letter per argument: b(uffer), i(nt), l(ong), f(loat), I (int4), L (long4).
    groups : int
        Work-groups; ``config.items`` work-items each.
    """

    config: KernelConfig
    signature: str
    groups: int
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Plan:
    """Launches in order, and the scratch memory that they share."""

    steps: tuple[Step, ...]
    packed_a_bytes: int = 0
    packed_b_bytes: int = 0


def ceil_div(x: int, y: int) -> int:
    return -(-x // y)


def round_up(x: int, multiple: int) -> int:
    return ceil_div(x, multiple) * multiple


class Stack(NamedTuple):
    """The stack loops that one launch runs: counts and strides of three operands, as vectors."""

    matrices: int
    counts: bytes  # int4
    strides: tuple[bytes, ...]  # long4 each


def stack_of(levels: tuple[Level, ...], operands: int) -> Stack:
    matrices = 1
    for level in levels:
        matrices *= level.count
    missing = KERNEL_LEVELS - len(levels)
    counts = [1] * missing + [level.count for level in levels]
    strides = ([0] * missing + [level.strides[i] for level in levels] for i in range(operands))
    packed = tuple(struct.pack("4q", *own) for own in strides)
    return Stack(matrices, struct.pack("4i", *counts), packed)


class Slice(NamedTuple):
    """A part of a stack that one launch can take, and where it begins in A, B and C."""

    offsets: tuple[int, ...]
    levels: tuple[Level, ...]


def slices(levels: tuple[Level, ...], most: int, operands: int) -> Iterator[Slice]:
    """Cut a stack into launches of at most `most` matrices and KERNEL_LEVELS loops each."""
    inner: list[Level] = []
    matrices = 1
    rest = list(levels)
    while rest and len(inner) < KERNEL_LEVELS and matrices * rest[-1].count <= most:
        inner.insert(0, rest.pop())
        matrices *= inner[0].count
    cut = Level(1, (0,) * operands)  # the loop that only runs in part
    if rest and len(inner) < KERNEL_LEVELS and most // matrices > 1:
        cut = rest.pop()
    step = max(1, most // matrices) if cut.count > 1 else 1
    for outer in product(*(range(level.count) for level in rest)):
        for first in range(0, cut.count, step):
            offsets = tuple(
                sum(i * level.strides[o] for i, level in zip(outer, rest, strict=True))
                + first * cut.strides[o]
                for o in range(operands)
            )
            part = Level(min(step, cut.count - first), cut.strides)
            yield Slice(offsets, (part, *inner) if part.count > 1 else tuple(inner))


@lru_cache(maxsize=1024)
def make_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: LocalConfig | DirectConfig,
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
    return _Tiled(a, b, c, config, pack, limits).plan()


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
        steps.append(
            Step(
                config,
                "iiiIblllLbl",
                groups * stack.matrices,
                (
                    *(rows, columns, columns, stack.counts),
                    *("a", Element("a", offsets[0])),
                    *(source.row_stride, source.column_stride, stack.strides[0]),
                    *("c", Element("c", copied)),
                ),
            )
        )
        copied += stack.matrices * rows * columns
    return Plan(tuple(steps))


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


class _Tiled:
    """The steps of the `local` family: pack what has to be, multiply, block by block."""

    def __init__(
        self,
        a: Layout,
        b: Layout,
        c: Layout,
        config: LocalConfig,
        pack: tuple[PackConfig, PackConfig],
        limits: Limits,
    ) -> None:
        self.a, self.b, self.c, self.config = a, b, c, config
        self.pack_a, self.pack_b = pack
        self.most_bytes = min(SCRATCH_BYTES // 2, limits.allocation_bytes)
        k = a.columns
        # B is read like A': both are panels of rows, k deep.
        self.b_rows = b.transposed()
        self.packs_a = not self._lies_in_place(a, config.tile_m, config.width_a)
        self.packs_b = not self._lies_in_place(self.b_rows, config.tile_n, config.width_b)
        self.m_block, self.n_block, self.k_block, self.matrices = c.rows, c.columns, k, LAST_GROUP
        self._fit_blocks()
        self.packed_a_bytes = self.packed_b_bytes = 0

    def _lies_in_place(self, rows: Layout, tile: int, width: int) -> bool:
        """Whether whole, aligned tiles can be loaded from the operand itself."""
        steps = (rows.column_stride, *rows.strides[:-2])
        return (
            self.config.in_place
            and rows.row_stride == 1
            and rows.rows % tile == 0
            and rows.columns % self.config.tile_k == 0
            and rows.alignment_bytes >= FLOAT_BYTES * width
            and all(stride % width == 0 for stride in steps)
        )

    def _panel_bytes(self, rows: int, columns: int, tile: int) -> int:
        return FLOAT_BYTES * round_up(rows, tile) * round_up(columns, self.config.tile_k)

    def _fit_blocks(self) -> None:
        """Cut k, then m and n, until each packed block fits; then count the matrices at a time."""
        config = self.config

        def bytes_a() -> int:
            return self._panel_bytes(self.m_block, self.k_block, config.tile_m) * self.packs_a

        def bytes_b() -> int:
            return self._panel_bytes(self.n_block, self.k_block, config.tile_n) * self.packs_b

        def half(size: int, unit: int) -> int:
            return round_up(ceil_div(size, 2), unit)

        smallest_depth = round_up(SMALLEST_DEPTH, config.tile_k)
        while max(bytes_a(), bytes_b()) > self.most_bytes and self.k_block > smallest_depth:
            self.k_block = max(half(self.k_block, config.tile_k), smallest_depth)
        while bytes_a() > self.most_bytes and self.m_block > config.tile_m:
            self.m_block = half(self.m_block, config.tile_m)
        while bytes_b() > self.most_bytes and self.n_block > config.tile_n:
            self.n_block = half(self.n_block, config.tile_n)
        tiles = ceil_div(self.m_block, config.tile_m) * ceil_div(self.n_block, config.tile_n)
        blocks = max(tiles, *(self._pack_groups(r, p) for r, p in self._packed_sides()))
        largest = max(bytes_a(), bytes_b(), 1)
        self.matrices = max(1, min(self.most_bytes // largest, LAST_GROUP // blocks))

    def _packed_sides(self) -> tuple[tuple[int, PackConfig], ...]:
        return ((self.m_block, self.pack_a), (self.n_block, self.pack_b))

    def _pack_groups(self, rows: int, pack: PackConfig) -> int:
        depth = round_up(self.k_block, self.config.tile_k)
        return ceil_div(rows, pack.panel) * ceil_div(depth, pack.depth)

    def plan(self) -> Plan:
        steps = tuple(self._steps())
        return Plan(steps, self.packed_a_bytes, self.packed_b_bytes)

    def _steps(self) -> Iterator[Step]:
        m, n, k = self.c.rows, self.c.columns, self.a.columns
        for part in slices(batch_levels(self.a, self.b, self.c), self.matrices, 3):
            for n_0, k_0 in product(range(0, n, self.n_block), range(0, k, self.k_block)):
                columns, depth = min(self.n_block, n - n_0), min(self.k_block, k - k_0)
                b_origin = k_0 * self.b.row_stride + n_0 * self.b.column_stride
                if self.packs_b:
                    yield self._pack("b", part, b_origin, columns, depth)
                for m_0 in range(0, m, self.m_block):
                    rows = min(self.m_block, m - m_0)
                    a_origin = m_0 * self.a.row_stride + k_0 * self.a.column_stride
                    if self.packs_a:
                        yield self._pack("a", part, a_origin, rows, depth)
                    c_origin = m_0 * self.c.row_stride + n_0 * self.c.column_stride
                    yield self._multiply(
                        part, (rows, columns, depth), (a_origin, b_origin, c_origin), k_0 == 0
                    )

    def _pack(
        self, side: Literal["a", "b"], part: Slice, origin: int, rows: int, depth: int
    ) -> Step:
        operand, layout = (0, self.a) if side == "a" else (1, self.b_rows)
        config = self.pack_a if side == "a" else self.pack_b
        stack = stack_of(_own_levels(part.levels, operand), 1)
        padded = round_up(depth, self.config.tile_k)
        needed = stack.matrices * self._panel_bytes(rows, depth, config.panel)
        if side == "a":
            self.packed_a_bytes = max(self.packed_a_bytes, needed)
        else:
            self.packed_b_bytes = max(self.packed_b_bytes, needed)
        return Step(
            config,
            "iiiIblllLbl",
            ceil_div(rows, config.panel) * ceil_div(padded, config.depth) * stack.matrices,
            (
                rows,
                depth,
                padded,
                stack.counts,
                side,
                Element(side, part.offsets[operand] + origin),
                layout.row_stride,
                layout.column_stride,
                stack.strides[0],
                "packed_a" if side == "a" else "packed_b",
                0,
            ),
        )

    def _multiply(
        self,
        part: Slice,
        sizes: tuple[int, int, int],
        origins: tuple[int, int, int],
        first: bool,
    ) -> Step:
        m, n, k = sizes
        config = self.config
        tiles = ceil_div(m, config.tile_m) * ceil_div(n, config.tile_n)
        padded = round_up(k, config.tile_k)
        operands: list[Argument] = []
        strides: list[tuple[int, ...]] = []
        for operand, (side, layout, rows, tile, packs) in enumerate(
            (
                ("a", self.a, m, config.tile_m, self.packs_a),
                ("b", self.b_rows, n, config.tile_n, self.packs_b),
            )
        ):
            own = tuple(level.strides[operand] for level in part.levels)
            slot: Slot = "a" if side == "a" else "b"
            if packs:
                own = _packed_strides(part.levels, operand, round_up(rows, tile) * padded)
                packed: Slot = "packed_a" if side == "a" else "packed_b"
                operands += [packed, 0, tile * padded, tile]
            else:
                first_element = part.offsets[operand] + origins[operand]
                operands += [slot, Element(slot, first_element), tile, layout.column_stride]
            strides.append(own)
        strides.append(tuple(level.strides[2] for level in part.levels))
        stack = stack_of(
            tuple(
                Level(level.count, tuple(own[i] for own in strides))
                for i, level in enumerate(part.levels)
            ),
            3,
        )
        return Step(
            config,
            "iiiIffblllLblllLblllL",
            tiles * stack.matrices,
            (
                m,
                n,
                k,
                stack.counts,
                "alpha",
                "beta" if first else 1.0,  # later blocks of k add to what the first has stored
                *operands[:4],
                stack.strides[0],
                *operands[4:],
                stack.strides[1],
                *("c", Element("c", part.offsets[2] + origins[2])),
                *(self.c.row_stride, self.c.column_stride, stack.strides[2]),
            ),
        )


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
