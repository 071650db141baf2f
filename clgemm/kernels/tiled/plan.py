"""The config of the tiled family, its expected time, and its launches. Pure.

The model is for devices that spread work-items over lanes. docs/family_costs.py fits its constants,
which are `clgemm.core.costs.Costs`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from clgemm.core.config import KernelConfig, Launch, multiple, positive, variant_of, vector
from clgemm.core.costs import Costs, joined
from clgemm.core.plan import (
    Argument,
    Element,
    Plan,
    Side,
    Slice,
    Step,
    ceil_div,
    operand_at,
    round_up,
    tiles_of,
    widest_load,
)
from clgemm.core.problem import FLOAT_BYTES, Layout
from clgemm.core.traits import Limits, Unit
from clgemm.kernels.common.panels import (
    PACKED,
    SIDES,
    LanePanels,
    Place,
    Scratch,
    batch_over,
    make_panel_plan,
    packed_strides,
    strides_of,
    target_of,
)
from clgemm.kernels.pack.plan import PackConfig
from clgemm.kernels.split_k.plan import ReduceConfig, product_arguments, reduce_us

MOST_BUFFERS = 6  # of asynchronous copies
MOST_COPIED = 4  # floats that one asynchronous copy takes
# Copies of single floats for each work-item and tile, from which on they take longer than expected.
# Set on H100s.
TOO_MANY_COPIES = 32

# How many work-groups run side by side on a compute unit.
OTHER_REGISTERS = 64  # of a work-item, besides its accumulators
REGISTERS_PER_SUM = 1.25
GROUP_LOCAL_BYTES = 1024  # of a work-group, which the driver takes
OVERLAP = 1.8  # as in `joined`: arithmetic, latency and memory traffic
MOST_FUSED_SLICES = 32  # with more, one work-group would add up what a whole device could
MOST_SUMS = 64  # accumulators of a work-item: with more, no registers are left to add up
SMALLEST_SLICE = 128  # of k
MOST_GROUPS = 16  # work-groups per compute unit where another launch adds up
MOST_FUSED_GROUPS = 6  # the same with fused split-k
# The numbers of slices that are compared: all small ones, then steps of a quarter.
SLICES = (*range(1, 9), *(round(8 * 1.25**i) for i in range(1, 28)))
# `Costs.unaligned_store` is for work-items of so many columns. A piece of a cache line is written
# alone.
MODELLED_WORK_N = 4
PIECE_FLOATS = 8
MODELLED_SUMS = 32  # `Costs.few_lanes` is for work-items of so many accumulators


@dataclass(frozen=True)
class TiledConfig(KernelConfig):
    """Keeps tiles in local memory, and a block of C in each work-item's registers."""

    tile_m: int  # rows of C per work-group
    tile_n: int  # columns of C per work-group
    tile_k: int  # depth of the tiles in local memory
    work_m: int  # rows of C per work-item
    work_n: int  # columns of C per work-item
    width_a: int  # floats per load of A
    width_b: int  # floats per load of B and per store of C
    grid_n: int  # work-items that are side by side along N
    unroll: int  # steps of the loop over a tile's depth that are written out
    buffers: int  # tiles of A and B in local memory; with 2 or more the next is loaded meanwhile
    swizzle: int  # rows of tiles that work-groups visit together, for the second-level cache
    fma: bool  # use fma(); otherwise a * b + c, which compilers may contract
    in_place: bool  # read operands in place, without packing, if their strides allow it
    parts: int = 1  # work-items that share a block of C: each takes some steps over a tile's depth
    asynchronous: bool = False  # copy tiles without registers, by instructions of NVIDIA's GPUs
    registers: int = 0  # of a work-item at most, on NVIDIA's GPUs; 0 for what the compiler takes
    percent: int = 100  # of the time that the model expects, as measured

    family: ClassVar[str] = "tiled"
    source: ClassVar[str] = "tiled/tiled.cl"
    entry: ClassVar[str] = "tiled_product"
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (PackConfig, ReduceConfig)
    includes: ClassVar[tuple[str, ...]] = (
        *("common/store.cl", "common/swizzle.cl", "split_k/fused.cl"),
        *("tiled/copies.cl", "tiled/runs.cl"),
    )
    planned: ClassVar[frozenset[str]] = frozenset({"IN_PLACE", "PERCENT"})

    @property
    def is_square(self) -> bool:
        """Whether the tiles cover C alike whichever way they lie."""
        return self.tile_m == self.tile_n

    @property
    def divides(self) -> bool:
        """Whether one side of a tile divides the other, so that tiles meet at the diagonal of C."""
        return max(self.tile_m, self.tile_n) % min(self.tile_m, self.tile_n) == 0

    @property
    def is_crowded(self) -> bool:
        """Whether a work-item has too few registers, or too much to copy, for single floats."""
        if self.asynchronous:
            return self.tile_k * (self.tile_m + self.tile_n) >= TOO_MANY_COPIES * self.items
        return self.work_m * self.work_n > MOST_SUMS

    @property
    def items_m(self) -> int:
        """Work-items along a tile's rows."""
        return self.tile_m // self.work_m

    @property
    def items_n(self) -> int:
        """Work-items along a tile's columns."""
        return self.tile_n // self.work_n

    @property
    def items(self) -> int:
        return self.items_m * self.items_n * self.parts

    @property
    def local_memory_bytes(self) -> int:
        return FLOAT_BYTES * self.buffers * self.tile_k * (self.tile_m + self.tile_n)

    @property
    def build_options(self) -> tuple[str, ...]:
        """The family's options, and the one that limits registers, if they are limited."""
        limit = f"-cl-nv-maxrregcount={self.registers}"
        return (*self.options, limit) if self.registers else self.options

    @property
    def tiles(self) -> Tiles:
        """What the expected time depends on, where vectors read A and B and store C."""
        return Tiles(
            self.tile_m,
            self.tile_n,
            self.tile_k,
            self.work_m,
            self.work_n,
            self.parts,
            self.buffers,
            self.items,
            self.local_memory_bytes,
            self.asynchronous,
            self.registers,
            self.percent,
            self.grid_n * self.width_b,
            load_a=getattr(self, "load_a", self.width_a),
            load_b=getattr(self, "load_b", self.width_b),
            transpose_a=getattr(self, "transpose_a", False),
            transpose_b=getattr(self, "transpose_b", False),
            triangle=getattr(self, "triangle", False),
        )

    def tiles_for(self, columns: int, c_row: int, c_column: int) -> Tiles:
        """Return the same for a C with so many columns and these strides."""
        is_aligned = self.has_aligned_rows(columns, c_row, c_column)
        return self.tiles._replace(aligned=is_aligned, against_rows=c_column != 1)

    def has_aligned_rows(self, columns: int, c_row: int, c_column: int) -> bool:
        """Return whether vectors cover the rows of a C that begins at one."""
        return c_column == 1 and columns % self.width_b == c_row % self.width_b == 0

    def problems_on(self, limits: Limits) -> Iterator[str]:
        yield from super().problems_on(limits)
        if (self.asynchronous or self.registers) and not limits.asynchronous_copies:
            yield (
                f"asynchronous={self.asynchronous} and registers={self.registers} need an NVIDIA "
                "GPU of compute capability 8.0 or later"
            )

    def problems(self) -> Iterator[str]:
        bad = [*positive(self, "registers"), *vector(self, "width_a"), *vector(self, "width_b")]
        yield from bad
        if bad:
            return
        yield from multiple(self, "tile_m", of="work_m")
        yield from multiple(self, "tile_n", of="work_n")
        yield from multiple(self, "work_m", of="width_a")
        yield from multiple(self, "work_n", of="width_b")
        yield from multiple(self, "tile_k", of="unroll")
        yield from multiple(self, "tile_k", of="parts")
        room = self.buffers * self.tile_k * self.work_m // self.tile_n
        if self.parts > 1 and (room == 0 or self.work_m % min(room, self.work_m)):
            yield f"work_m={self.work_m} is not a multiple of the {room} rows that A's tiles hold"
        if self.items_n % self.grid_n:
            yield f"grid_n={self.grid_n} does not divide {self.items_n} work-items along N"
        if self.asynchronous:
            if not 2 <= self.buffers <= MOST_BUFFERS:
                yield f"buffers={self.buffers} is not 2 to {MOST_BUFFERS}, as asynchronous needs"
            if max(self.width_a, self.width_b) > MOST_COPIED:
                yield f"width_a={self.width_a} or width_b={self.width_b} exceeds {MOST_COPIED}"
        elif self.buffers > 2:
            yield f"buffers={self.buffers} is neither 1 nor 2"


