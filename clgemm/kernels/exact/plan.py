"""Kernels for other dtypes than float32: their configs and launches. Pure.

Large products of integers are made on tensor cores, where these multiply bytes: `digits`.
Otherwise both operands are packed into panels of lanes. These have 16 bits where at most the low 16
are wanted and work-items have vectors, else 32 or 64. Where a device adds up the products of four
bytes at once, they are words of four steps of k. They are floats for float16, doubles for float64,
and for booleans words of 32 steps of k. A complex product is a real one of twice the k and twice
the columns. Then each work-item keeps a tile of C in registers; on GPUs a work-group shares panels
in local memory.

Sums of integers wrap around as NumPy's do, so a long k may be cut. So may that of float64, whose
rounding errors are smaller then. float16 adds up in float32 and rounds once, so there it may not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, TypeAlias

from clgemm.core.config import KernelConfig, multiple, positive, vector
from clgemm.core.plan import (
    Argument,
    Batch,
    Element,
    Plan,
    Step,
    batch_of,
    ceil_div,
    operand_at,
    operand_in_place,
    round_up,
    slices,
    tiles_of,
)
from clgemm.core.problem import Layout, Level, Shape, batch_levels, folded
from clgemm.core.traits import Limits
from clgemm.kernels.common.panels import PACKED, SIDES, Scratch
from clgemm.kernels.exact import digits
from clgemm.kernels.exact.complexes import ComplexRealConfig
from clgemm.kernels.exact.digits import DigitsPackConfig, DigitsProductConfig
from clgemm.kernels.exact.in_place import TILES as TILES_IN_PLACE
from clgemm.kernels.exact.in_place import (
    WAVES,
    ExactInPlaceConfig,
    Tile,
    in_place,
    in_place_config,
    in_place_plan,
    lane_of,
)
from clgemm.kernels.exact.types import (
    BITS,
    BYTES,
    DOUBLE,
    DTYPES,
    FLOAT,
    HALVES,
    INT,
    INTEGERS,
    LANE_BYTES,
    LONG,
    MANY_REGISTERS,
    RESULTS,
    SHORT,
    STORED_BYTES,
    WORDS,
    Types,
)

# The number of what slices of k store, by lanes.
PARTIAL = (0, 3, 3, 4, 9, 6, 3)
# On an H200 that is busy, in a microsecond: bytes that are packed or stored, and multiply-adds of
# panels of lanes. How many times as fast tensor cores multiply doubles.
MOVED_BYTES, DOUBLES_FASTER = 3e6, 2.4
LAUNCHES_US = 24.0  # that pack A and B, and multiply
LANE_RATES = (3e8, 1.5e7, 1.5e7, 3.2e6, 2.5e7, 1.2e7, 5e7)
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
# Of a load from panels; the fewest steps of k in local memory; the most that are unrolled.
LOAD_BYTES, STEPS, MOST_STEPS = 16, 8, 16
PACK_ITEMS, PACK_BYTES = 256, 128  # work-items; bytes of each row that a work-group packs
SWIZZLE = 8  # as in common/swizzle.cl


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
    unroll: int = 1  # of the steps of k

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


class GroupsConfig(KernelConfig):
    """Multiplies square tiles by work-groups, which share panels in local memory."""

    tile: int  # rows and columns of C of a work-group
    steps: int  # of k in local memory
    triangle: bool

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


@dataclass(frozen=True)
class ExactTilesConfig(GroupsConfig):
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

    def problems(self) -> Iterator[str]:
        yield from positive(self, "lane", "stored", "signs")
        yield from multiple(self, "tile", "work")
        yield from multiple(self, "work", "width")
        if self.steps * self.tile % (self.items * self.width):
            yield f"{self.items} work-items do not load {self.steps} x {self.tile} lanes evenly"


@dataclass(frozen=True)
class ExactDoublesConfig(GroupsConfig):
    """Multiplies panels of doubles on tensor cores, by work-groups."""

    lane: int
    stored: int
    tile: int = 128  # rows and columns of C of a work-group
    steps: int = 16  # of k of a stage, and of an instruction
    stages: int = 4  # in local memory
    triangle: bool = False  # leave out the tiles left of the diagonal of C

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/doubles.cl"
    entry: ClassVar[str] = "exact_doubles"
    includes: ClassVar[tuple[str, ...]] = (
        *ExactTilesConfig.includes,
        "tensor_core/barriers.cl",
    )
    options: ClassVar[tuple[str, ...]] = digits.DigitsProductConfig.options
    tensors: ClassVar[bool] = True

    @property
    def items(self) -> int:
        return 384


LanesConfig: TypeAlias = ExactProductConfig | ExactTilesConfig | ExactDoublesConfig
ProductConfig: TypeAlias = LanesConfig | DigitsProductConfig
# Of slices of k: the least depth of one, in steps or in tiles of digits, and how many there may be.
LEAST_DEPTHS = {ExactTilesConfig: 256, ExactDoublesConfig: 128, DigitsProductConfig: 4}
MOST_SLICES = 64


@dataclass(frozen=True)
class ExactReduceConfig(KernelConfig):
    """Adds up the products of slices of k."""

    lane: int
    stored: int
    group: int = 256  # work-items

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/reduce.cl"
    entry: ClassVar[str] = "exact_reduce"
    includes: ClassVar[tuple[str, ...]] = ("exact/types.cl", "exact/stored.cl")

    def problems(self) -> Iterator[str]:
        yield from positive(self, "lane", "stored")


KINDS = (
    *(ExactPackConfig, ExactGroupsPackConfig, ExactProductConfig, ExactTilesConfig),
    *(ExactReduceConfig, ExactDoublesConfig, DigitsPackConfig, DigitsProductConfig),
    *(ComplexRealConfig, ExactInPlaceConfig),
)


@dataclass(frozen=True)
class ExactTile(KernelConfig):
    """How C is cut, without tensor cores, whatever its lanes: what the tuner searches.

    With vectors, a work-item computes a tile alone. Otherwise a work-group does, a square one
    unless it is in place.
    """

    rows: int  # of C
    columns: int
    width: int = 1  # lanes of a vector
    unroll: int = 1  # of the steps of k
    items_m: int = 1  # work-items along the rows of C
    items_n: int = 1
    in_place: bool = False  # in one launch, from operands where they lie
    # Of that launch: work-groups of all slices of k on a compute unit; as expected if 0.
    waves: int = 0

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = ExactProductConfig.source
    entry: ClassVar[str] = ExactProductConfig.entry
    includes: ClassVar[tuple[str, ...]] = ExactProductConfig.includes
    companions: ClassVar[tuple[type[KernelConfig], ...]] = KINDS

    def problems(self) -> Iterator[str]:
        yield from positive(self, "waves")
        yield from multiple(self, "columns", of="width")
        yield from multiple(self, "rows", of="items_m")
        yield from multiple(self, "columns", of="items_n")

    @property
    def items(self) -> int:
        return self.items_m * self.items_n

    def launched(self, types: Types, limits: Limits) -> KernelConfig:
        """Return the config of the kernel that multiplies."""
        if self.in_place:
            return in_place_config(self.place(types, limits), types, limits, False)
        return lanes_config(self, types, limits)

    def place(self, types: Types, limits: Limits) -> Tile:
        """Return the tile of a launch in place; one that is not in the table is like its last."""
        sizes = self.rows, self.columns, self.items_m, self.items_n
        tiles = TILES_IN_PLACE[lane_of(types, limits, False)[0]]
        like = next((tile for tile in tiles if tile[:4] == sizes), tiles[-1])
        us = like.step_us * max(1.0, self.rows * self.columns / (like.rows * like.columns))
        waves = (self.waves,) if self.waves else WAVES
        return Tile(*sizes, us, like.abreast, self.unroll, waves)


def tile_of(plan: Plan) -> ExactTile:
    """Return how C is cut in the launches of a product without tensor cores."""
    for step in plan.steps:
        match step.config:
            case ExactInPlaceConfig() as x:
                sizes = x.items_m, x.items_n
                return ExactTile(x.tile_m, x.tile_n, 1, x.unroll, *sizes, in_place=True)
            case ExactTilesConfig() as x:
                across = x.tile // x.work
                return ExactTile(x.tile, x.tile, 1, x.unroll, across, across)
            case ExactProductConfig() as x:
                return ExactTile(x.rows, x.columns, x.width, x.unroll)
    raise ValueError(f"{plan} is made on tensor cores")


def product_config(
    types: Types,
    sizes: Shape,
    limits: Limits,
    on_tensors: bool | None = None,
    tile: ExactTile | None = None,
) -> ProductConfig:
    """Return the config for a device: on tensor cores, or the one expected to be faster."""
    config = lanes_config(tile or lanes_tile(types, sizes, limits), types, limits)
    is_half = types[:3] == HALVES and (types.precision != "strict" or on_tensors)
    if on_tensors is False or not limits.exact_tensors:
        return config
    if config.lane == DOUBLE:
        found: ProductConfig = ExactDoublesConfig(DOUBLE, config.stored)
    elif types.c[0] in INTEGERS or is_half:
        found = digits_config(types)
    else:
        return config
    is_faster = expected_us(sizes, found, limits) < expected_us(sizes, config, limits)
    return found if on_tensors or is_faster else config


def expected_us(sizes: Shape, config: ProductConfig, limits: Limits) -> float:
    """Return the expected time on a GPU that has tensor cores, in microseconds."""
    m, n, k, matrices = sizes
    packed = matrices * (_panel_bytes(0, m, k, config) + _panel_bytes(1, n, k, config))
    groups, count = _groups(sizes, config), _slices_of_k(sizes, config, limits)
    stored = matrices * m * n * STORED_BYTES[config.stored]
    us = LAUNCHES_US + (2 * packed + stored) / MOVED_BYTES
    if isinstance(config, DigitsProductConfig):
        if config.lane == LONG:  # each sum of the last five weights is added to C
            us += 8 * stored / MOVED_BYTES
        steps = ceil_div(groups * count, limits.compute_units) * config.pairs
        return us + steps * config.depth(ceil_div(k, count)) * digits.STEP_US
    work = groups * config.rows * config.columns * k
    share = min(1.0, groups * count / limits.compute_units)
    faster = DOUBLES_FASTER if isinstance(config, ExactDoublesConfig) else 1.0
    return us + work / (faster * LANE_RATES[config.lane] * share)


def digits_config(types: Types) -> DigitsProductConfig:
    """Return the config that multiplies integers or float16 on tensor cores."""
    lane, stored = RESULTS[types.c]
    if lane == FLOAT:
        return DigitsProductConfig(lane, stored, 1, 1, signs=3)
    result = 1 if types.c == "b1" else int(types.c[1:])
    in_a, in_b = (digits.digits_of(int(each[1:]), result) for each in types[:2])
    # Modulo 256 signs mean nothing.
    signs = (result == 1 or types.a != "u1") + 2 * (result == 1 or types.b != "u1")
    return DigitsProductConfig(LONG if lane == LONG else INT, stored, in_a, in_b, signs)


def _groups(sizes: Shape, config: ProductConfig) -> int:
    """Return the work-groups of a product."""
    return tiles_of(sizes.m, sizes.n, config.rows, config.columns) * sizes.matrices


def _slices_of_k(sizes: Shape, config: ProductConfig, limits: Limits) -> int:
    """Return in how many slices of k a GPU makes a product whose tiles leave units idle."""
    if isinstance(config, ExactProductConfig) or sizes.matrices > 1:
        return 1
    most = _depth(sizes.k, config) // LEAST_DEPTHS[type(config)]
    return max(1, min(limits.compute_units // _groups(sizes, config), most, MOST_SLICES))


def lanes_tile(types: Types, sizes: Shape, limits: Limits) -> ExactTile:
    """Return the tile for panels of lanes: as large as a device's registers hold.

    Smaller tiles keep more of a GPU busy.
    """
    if limits.has_vectors:
        width = max(2, min(16, limits.vector_width * 4 // LANE_BYTES[RESULTS[types.c][0]]))
        # AVX-512 and others with long vectors have 32 registers, those with shorter ones 16.
        return ExactTile(12 if limits.vector_width >= 16 else 6, 2 * width, width)
    has_many = limits.registers >= MANY_REGISTERS
    for tile in packed_tiles(types, limits):
        config = lanes_config(tile, types, limits)
        groups = tiles_of(sizes.m, sizes.n, tile.rows, tile.columns) * sizes.matrices
        each = 2 if config.lane == INT and not has_many else LANE_BYTES[config.lane] // 4
        fits = (tile.rows // tile.items_m) ** 2 * each <= limits.registers // 2
        if fits and groups >= limits.compute_units and not any(config.problems_on(limits)):
            break
    return tile


def packed_tiles(types: Types, limits: Limits) -> Iterator[ExactTile]:
    """Yield the tiles of panels that work-groups multiply, the largest first."""
    unroll = MOST_STEPS if limits.registers >= MANY_REGISTERS else 1
    for side, work in TILES[LANE_BYTES[_group_lane(types, limits)]]:
        yield ExactTile(side, side, 1, unroll, side // work, side // work)


def _group_lane(types: Types, limits: Limits) -> int:
    """Return the lanes of panels that work-groups multiply."""
    if limits.byte_products and types.are_in_bytes:
        return BYTES
    lane, _ = RESULTS[types.c]
    return INT if lane == SHORT else lane


def lanes_config(
    tile: ExactTile, types: Types, limits: Limits
) -> ExactProductConfig | ExactTilesConfig:
    """Return the config that multiplies panels of lanes by tiles."""
    lane, stored = RESULTS[types.c]
    if limits.has_vectors:
        vectors = tile.columns // tile.width
        return ExactProductConfig(lane, stored, tile.rows, vectors, tile.width, tile.unroll)
    lane = _group_lane(types, limits)
    width = LOAD_BYTES // LANE_BYTES[lane]
    steps = max(STEPS, tile.items_m**2 * width // tile.rows)
    signs = types.signs if lane == BYTES else 0
    work, unroll = tile.rows // tile.items_m, min(steps, tile.unroll)
    return ExactTilesConfig(lane, stored, tile.rows, work, steps, unroll, width, signs)


def pack_config(
    operand: int, loaded: str, product: ProductConfig, is_complex: bool, limits: Limits
) -> ExactPackConfig | DigitsPackConfig:
    """Return the config that packs A or B: operand 0 or 1."""
    panel, role = (product.rows, product.columns)[operand], (operand + 1) * is_complex
    if isinstance(product, DigitsProductConfig):
        count = (product.digits_a, product.digits_b)[operand]
        return DigitsPackConfig(DTYPES[loaded], product.lane, panel, count)
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
    us: float = 0.0  # on an H200


class _Sizes(NamedTuple):
    """How far a block of a product reaches along m, n and k."""

    m: int
    n: int
    k: int


@functools.lru_cache(maxsize=1024)
def exact_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    types: Types,
    limits: Limits,
    is_half: bool = False,
    on_tensors: bool | None = None,
    is_in_place: bool | None = None,
    tile: ExactTile | None = None,
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
    on_tensors : bool, optional
        Whether tensor cores make it; by default, if that is expected to be faster.
    is_in_place : bool, optional
        Whether it is made in one launch; by default, likewise.
    tile : ExactTile, optional
        How C is cut, where it can be; otherwise another one is chosen.
    """
    a, b, c = folded(a.broadcast(c.batch), b.broadcast(c.batch), c)
    place = None
    if tile is not None:
        is_in_place, on_tensors = tile.in_place, False
        if is_in_place:
            place, tile = tile.place(types, limits), None
    way = in_place(a, c, types, limits, on_tensors, place) if is_in_place is not False else None
    if way is None or not is_in_place:
        packed = _packed_plan(a, b, c, types, limits, is_half, on_tensors, tile)
        if packed is None and tile is not None:  # its panels have too many columns for this k
            packed = _packed_plan(a, b, c, types, limits, is_half, on_tensors, None)
        if way is None or (packed is not None and packed.us < way.us):
            return packed
    return ExactPlan(in_place_plan(way, a, b, c, types, limits, on_tensors), way.swapped, way.us)


