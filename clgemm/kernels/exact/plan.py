"""Kernels for other dtypes than float32: their configs and launches. Pure.

Both operands are packed into panels of lanes: 16 bits where at most the low 16 are wanted and
work-items have vectors, else 32 or 64; words of four steps of k for bytes, where a device adds up
the products of four at once; floats for float16, doubles for float64, and for booleans
words of 32 steps of k. A complex product is a real one of twice the k and twice the columns. Then
each work-item keeps a tile of C in registers; on GPUs a work-group shares panels in local memory.

Sums of integers wrap around as NumPy's do, so a long k may be cut. So may that of float64, whose
rounding errors are smaller then. float16 adds up in float32 and rounds once, so there it may not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, TypeAlias

from clgemm.core.config import KernelConfig, multiple, positive, vector
from clgemm.core.plan import (
    Argument,
    Batch,
    Element,
    Plan,
    Slice,
    Step,
    batch_of,
    ceil_div,
    operand_in_place,
    round_up,
    slices,
    tiles_of,
)
from clgemm.core.problem import Layout, batch_levels, folded
from clgemm.core.traits import Limits
from clgemm.kernels.common.panels import PACKED, SIDES, Scratch
from clgemm.kernels.sources import sources_hash

# What is loaded, by NumPy's kind and size: the numbers of types.cl.
NAMES = "b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"
DTYPES = {name: number for number, name in enumerate(NAMES)}
# For each result: its lanes, the number of what is stored, and the bytes of both.
BITS, SHORT, INT, LONG, FLOAT, DOUBLE, BYTES = range(7)
LANE_BYTES = (4, 2, 4, 8, 4, 8, 4)
WORDS = {BITS: 32, BYTES: 4}  # steps of k in a word
IN_BYTES, SIGNED = ("b1", "i1", "u1"), "i1"
RESULTS = {
    "b1": (BITS, 0),
    **dict.fromkeys(("i1", "u1"), (SHORT, 1)),
    **dict.fromkeys(("i2", "u2"), (SHORT, 2)),
    **dict.fromkeys(("i4", "u4"), (INT, 3)),
    **dict.fromkeys(("i8", "u8"), (LONG, 4)),
    "f2": (FLOAT, 5),
    "f8": (DOUBLE, 6),
    "c8": (FLOAT, 7),
    "c16": (DOUBLE, 8),
}
HALF = RESULTS["f2"][1]
DEPTH = 4096  # steps of k in one sum of a panel, which stays in the second-level cache
# Of each packed operand, and multiply-adds of a launch at most: where work-items have vectors, and
# on GPUs. They are of lanes of 16 bits, of which two cores take a fifth of a second: wider ones
# take longer by their bytes.
PANEL_BYTES, LAUNCH_WORK = 2**26, 2**33
GPU_PANEL_BYTES, GPU_LAUNCH_WORK = 2**28, 2**35
UNITS = 16  # compute units of a GPU for which that holds; larger ones get longer launches
# On GPUs, tiles of C and the part of a work-item, by the bytes of a lane; the first ones compute
# the most for what they load.
TILES = {4: ((128, 8), (64, 4), (64, 8), (32, 4)), 8: ((64, 8), (64, 4), (32, 4))}
# Registers of a work-item from which on all steps in local memory are unrolled: then the compiler
# loads for several at once. With fewer, each step loads for itself. AMD's compiler takes two for
# the product of two integers.
MANY_REGISTERS = 256
LOAD_BYTES, STEPS = 16, 8  # of a load from panels; the fewest steps of k in local memory
PACK_ITEMS, PACK_BYTES = 256, 128  # work-items; bytes of each row that a work-group packs
SWIZZLE = 8  # as in common/swizzle.cl


class Types(NamedTuple):
    """The dtypes of a product, by NumPy's kind and size: ``"i4"`` is int32."""

    a: str
    b: str
    c: str


@dataclass(frozen=True)
class ExactPackConfig(KernelConfig):
    """Packs a matrix into panels of lanes, with one work-item for each block."""

    loaded: int
    lane: int
    panel: int  # rows
    chunk: int  # steps over k of a work-group
    role: int = 0  # 1 and 2 for A and B of a complex product

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/pack.cl"
    entry: ClassVar[str] = "exact_pack"
    includes: ClassVar[tuple[str, ...]] = ("exact/types.cl", "exact/loaded.cl")

    def problems(self) -> Iterator[str]:
        yield from positive(self, "loaded", "lane", "role")