@dataclass(frozen=True)
class TiledVariant(TiledConfig):
    """The config of one launch."""

    load_a: int = 1  # floats per load of A in place
    load_b: int = 1  # the same for B
    transpose_a: bool = False  # A is contiguous along k: transpose it on the way to local memory
    transpose_b: bool = False  # the same for B
    aligned: bool = False  # C consists of aligned vectors along its rows
    whole: bool = False  # it also consists of whole tiles
    down: bool = False  # the rows of C are neighbours in memory
    runs: bool = False  # so are its columns, and k is short: fewer stores, but more registers
    fused_split_k: bool = False  # the kernel itself adds up slices of k
    triangle: bool = False  # leave out the tiles left of the diagonal of C

    @property
    def local_memory_bytes(self) -> int:
        pitch_a = self.tile_m + self.transpose_a * self.width_a
        pitch_b = self.tile_n + self.transpose_b * self.width_b
        return FLOAT_BYTES * self.buffers * self.tile_k * (pitch_a + pitch_b)

    def microseconds(self, launch: Launch) -> float:
        m, n, k, slice_k = (launch.arguments[name] for name in ("m", "n", "k", "slice_k"))
        slices = ceil_div(k, slice_k)
        per_matrix = slices * tiles_of(m, n, self.tile_m, self.tile_n, self.triangle)
        matrices, fused = launch.groups // per_matrix, self.fused_split_k
        tiles = self.tiles_for(n, launch.arguments["c_row"], launch.arguments["c_column"])
        return launch_us(tiles, m, n, k, matrices, slices, fused, launch.limits)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if min(self.load_a, self.load_b) < 1:
            return
        if self.whole > self.aligned:
            yield f"whole={self.whole} needs aligned=True"
        if self.aligned + self.down + self.runs > 1:
            yield f"more than one of aligned={self.aligned}, down={self.down} and runs={self.runs}"
        if self.triangle and not self.divides:
            yield f"triangle=True: of {self.tile_m} and {self.tile_n} neither divides the other"
        for side in "ab":
            yield from multiple(self, f"width_{side}", of=f"load_{side}")
            if getattr(self, f"transpose_{side}"):
                yield from multiple(self, "tile_k", of=f"load_{side}")
                if self.asynchronous and getattr(self, f"load_{side}") > 1:
                    yield f"load_{side} is not 1, as an asynchronous copy that transposes needs"