def _packed_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    types: Types,
    limits: Limits,
    is_half: bool,
    on_tensors: bool | None,
    tile: ExactTile | None,
) -> ExactPlan | None:
    """Return the launches that pack operands and multiply panels."""
    swapped = abs(c.row_stride) < abs(c.column_stride)
    if swapped:  # so that neighbours write neighbours: C' = B' A'
        a, b, c = (x.transposed() for x in (b, a, c))
        types = types._replace(a=types.b, b=types.a)
    is_complex = types.c[0] == "c"
    parts = 2 if is_complex else 1  # numbers of an element
    whole = _Sizes(c.rows, parts * c.columns, parts * a.columns)
    sizes = Shape(*whole, math.prod(c.batch))
    config = product_config(types, sizes, limits, on_tensors, tile)
    us = 0.0 if limits.has_vectors else expected_us(sizes, config, limits)
    in_digits = isinstance(config, DigitsProductConfig)
    loaded = types.a, types.b
    packs = tuple(pack_config(i, loaded[i], config, is_complex, limits) for i in range(2))
    panel_bytes, launch_work = PANEL_BYTES, LAUNCH_WORK
    if not limits.has_vectors:
        most_bytes = digits.PANEL_BYTES if in_digits else GPU_PANEL_BYTES
        panel_bytes = min(most_bytes, limits.allocation_bytes)
        launch_work = GPU_LAUNCH_WORK * max(1, limits.compute_units // UNITS)
        launch_work *= digits.FASTER if in_digits else 1
    launch_work = launch_work * LANE_BYTES[SHORT] // LANE_BYTES[config.lane]
    if (count := _slices_of_k(sizes, config, limits)) > 1:
        plan = _in_slices((a, b, c), whole, config, packs, count, limits)
        if max(size for _, size in plan.scratch) <= panel_bytes:
            return ExactPlan(plan, swapped, us)
    size = _block(whole, config, panel_bytes, launch_work)
    if size is None:
        return None
    if is_half and not isinstance(config, ExactProductConfig):
        fits = size.n == whole.n == whole.m and not is_complex
        config = replace(config, triangle=fits and (size.m == whole.m or not in_digits))
    # In panels of lanes, B has all panels of A then.
    is_shared = isinstance(config, GroupsConfig) and config.triangle
    bytes_a = 0 if is_shared else _panel_bytes(0, size.m, size.k, config)
    bytes_b = _panel_bytes(1, size.n, size.k, config)
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
                    if not is_shared:
                        at = part.offsets[0] + row * a.row_stride + p // parts * a.column_stride
                        steps.append(_pack(0, packs[0], a, m, depth, at, batch, config))
                    at = part.offsets[2] + row * c.row_stride + column // parts * c.column_stride
                    to = operand_in_place("c", "c", Element("c", at), c, strides=batch.strides[2])
                    block = _Sizes(m, n, depth)
                    adds: Argument = 1 if p else "beta"
                    steps.append(_multiply(config, block, to, adds, batch, limits, row))
    return ExactPlan(scratch.plan(steps), swapped, us)


def _in_slices(
    layouts: tuple[Layout, Layout, Layout],
    whole: _Sizes,
    config: ProductConfig,
    packs: Sequence[ExactPackConfig | DigitsPackConfig],
    count: int,
    limits: Limits,
) -> Plan:
    """Return the launches of a product whose slices of k are matrices of a batch, added up."""
    a, b, c = layouts
    m, n, k = whole
    parts = n // c.columns
    made = replace(config, stored=PARTIAL[config.lane])
    grain = _depth_grain(config)
    each = round_up(ceil_div(k, count), grain)
    steps, scratch = [], Scratch()
    for first, slices_here, depth in ((0, k // each, each), (k // each, 1, k % each)):
        if not depth or not slices_here:
            continue
        apart = each // parts * a.column_stride, each // parts * b.row_stride, m * n
        batch = batch_of((Level(slices_here, apart),), 3)
        for i, x, rows in ((1, b.transposed(), n), (0, a, m)):
            scratch.reserve(PACKED[i], slices_here * _panel_bytes(i, rows, depth, made))
            at = first * apart[i]
            steps.append(_pack(i, packs[i], x, rows, depth, at, batch, made))
        to = operand_at("c", "partial", first * m * n, row=n, column=1, strides=batch.strides[2])
        steps.append(_multiply(made, _Sizes(m, n, depth), to, 0, batch, limits))
    count = ceil_div(k, each)
    scratch.reserve(
        "partial", count * m * n * (1 if config.lane == BITS else LANE_BYTES[config.lane])
    )
    lane = INT if config.lane == BYTES else config.lane
    reduce = ExactReduceConfig(lane, config.stored)
    arguments: dict[str, Argument] = {
        "m": m,
        "n": n,
        "slices": count,
        "adds": "beta",
        "partial": "partial",
        **operand_in_place("c", "c", Element("c", 0), c),
    }
    steps.append(Step(reduce, ceil_div(m * n, reduce.group), arguments))
    return scratch.plan(steps)


def _depth_grain(config: ProductConfig) -> int:
    """Return the k of which that of a slice is a multiple."""
    if isinstance(config, DigitsProductConfig):
        return config.tile_k
    return WORDS.get(config.lane, 1) * config.grain


def _depth(k: int, config: ProductConfig) -> int:
    """Return the steps of panels over k."""
    if isinstance(config, DigitsProductConfig):
        return config.depth(k)
    return round_up(ceil_div(k, WORDS.get(config.lane, 1)), config.grain)


def _panel_bytes(operand: int, rows: int, k: int, config: ProductConfig) -> int:
    panel = (config.rows, config.columns)[operand]
    steps = ceil_div(rows, panel) * _depth(k, config)
    if isinstance(config, DigitsProductConfig):
        return steps * config.tile_bytes(operand)
    return steps * panel * LANE_BYTES[config.lane]


def _block(
    whole: _Sizes, config: ProductConfig, panel_bytes: int, launch_work: int
) -> _Sizes | None:
    """Return the block whose panels fit into scratch memory, and whose launch is short."""
    m, n, k = whole
    if config.stored == HALF:
        if _panel_bytes(1, config.columns, k, config) > panel_bytes:
            return None
    elif isinstance(config, DigitsProductConfig):
        k = min(k, digits.MOST_K)
    else:
        k = min(k, DEPTH * WORDS.get(config.lane, 1))
    most_m, most_n = (
        max(panel_bytes // _panel_bytes(i, panel, k, config), 1) * panel
        for i, panel in enumerate((config.rows, config.columns))
    )
    n, m = min(n, most_n), min(m, most_m)
    m = min(m, max(launch_work // (n * k) // config.rows, 1) * config.rows)
    return _Sizes(m, n, k)


def _pack(
    operand: int,
    config: ExactPackConfig | DigitsPackConfig,
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
    block: _Sizes,
    to: dict[str, Argument],
    adds: Argument,
    batch: Batch,
    limits: Limits,
    row: int = 0,
) -> Step:
    """Return the launch that multiplies the panels of a block.

    Parameters
    ----------
    to : dict
        The arguments of C.
    row : int, optional
        At which row of C the block begins.
    """
    m, n, k = block
    order, is_half, is_shared, above = {}, False, False, 0
    if not isinstance(config, ExactProductConfig):
        is_half, order["swizzle"] = config.triangle, SWIZZLE
    if isinstance(config, GroupsConfig):
        is_shared, above = is_half, row // config.tile if is_half else 0
        order["above"] = above
    groups = tiles_of(m, n - above * config.rows, config.rows, config.columns, is_half)
    groups *= batch.matrices
    arguments: dict[str, Argument] = {
        "m": m,
        "n": n,
        "depth": _depth(k, config),
        "adds": adds,
        **order,
        "counts": batch.counts,
        "a": "packed_b" if is_shared else "packed_a",
        "b": "packed_b",
        **to,
    }
    if isinstance(config, DigitsProductConfig):
        groups = min(groups, limits.compute_units)
    return Step(config, groups, arguments)
