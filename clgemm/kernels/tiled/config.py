"""The config of the tiled family: tiles in local memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import FLOAT_BYTES, KernelConfig, Launch, Limits, multiple, positive, vector
from clgemm.core.steps import ceil_div
from clgemm.kernels.pack.plan import PackConfig
from clgemm.kernels.split_k.plan import ReduceConfig
from clgemm.kernels.tiled.estimate import MOST_SUMS, Tiles, launch_us

__all__ = ["TiledConfig", "TiledVariant"]


MOST_BUFFERS = 6  # of asynchronous copies
MOST_COPIED = 4  # floats that one asynchronous copy takes
# Copies of single floats for each work-item and tile. With so many, tiles of 64 x 64 x 16 take up
# to 1.2 times as long as expected (means of 89 plans by layout, H100s, 2026-11-25).
TOO_MANY_COPIES = 32


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
        )

    def tiles_for(self, columns: int, c_row: int, c_column: int) -> Tiles:
        """Return the same for a C with so many columns and these strides."""
        is_aligned = self.has_aligned_rows(columns, c_row, c_column)
        return self.tiles._replace(aligned=is_aligned, against_rows=c_column != 1)

    def has_aligned_rows(self, columns: int, c_row: int, c_column: int) -> bool:
        """Tell whether vectors cover the rows of a C that begins at one."""
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

    @property
    def local_memory_bytes(self) -> int:
        pitch_a = self.tile_m + self.transpose_a * self.width_a
        pitch_b = self.tile_n + self.transpose_b * self.width_b
        return FLOAT_BYTES * self.buffers * self.tile_k * (pitch_a + pitch_b)

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch."""
        m, n, k, slice_k = (launch.arguments[name] for name in ("m", "n", "k", "slice_k"))
        slices = ceil_div(k, slice_k)
        per_matrix = slices * ceil_div(m, self.tile_m) * ceil_div(n, self.tile_n)
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
        for side in "ab":
            yield from multiple(self, f"width_{side}", of=f"load_{side}")
            if getattr(self, f"transpose_{side}"):
                yield from multiple(self, "tile_k", of=f"load_{side}")
                if self.asynchronous and getattr(self, f"load_{side}") > 1:
                    yield f"load_{side} is not 1, as an asynchronous copy that transposes needs"