class Tiles(NamedTuple):
    """What the model takes of a config: see `TiledConfig` and `TiledVariant`."""

    tile_m: int
    tile_n: int
    tile_k: int
    work_m: int
    work_n: int
    parts: int
    buffers: int
    items: int
    local_memory_bytes: int
    asynchronous: bool
    registers: int
    percent: int
    run: int  # columns of C that neighbours store
    load_a: int
    load_b: int
    transpose_a: bool
    transpose_b: bool
    triangle: bool
    aligned: bool = True  # C is stored by aligned vectors
    against_rows: bool = False  # the columns of C are no neighbours in memory


@functools.lru_cache(maxsize=256)
def side_by_side(tiles: Tiles, unit: Unit) -> int:
    """Return the work-groups that run on a compute unit at the same time."""
    each = tiles.registers or tiles.work_m * tiles.work_n * REGISTERS_PER_SUM + OTHER_REGISTERS
    by_local_memory = unit.local_bytes // (tiles.local_memory_bytes + GROUP_LOCAL_BYTES)
    by_registers = int(unit.registers / (tiles.items * each))
    return max(1, min(by_registers, unit.items // tiles.items, by_local_memory))


class TiledEstimate(NamedTuple):
    """The slices of k, the expected time, and whether split-k is fused."""

    slices: int
    time: float
    fused_split_k: bool = False


def launch_us(
    tiles: Tiles, m: int, n: int, k: int, matrices: int, slices: int, fused: bool, limits: Limits
) -> float:
    """Return how long the launch that multiplies is expected to keep the device busy."""
    costs, units = limits.costs, limits.compute_units
    slice_k = round_up(ceil_div(k, slices), tiles.tile_k)
    slices = ceil_div(k, slice_k)
    depth = min(k, slice_k)
    per_matrix = tiles_of(m, n, tiles.tile_m, tiles.tile_n, tiles.triangle)
    groups = matrices * slices * per_matrix
    rounds: float = ceil_div(groups, units)  # work-groups of the busiest compute unit
    most_together = side_by_side(tiles, limits.unit)
    steps = ceil_div(depth, tiles.tile_k)
    area = tiles.tile_m * tiles.tile_n
    moving = tiles.tile_m * _load_cost(tiles, tiles.load_a, tiles.transpose_a, costs)
    moving += tiles.tile_n * _load_cost(tiles, tiles.load_b, tiles.transpose_b, costs)
    # Copies are made beside the arithmetic; loads take registers and instructions of it.
    work = joined(OVERLAP, area, 4 * moving) if tiles.asynchronous else area + 4 * moving
    # Each group takes longer where few run at the same time, as in the last wave. A work-item with
    # more accumulators has more to do meanwhile.
    waves = math.ceil(rounds / most_together)
    lanes = tiles.items * math.sqrt(tiles.work_m * tiles.work_n / MODELLED_SUMS)
    few = costs.few_lanes * 8 * limits.unit.lanes / lanes
    if waves > 1:
        # A compute unit that ends early takes as many of the last groups as it can. Two groups of
        # equal depth that share one end at the same time.
        share = costs.tail if most_together > 2 else 1.0
        rounds += share * (waves * most_together - rounds)
    each = steps * tiles.tile_k * work + costs.tile_end * area  # multiply-adds of a work-group
    arithmetic = (rounds + few * waves) * each / costs.multiply_adds
    step_us = costs.one_buffer_step_us if tiles.buffers == 1 else costs.step_us
    if min(tiles.load_a, tiles.load_b) < 4:
        step_us = costs.narrow_load_step_us
    if tiles.asynchronous:
        step_us = costs.copied_step_us
    latency = waves * (steps * step_us + costs.part_us * (tiles.parts - 1))
    cached = FLOAT_BYTES * groups * depth * (tiles.tile_m + tiles.tile_n) / costs.cache_bytes
    read = matrices * (m * k + k * n)
    written = matrices * (1 if fused else slices) * min(m * n, per_matrix * area)
    stored = costs.aligned_store_bytes if tiles.aligned else costs.store_bytes
    memory = FLOAT_BYTES * (read + stored * written) / costs.memory_bytes
    time = joined(OVERLAP, arithmetic, latency, cached, memory)
    if not tiles.aligned:
        # Neighbours write `work_n` floats apart: the wider, the more pieces of cache lines.
        pieces = area * min(tiles.work_n, PIECE_FLOATS) / MODELLED_WORK_N
        if tiles.against_rows:
            pieces *= costs.against_rows
        else:
            pieces *= 1 + costs.scattered * max(0.0, limits.unit.lanes / tiles.run - 1)
        time += rounds * pieces * costs.unaligned_store / most_together / costs.multiply_adds
    if fused:
        sums = tiles.work_m * tiles.work_n
        time += costs.fused_us + costs.fused_slice_us * slices * sums / MODELLED_SUMS
    return time * tiles.percent / 100


def _load_cost(tiles: Tiles, load: int, transposed: bool, costs: Costs) -> float:
    """Return the multiply-adds that take as long as a row or column of a tile takes to load."""
    if not tiles.asynchronous:
        factor = costs.one_buffer if tiles.buffers == 1 else 1.0
        if load < 4:
            factor *= costs.narrow_load
        return costs.vector_load * factor / load + costs.transposed * transposed
    factor = costs.copied if load == 4 else costs.copied_narrow
    return costs.vector_load * (costs.copied_transposed if transposed else factor) / load


def is_fused(tiles: Tiles, slices: int, limits: Limits) -> bool:
    """Return whether the launch that multiplies so many slices of k also adds them up."""
    return (
        limits.fused_split_k
        and 1 < slices <= MOST_FUSED_SLICES
        and side_by_side(tiles, limits.unit) > 1
        and tiles.work_m * tiles.work_n <= MOST_SUMS
    )


@functools.lru_cache(maxsize=4096)
def tiled_estimate(
    tiles: Tiles, m: int, n: int, k: int, matrices: int, limits: Limits
) -> TiledEstimate:
    """Return the best number of slices of k for a shape, and the expected time in microseconds."""
    groups = matrices * tiles_of(m, n, tiles.tile_m, tiles.tile_n, tiles.triangle)

    def time(slices: int) -> float:
        fused = is_fused(tiles, slices, limits)
        taken = launch_us(tiles, m, n, k, matrices, slices, fused, limits)
        if slices > 1 and not fused:
            taken += limits.costs.host_more_us + reduce_us(matrices * m * n, slices, limits.costs)
        return taken

    deepest, units = k // SMALLEST_SLICE, limits.compute_units
    most = max(1, min(deepest, MOST_GROUPS * units // groups))
    most_fused = min(deepest, MOST_FUSED_GROUPS * units // groups)
    tried = [s for s in SLICES if s <= most or (s <= most_fused and is_fused(tiles, s, limits))]
    best = min({*tried, most}, key=time)
    return TiledEstimate(best, time(best), is_fused(tiles, best, limits))


# An operand that must be loaded float by float, or transposed where that takes long, is packed if
# more tiles than this read it. That is the rule where expected times do not decide.
MOST_READS = 16
# The most steps over k for which the stores count: with more, the loop before them does, which then
# takes 3 % longer (an H200, 2026-11-24).
MOST_STORED_DEPTH = 256


def _fitted(
    config: TiledConfig, a: Layout, b: Layout, limits: Limits, most_reads: float
) -> tuple[TiledVariant, tuple[bool, bool]]:
    """Return a config that reads A and B, and which operands it reads in place.

    Crowded configs read operands in place by vectors alone. Where sums take most registers and a
    load has two floats, NVIDIA's compiler puts the loads last: tiles of 128 x 128 took 1.5 times as
    long as packed (5538 x 5538 x 5538 on an H100, driver 580.159, 2026-11-25).
    """
    b = b.transposed()  # read like A
    is_read_often = b.rows > most_reads * config.tile_n, a.rows > most_reads * config.tile_m
    fit = variant_of(TiledVariant, config, load_a=config.width_a, load_b=config.width_b)
    in_place = [False, False]
    for operand, rows in enumerate((a, b)):
        width = (config.width_a, config.width_b)[operand]
        for transposed in (False, True):
            load = _load(rows, transposed, width)
            if config.asynchronous and transposed:
                load = min(load, 1)
            is_slow = load < width and (load == 1 or most_reads == 0)
            is_slow |= transposed and not limits.transposes_tiles
            if not config.in_place or load == 0 or (is_slow and is_read_often[operand]):
                continue
            if load < width and config.is_crowded:
                continue
            if operand == 0:
                found = replace(fit, load_a=load, transpose_a=transposed)
            else:
                found = replace(fit, load_b=load, transpose_b=transposed)
            if not any(found.problems_on(limits)):
                fit, in_place[operand] = found, True
                break
    return fit, (in_place[0], in_place[1])


def _storing(config: TiledVariant, c: Layout, depth: int) -> TiledVariant:
    """Return a config that stores a block of C as fast as its layout allows.

    Parameters
    ----------
    depth : int
        Steps over k of a work-group.
    """
    aligned = (
        config.has_aligned_rows(c.columns, c.row_stride, c.column_stride)
        and not any(stride % config.width_b for stride in c.strides[:-2])
        and c.alignment_bytes >= FLOAT_BYTES * config.width_b
    )
    whole = c.rows % config.tile_m == 0 and c.columns % config.tile_n == 0
    down = c.row_stride == 1 and not aligned
    runs = c.column_stride == 1 and depth <= MOST_STORED_DEPTH and not (aligned or down)
    return replace(config, aligned=aligned, whole=aligned and whole, down=down, runs=runs)


def _load(rows: Layout, transposed: bool, width: int) -> int:
    """Return how many floats one load can take in place; 0 if the layout does not fit."""
    stride = rows.column_stride if transposed else rows.row_stride
    return widest_load(rows, not transposed, width) if stride == 1 else 0


def reads_narrowly(a: Layout, b: Layout, config: TiledConfig) -> bool:
    """Return whether A or B, read in place, must be loaded by fewer floats than once packed."""
    return any(
        0 < max(_load(rows, transposed, width) for transposed in (False, True)) < width
        for rows, width in ((a, config.width_a), (b.transposed(), config.width_b))
    )


def in_place_us(a: Layout, b: Layout, c: Layout, config: TiledConfig, limits: Limits) -> float:
    """Return the expected time of a product whose operands are read in place where they can be."""
    found, _ = _fitted(config, a, b, limits, most_reads=math.inf)
    return _estimated(found, c, a.columns, math.prod(c.batch), limits).time


def _estimated(
    config: TiledVariant, c: Layout, k: int, matrices: int, limits: Limits
) -> TiledEstimate:
    """Return the expected time of products of this shape, and the best split-k."""
    tiles = config.tiles_for(c.columns, c.row_stride, c.column_stride)
    return tiled_estimate(tiles, c.rows, c.columns, k, matrices, limits)


@dataclass(frozen=True)
class LocalPanels(LanePanels):
    """A product of panels, with tiles in local memory. Panels are padded to whole tiles of k."""

    config: TiledVariant

    @property
    def grain(self) -> int:
        """The depth of a tile."""
        return self.config.tile_k

    def padded(self, depth: int) -> int:
        """Return the columns of a packed block, padded to whole tiles."""
        return round_up(depth, self.config.tile_k)

    def multiply(self, place: Place, scratch: Scratch) -> Iterator[Step]:
        """Yield the launch that multiplies, and with split-k the one that adds up."""
        config, (m, n, k), part = self.config, place.sizes, place.part
        if (m, n) != (self.c.rows, self.c.columns):
            config = replace(config, triangle=False)
        a, strides_a = self._panels("a", part, m, k, place.origins[0])
        b, strides_b = self._panels("b", part, n, k, place.origins[1])
        batch = batch_over(part, strides_a, strides_b)
        block = self.c._replace(shape=(*self.c.batch, m, n))
        spread = _estimated(config, block, k, batch.matrices, self.limits)
        slice_k = round_up(ceil_div(k, spread.slices), config.tile_k)
        cuts = ceil_div(k, slice_k)
        tiles = tiles_of(m, n, config.tile_m, config.tile_n, config.triangle)
        fused = None
        if spread.fused_split_k:
            fused = tiles * batch.matrices, config.tile_m * config.tile_n
        result = target_of(self, place, cuts, batch, scratch, fused)
        sizes = {"m": m, "n": n, "k": k, "slice_k": slice_k}
        if result.adding:  # partial products, which are dense
            block = Layout((m, n), (n, 1), FLOAT_BYTES * config.width_b)
        yield Step(
            replace(_storing(config, block, min(k, slice_k)), fused_split_k=result.fused_split_k),
            tiles * cuts * batch.matrices,
            product_arguments(sizes, batch, a, b, result),
        )
        yield from result.adding

    def _panels(
        self, side: Side, part: Slice, rows: int, depth: int, origin: int
    ) -> tuple[dict[str, Argument], tuple[int, ...]]:
        """Return the kernel's arguments for an operand's panels, and the batch's strides."""
        operand = SIDES.index(side)
        tile = self.tiles[operand]
        if not self.packed[operand]:
            x = self.rows[operand]
            transposed = (self.config.transpose_a, self.config.transpose_b)[operand]
            strides = strides_of(part.levels, operand)
            first = Element(side, part.offsets[operand] + origin)
            pitch = x.row_stride if transposed else x.column_stride
            return operand_at(side, side, first, panel=tile * x.row_stride, pitch=pitch), strides
        panel = tile * self.padded(depth)
        strides = packed_strides(part.levels, operand, ceil_div(rows, tile) * panel)
        return operand_at(side, PACKED[operand], 0, panel=panel, pitch=tile), strides


def make_tiled_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: TiledConfig,
    pack: tuple[PackConfig, ...],
    limits: Limits,
    most_reads: float = MOST_READS,
    is_half: bool = False,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C``.

    Parameters
    ----------
    pack : tuple of PackConfig
        The configs that pack A and B, if they are packed.
    most_reads : float, optional
        An operand that must be loaded float by float, or transposed where that takes long, is
        packed if more tiles than this read it. At 0, so is one whose loads are narrower than the
        config's.
    is_half : bool, optional
        As `Problem.is_half`.
    """
    found, in_place = _fitted(config, a, b, limits, most_reads)
    found = replace(found, triangle=is_half and config.divides)
    panels = LocalPanels(
        *(a, b, c),
        tiles=(config.tile_m, config.tile_n),
        packed=(not in_place[0], not in_place[1]),
        pack=pack,
        limits=limits,
        config=found,
        slices=_estimated(found, c, a.columns, math.prod(c.batch), limits).slices,
    )
    return make_panel_plan(panels)
