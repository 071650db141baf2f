"""The launches of the tiled family: operands in place or in panels. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from clgemm.core.config import variant_of
from clgemm.core.plan import (
    LONGEST_SUM,
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
from clgemm.core.traits import Limits
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
from clgemm.kernels.split_k.plan import product_arguments
from clgemm.kernels.tiled.config import TiledConfig, TiledEstimate, TiledVariant, tiled_estimate

__all__ = ["MOST_READS", "in_place_us", "make_tiled_plan", "reads_narrowly"]

# An operand that must be loaded float by float is packed if more tiles than this read it. That is
# the rule for devices without expected times.
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
            is_narrow = load < width and (load == 1 or most_reads == 0)
            if not config.in_place or load == 0 or (is_narrow and is_read_often[operand]):
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
    return any(0 < load < width for load, width in _loads(a, b, config))


def _loads(a: Layout, b: Layout, config: TiledConfig) -> Iterator[tuple[int, int]]:
    """Yield for each operand how many floats one load can take in place, and once packed."""
    for rows, width in ((a, config.width_a), (b.transposed(), config.width_b)):
        yield max(_load(rows, transposed, width) for transposed in (False, True)), width


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
    slices: int  # of k

    @property
    def grain(self) -> int:
        """The depth of a tile."""
        return self.config.tile_k

    @property
    def longest(self) -> int:
        """The longest sum, times the slices, which are summed separately."""
        return LONGEST_SUM * self.slices

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
        An operand that must be loaded float by float is packed if more tiles than this read it. At
        0, so is one whose loads are narrower than the config's.
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