@dataclass(frozen=True)
class ExactGroupsPackConfig(ExactPackConfig):
    """Packs a matrix into panels of lanes, with many work-items for each block."""

    group: int = PACK_ITEMS  # work-items

    source: ClassVar[str] = "exact/pack_groups.cl"
    entry: ClassVar[str] = "exact_pack_groups"

    @property
    def local_memory_bytes(self) -> int:
        return self.chunk * (self.panel + 1) * LANE_BYTES[self.lane]


@dataclass(frozen=True)
class ExactProductConfig(KernelConfig):
    """Multiplies panels of lanes by vectors."""

    lane: int
    stored: int
    rows: int  # of C in registers
    vectors: int  # of each row
    width: int  # lanes of a vector

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/product.cl"
    entry: ClassVar[str] = "exact_product"
    includes: ClassVar[tuple[str, ...]] = ("exact/types.cl", "exact/stored.cl")

    @property
    def columns(self) -> int:
        """Columns of C in registers."""
        return self.vectors * self.width

    @property
    def grain(self) -> int:
        """The depth of panels is a multiple of this."""
        return 1

    def problems(self) -> Iterator[str]:
        yield from positive(self, "lane", "stored")
        yield from vector(self, "width")


@dataclass(frozen=True)
class ExactTilesConfig(KernelConfig):
    """Multiplies panels of lanes by work-groups, which share them in local memory."""

    lane: int
    stored: int
    tile: int  # rows and columns of C of a work-group
    work: int  # rows and columns of C of a work-item
    steps: int  # of k in local memory
    unroll: int  # of those steps
    width: int  # lanes of a load
    signs: int = 0  # of bytes: 1 if those of A are signed, and 2 if those of B are
    triangle: bool = False  # leave out the tiles left of the diagonal of C

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/tiles.cl"
    entry: ClassVar[str] = "exact_tiles"
    includes: ClassVar[tuple[str, ...]] = (
        *("common/swizzle.cl", "exact/types.cl", "exact/stored.cl"),
    )

    @property
    def items(self) -> int:
        return (self.tile // self.work) ** 2

    @property
    def local_memory_bytes(self) -> int:
        return 4 * self.steps * self.tile * LANE_BYTES[self.lane]

    @property
    def rows(self) -> int:
        """Rows of a panel of A."""
        return self.tile

    @property
    def columns(self) -> int:
        """Columns of a panel of B."""
        return self.tile

    @property
    def grain(self) -> int:
        """The depth of panels is a multiple of this."""
        return self.steps

    def problems(self) -> Iterator[str]:
        yield from positive(self, "lane", "stored", "signs")
        yield from multiple(self, "tile", "work")
        yield from multiple(self, "work", "width")
        if self.steps * self.tile % (self.items * self.width):
            yield f"{self.items} work-items do not load {self.steps} x {self.tile} lanes evenly"


ProductConfig: TypeAlias = ExactProductConfig | ExactTilesConfig


@functools.cache
def kernels() -> str:
    """Return a hash of the sources of these kernels."""
    return sources_hash(
        *(ExactPackConfig, ExactGroupsPackConfig, ExactProductConfig, ExactTilesConfig)
    )


def product_config(types: Types, tiles: tuple[int, int, int], limits: Limits) -> ProductConfig:
    """Return the config for a device: as large a tile as its registers hold.

    Parameters
    ----------
    tiles : tuple of int
        Rows and columns of C, and the number of matrices. Smaller tiles keep more of a GPU busy.
    """
    lane, stored = RESULTS[types.c]
    if limits.has_vectors:
        width = min(16, limits.vector_width * 4 // LANE_BYTES[lane])
        # AVX-512 and others with long vectors have 32 registers, those with shorter ones 16.
        rows = 12 if limits.vector_width >= 16 else 6
        return ExactProductConfig(lane, stored, rows, 2, max(2, width))
    lane, signs = INT if lane == SHORT else lane, 0
    if limits.byte_products and _is_in_bytes(types):
        lane = BYTES
        if types.c not in IN_BYTES:
            signs = (types.a == SIGNED) + 2 * (types.b == SIGNED)
    m, n, matrices = tiles
    width = LOAD_BYTES // LANE_BYTES[lane]
    for tile, work in TILES[LANE_BYTES[lane]]:
        steps = max(STEPS, (tile // work) ** 2 * width // tile)
        has_many = limits.registers >= MANY_REGISTERS
        unroll = steps if has_many else 1
        config = ExactTilesConfig(lane, stored, tile, work, steps, unroll, width, signs)
        groups = ceil_div(m, tile) * ceil_div(n, tile) * matrices
        each = 2 if lane == INT and not has_many else LANE_BYTES[lane] // 4
        fits = work**2 * each <= limits.registers // 2
        if fits and groups >= limits.compute_units and not any(config.problems_on(limits)):
            return config
    return config


def _is_in_bytes(types: Types) -> bool:
    """Return whether the bytes of integers tell their product: modulo 256, or all of them."""
    is_of_bytes = types.a in IN_BYTES and types.b in IN_BYTES
    return RESULTS[types.c][0] in (SHORT, INT) and (types.c in IN_BYTES or is_of_bytes)


def pack_config(
    loaded: str, product: ProductConfig, panel: int, role: int, limits: Limits
) -> ExactPackConfig:
    """Return the config that packs an operand."""
    if limits.has_vectors:
        return ExactPackConfig(DTYPES[loaded], product.lane, panel, 64, role)
    chunk = PACK_BYTES // LANE_BYTES[product.lane]
    items = min(PACK_ITEMS, limits.work_group_size)
    return ExactGroupsPackConfig(DTYPES[loaded], product.lane, panel, chunk, role, items)


def lane_work(types: Types, multiply_adds: int) -> int:
    """Return the work of a product: multiply-adds of its lanes, by the bytes of one."""
    parts = 2 if types.c[0] == "c" else 1
    return multiply_adds * parts**2 * LANE_BYTES[RESULTS[types.c][0]]


class ExactPlan(NamedTuple):
    """The launches of a product, and whether they take A for B and B for A."""

    plan: Plan
    swapped: bool


class _Sizes(NamedTuple):
    """How far a block of a product reaches along m, n and k."""

    m: int
    n: int
    k: int


@functools.lru_cache(maxsize=1024)
def exact_plan(
    a: Layout, b: Layout, c: Layout, types: Types, limits: Limits, is_half: bool = False
) -> ExactPlan | None:
    """Return the launches of ``C = A B``; None if it is too long for the memory of panels.

    They add to C if the call's `beta` is 1 and not 0.

    Parameters
    ----------
    a, b, c : Layout
        Batches of matrices, with strides in elements. Those of `a` and `b` broadcast to `c`.
    is_half : bool, optional
        Whether B is A's transpose, and elements below the diagonal need not be computed; or those
        above it, if the plan is swapped.
    """
    a, b, c = folded(a.broadcast(c.batch), b.broadcast(c.batch), c)
    swapped = abs(c.row_stride) < abs(c.column_stride)
    if swapped:  # so that neighbours write neighbours: C' = B' A'
        a, b, c = (x.transposed() for x in (b, a, c))
        types = types._replace(a=types.b, b=types.a)
    is_complex = types.c[0] == "c"
    parts = 2 if is_complex else 1  # numbers of an element
    whole = _Sizes(c.rows, parts * c.columns, parts * a.columns)
    config = product_config(types, (whole.m, whole.n, math.prod(c.batch)), limits)
    packs = tuple(
        pack_config(loaded, config, panel, role * is_complex, limits)
        for loaded, panel, role in ((types.a, config.rows, 1), (types.b, config.columns, 2))
    )
    panel_bytes, launch_work = PANEL_BYTES, LAUNCH_WORK
    if not limits.has_vectors:
        panel_bytes = min(GPU_PANEL_BYTES, limits.allocation_bytes)
        launch_work = GPU_LAUNCH_WORK * max(1, limits.compute_units // UNITS)
    launch_work = launch_work * LANE_BYTES[SHORT] // LANE_BYTES[config.lane]
    size = _block(whole, config, panel_bytes, launch_work)
    if size is None:
        return None
    if is_half and isinstance(config, ExactTilesConfig):  # and so B has all panels of A
        fits = size.n == whole.n == whole.m and not is_complex
        config = replace(config, triangle=fits)
    is_half = getattr(config, "triangle", False)
    bytes_a = 0 if is_half else _panel_bytes(size.m, size.k, config.rows, config)
    bytes_b = _panel_bytes(size.n, size.k, config.columns, config)
    work = size.m * size.n * size.k
    most = max(1, min(panel_bytes // max(bytes_a, bytes_b), launch_work // max(work, 1)))
    steps, scratch = [], Scratch()
    for part in slices(batch_levels(a, b, c), most, 3):
        batch = batch_of(part.levels, 3)
        scratch.reserve("packed_a", batch.matrices * bytes_a)
        scratch.reserve("packed_b", batch.matrices * bytes_b)
        for column in range(0, whole.n, size.n):
            for p in range(0, whole.k, size.k):
                depth = min(size.k, whole.k - p)
                n = min(size.n, whole.n - column)
                at = part.offsets[1] + (p * b.row_stride + column * b.column_stride) // parts
                steps.append(_pack(1, packs[1], b.transposed(), n, depth, at, batch, config))
                for row in range(0, whole.m, size.m):
                    m = min(size.m, whole.m - row)
                    if not is_half:
                        at = part.offsets[0] + row * a.row_stride + p // parts * a.column_stride
                        steps.append(_pack(0, packs[0], a, m, depth, at, batch, config))
                    origin = row, column // parts, p
                    steps.append(_multiply(config, c, origin, (m, n, depth), part, batch))
    return ExactPlan(scratch.plan(steps), swapped)


def _depth(k: int, config: ProductConfig) -> int:
    """Return the steps of panels over k."""
    return round_up(ceil_div(k, WORDS.get(config.lane, 1)), config.grain)


def _panel_bytes(rows: int, k: int, panel: int, config: ProductConfig) -> int:
    return round_up(rows, panel) * _depth(k, config) * LANE_BYTES[config.lane]


def _block(
    whole: _Sizes, config: ProductConfig, panel_bytes: int, launch_work: int
) -> _Sizes | None:
    """Return the block whose panels fit into scratch memory, and whose launch is short."""
    m, n, k = whole
    if config.stored == HALF:
        if _panel_bytes(config.columns, k, config.columns, config) > panel_bytes:
            return None
    else:
        k = min(k, DEPTH * WORDS.get(config.lane, 1))
    column_bytes = _depth(k, config) * LANE_BYTES[config.lane]
    most = max(panel_bytes // column_bytes, 1)
    n = min(n, max(most // config.columns, 1) * config.columns)
    m = min(m, max(most // config.rows, 1) * config.rows)
    m = min(m, max(launch_work // (n * k) // config.rows, 1) * config.rows)
    return _Sizes(m, n, k)


def _pack(
    operand: int,
    config: ExactPackConfig,
    x: Layout,
    rows: int,
    columns: int,
    first: int,
    batch: Batch,
    product: ProductConfig,
) -> Step:
    """Return the launch that packs rows of an operand, or of its transpose."""
    depth = _depth(columns, product)
    start, strides = Element(SIDES[operand], first), batch.strides[operand]
    arguments: dict[str, Argument] = {
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "counts": batch.counts,
        **operand_in_place("from", start.slot, start, x, strides=strides),
        "to": PACKED[operand],
    }
    groups = ceil_div(rows, config.panel) * ceil_div(depth, config.chunk)
    return Step(config, groups * batch.matrices, arguments)


def _multiply(
    config: ProductConfig,
    c: Layout,
    origin: tuple[int, int, int],
    sizes: tuple[int, int, int],
    part: Slice,
    batch: Batch,
) -> Step:
    """Return the launch that multiplies the panels of a block."""
    (row, column, p), (m, n, k) = origin, sizes
    first = Element("c", part.offsets[2] + row * c.row_stride + column * c.column_stride)
    order, is_half = {}, False
    groups = ceil_div(m, config.rows) * ceil_div(n, config.columns)
    if isinstance(config, ExactTilesConfig):
        is_half, above = config.triangle, row // config.tile if config.triangle else 0
        order = {"swizzle": SWIZZLE, "above": above}
        groups = tiles_of(m, n - above * config.tile, config.tile, config.tile, is_half)
    arguments: dict[str, Argument] = {
        "m": m,
        "n": n,
        "depth": _depth(k, config),
        "adds": 1 if p else "beta",
        **order,
        "counts": batch.counts,
        "a": "packed_b" if is_half else "packed_a",
        "b": "packed_b",
        **operand_in_place("c", "c", first, c, strides=batch.strides[2]),
    }
    return Step(config, groups * batch.matrices, arguments)
