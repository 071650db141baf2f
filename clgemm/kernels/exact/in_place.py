"""Products of other dtypes in one launch, from operands where they lie: configs and plans. Pure.

For small products and for few rows or columns, which packing would take longer than multiplying.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from clgemm.core.config import KernelConfig, multiple, positive
from clgemm.core.plan import (
    COUNTERS,
    LAST_ITEM,
    Argument,
    Element,
    Plan,
    Slot,
    Step,
    batch_of,
    ceil_div,
    operand_in_place,
    round_up,
    slices,
)
from clgemm.core.problem import Layout, batch_levels
from clgemm.core.traits import Limits
from clgemm.kernels.common.panels import Scratch
from clgemm.kernels.exact.types import (
    BITS,
    BYTES,
    COMPLEX_DOUBLE,
    COMPLEX_FLOAT,
    COMPLEX_STORED,
    DOUBLE,
    DTYPES,
    FLOAT,
    HALF_PAIRS,
    HALVES,
    INT,
    LANE_BYTES,
    LONG,
    MANY_REGISTERS,
    RESULTS,
    SHORT,
    WORDS,
    Types,
)

SLOTS: tuple[Slot, ...] = ("a", "b", "c")
STEPS = 16  # words of k in local memory
PADDING = {4: 8, 8: 4, 16: 2}  # words behind a step there, by the bytes of a word
MOST_SLICES, LEAST_STEPS = 64, 2  # slices of k; times STEPS words in each
WAVES = 0, 1, 2, 4  # work-groups of all slices on a compute unit; with 0 k is not cut
# Of a launch on an H200: a display waits for it, and other GPUs take many times as long.
LONGEST_US = 2e4
# Microseconds on an H200: of a launch; of slices, and of each of them. Bytes that are stored and
# read in one.
LAUNCH_US, SLICES_US, SLICE_US, STORED_PER_US, READ_PER_US = 7.0, 3.0, 0.3, 1e6, 4e6


class Tile(NamedTuple):
    """What a work-group computes, and what that takes."""

    rows: int  # of C
    columns: int
    items_m: int  # work-items along the rows of C, or warps
    items_n: int
    step_us: float  # of STEPS words of k, on an H200
    abreast: float  # work-groups that a compute unit works on without taking longer
    unroll: int = 0  # of steps in local memory; as a device's registers allow, if 0
    waves: tuple[int, ...] = WAVES


INT_TILES = (
    Tile(8, 128, 1, 128, 0.7, 2.5),
    Tile(16, 64, 8, 16, 0.7, 2.5),
    Tile(32, 32, 8, 8, 0.7, 3.0),
    Tile(64, 64, 16, 16, 1.2, 1.5),
)
# Wider words leave room for a second work-group in 64 KiB of local memory.
WIDE_TILES = (
    Tile(8, 64, 1, 64, 0.9, 2.5),
    Tile(16, 64, 8, 16, 1.4, 2.5),
    Tile(32, 32, 16, 8, 1.2, 2.5),
)
COMPLEX_TILES = (
    Tile(4, 64, 1, 64, 0.64, 2.8),
    Tile(16, 64, 4, 16, 1.13, 2.1),
    Tile(32, 64, 8, 16, 1.07, 1.2),
)
WIDE_COMPLEX_TILES = Tile(4, 32, 1, 32, 1.3, 4.0), Tile(16, 32, 4, 8, 2.2, 3.0)
# Of words of four bytes, and of doubles, on tensor cores.
TENSOR_TILES = (
    Tile(16, 128, 1, 4, 0.83, 1.7),
    Tile(32, 64, 2, 2, 0.68, 2.1),
    Tile(64, 64, 2, 2, 0.90, 1.9),
    Tile(128, 128, 4, 2, 1.36, 0.73),
)
DOUBLE_TILES = (
    Tile(16, 128, 1, 4, 0.48, 1.75),
    Tile(32, 64, 2, 2, 0.38, 2.28),
    Tile(64, 64, 2, 2, 0.59, 1.35),
)
TILES = {
    **dict.fromkeys((INT, FLOAT), INT_TILES),
    **dict.fromkeys((LONG, DOUBLE), WIDE_TILES),
    COMPLEX_FLOAT: COMPLEX_TILES,
    COMPLEX_DOUBLE: WIDE_COMPLEX_TILES,
}
ON_TENSORS = {BYTES: TENSOR_TILES, HALF_PAIRS: TENSOR_TILES, DOUBLE: DOUBLE_TILES}


@dataclass(frozen=True)
class ExactInPlaceConfig(KernelConfig):
    """Multiplies tiles in local memory, which every work-group fills from operands in place."""

    loaded: int
    lane: int
    stored: int
    tile_m: int  # rows of C of a work-group
    tile_n: int  # columns
    items_m: int  # work-items along the rows of C, or warps
    items_n: int
    tensors: bool  # multiply on tensor cores
    signs: int  # of bytes: 1 if those of A are signed, and 2 if those of B are
    padding: int  # words behind a step in local memory
    unroll: int  # of the steps there
    along_k: int = 0  # 1 if neighbours of A lie along k, and 2 if those of B do
    steps: int = STEPS  # words of k in local memory
    fused_split_k: bool = False  # the last work-group adds up slices of k

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/in_place.cl"
    entry: ClassVar[str] = "exact_in_place"
    includes: ClassVar[tuple[str, ...]] = (
        *("exact/types.cl", "exact/loaded.cl", "exact/stored.cl", "split_k/fused.cl"),
    )

    @property
    def items(self) -> int:
        return (32 if self.tensors else 1) * self.items_m * self.items_n

    @property
    def local_memory_bytes(self) -> int:
        words = 2 * self.steps * (self.tile_m + self.tile_n + 2 * self.padding)
        return words * LANE_BYTES[self.lane] + 4

    def problems(self) -> Iterator[str]:
        bad = [*positive(self, "loaded", "stored", "along_k", "signs")]
        yield from bad
        if not bad:
            yield from multiple(self, "items", of="steps")
            yield from multiple(self, "items", of="tile_m")
            yield from multiple(self, "items", of="tile_n")
            for tile, items in (self.tile_m, self.items_m), (self.tile_n, self.items_n):
                if tile % items or self.steps * tile % self.items:
                    yield f"{self.items} work-items do not share a side of {tile} evenly"


class InPlace(NamedTuple):
    """How a product is made in one launch, and what that is expected to take."""

    us: float
    swapped: bool  # A and B are taken for B' and A'
    tile: Tile
    depth: int  # words of k in a slice
    slices: int


def in_place(
    a: Layout,
    c: Layout,
    types: Types,
    limits: Limits,
    on_tensors: bool | None = None,
    tile: Tile | None = None,
) -> InPlace | None:
    """Return the way that is expected to be fastest; None if there is none for these dtypes.

    A launch that would take long is none.

    Parameters
    ----------
    on_tensors : bool, optional
        Whether tensor cores may make it; by default, if the device has them.
    tile : Tile, optional
        The only one to consider.
    """
    if limits.has_vectors or types.a != types.b or not a.columns:
        return None
    if types.c[0] in "bc" and types.c != types.a:  # its elements are loaded as they are
        return None
    lane, tiles_here = tiles_that_fit(types, limits, on_tensors)
    tiles_here = tiles_here if tile is None else (tile,)
    words, matrices = ceil_div(a.columns, WORDS.get(lane, 1)), math.prod(c.batch)
    sizes = c.rows, c.columns, a.columns, matrices
    found = []
    for swapped in (False, True):
        m, n = (c.columns, c.rows) if swapped else (c.rows, c.columns)
        for tile in tiles_here:
            tiles = ceil_div(m, tile.rows) * ceil_div(n, tile.columns) * matrices
            for count in _counts(tiles, words, limits, tile.waves):
                depth = round_up(ceil_div(words, count), STEPS)
                cuts = ceil_div(words, depth)
                us = _expected_us(sizes, types, tile, tiles, depth, cuts, limits)
                if us <= LONGEST_US:
                    found.append(InPlace(us, swapped, tile, depth, cuts))
    return min(found, default=None)


def lane_of(types: Types, limits: Limits, on_tensors: bool | None) -> tuple[int, bool]:
    """Return what is multiplied, and whether tensor cores do."""
    lane = RESULTS[types.c][0]
    if types.c[0] == "c":
        return (COMPLEX_FLOAT if lane == FLOAT else COMPLEX_DOUBLE), False
    if on_tensors is not False and limits.matrix_products:
        if types[:3] == HALVES and (types.precision != "strict" or on_tensors):
            return HALF_PAIRS, True
        if types.are_in_bytes or types.c == "b1":
            return BYTES, True
        if lane == DOUBLE and limits.exact_tensors:
            return DOUBLE, True
    return (INT if lane in (BITS, SHORT) else lane), False


@functools.lru_cache(maxsize=256)
def tiles_that_fit(
    types: Types, limits: Limits, on_tensors: bool | None
) -> tuple[int, tuple[Tile, ...]]:
    """Return what is multiplied, and the tiles whose work-groups fit the device."""
    lane, uses_tensors = lane_of(types, limits, on_tensors)
    tiles = (ON_TENSORS if uses_tensors else TILES)[lane]
    configs = (in_place_config(tile, types, limits, on_tensors) for tile in tiles)
    fits = (not any(config.problems_on(limits)) for config in configs)
    return lane, tuple(itertools.compress(tiles, fits))


def in_place_config(
    tile: Tile, types: Types, limits: Limits, on_tensors: bool | None
) -> ExactInPlaceConfig:
    """Return the config of a tile, for operands whose neighbours lie along rows or columns."""
    lane, uses_tensors = lane_of(types, limits, on_tensors)
    return ExactInPlaceConfig(
        loaded=DTYPES[types.a],
        lane=lane,
        stored=COMPLEX_STORED.get(types.c, RESULTS[types.c][1]),
        tile_m=tile.rows,
        tile_n=tile.columns,
        items_m=tile.items_m,
        items_n=tile.items_n,
        tensors=uses_tensors,
        signs=types.signs if lane == BYTES else 0,
        padding=PADDING[LANE_BYTES[lane]],
        unroll=tile.unroll or (STEPS if limits.registers >= MANY_REGISTERS else 1),
    )


def _counts(tiles: int, words: int, limits: Limits, waves: tuple[int, ...]) -> list[int]:
    """Return in how many slices k may be cut, so that all compute units have work."""
    if not limits.fused_split_k or tiles > COUNTERS * limits.compute_units:
        return [1]
    most = min(MOST_SLICES, words // (LEAST_STEPS * STEPS))
    return sorted({max(1, min(wave * limits.compute_units // tiles, most)) for wave in waves})


def _expected_us(
    sizes: tuple[int, ...],
    types: Types,
    tile: Tile,
    tiles: int,
    depth: int,
    cuts: int,
    limits: Limits,
) -> float:
    """Return the expected time on an H200, in microseconds."""
    m, n, k, matrices = sizes
    rounds = max(1.0, tiles * cuts / (limits.compute_units * tile.abreast))
    read = matrices * (m + n) * k * int(types.a[1:]) / READ_PER_US
    stored = matrices * m * n * int(types.c[1:]) / STORED_PER_US
    adding = SLICES_US + cuts * SLICE_US if cuts > 1 else 0.0
    return LAUNCH_US + rounds * depth / STEPS * tile.step_us + read + stored + adding


def in_place_plan(
    way: InPlace,
    a: Layout,
    b: Layout,
    c: Layout,
    types: Types,
    limits: Limits,
    on_tensors: bool | None = None,
) -> Plan:
    """Return the launch of ``C = A B``: one, unless a batch has many loops."""
    if way.swapped:
        a, b, c = (x.transposed() for x in (b, a, c))
    tile = way.tile
    config = replace(
        in_place_config(tile, types, limits, on_tensors),
        along_k=(abs(a.column_stride) == 1) + 2 * (abs(b.row_stride) == 1),
        fused_split_k=way.slices > 1,
    )
    tiles = ceil_div(c.rows, tile.rows) * ceil_div(c.columns, tile.columns)
    steps, scratch = [], Scratch()
    most = max(1, LAST_ITEM // (tiles * way.slices * config.items))
    for offsets, levels in slices(batch_levels(a, b, c), most, 3):
        batch = batch_of(levels, 3)
        arguments: dict[str, Argument] = {
            "m": c.rows,
            "n": c.columns,
            "k": a.columns,
            "depth": way.depth,
            "adds": "beta",
            "counts": batch.counts,
        }
        for slot, x, first, strides in zip(SLOTS, (a, b, c), offsets, batch.strides, strict=True):
            arguments |= operand_in_place(slot, slot, Element(slot, first), x, strides=strides)
        if way.slices > 1:
            arguments |= {"slices_out": "partial", "counters": "counters"}
            groups = tiles * way.slices * batch.matrices
            scratch.reserve("partial", groups * tile.rows * tile.columns * LANE_BYTES[config.lane])
        steps.append(Step(config, tiles * way.slices * batch.matrices, arguments))
    return scratch.plan(steps)
