"""Rungs 1 to 4: square tiles, and B without a transposition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.ladder.rung import FLOAT_BYTES, WIDTHS, Presets, Rung, Shape, multiples

__all__ = ["MoreWork", "Naive", "Tiled", "WiderTypes"]


@dataclass(frozen=True, kw_only=True)
class Naive(Rung):
    """The rung with one work-item for each element of C."""

    tile: int

    number = 1
    title = "naive"
    file = "01_naive.cl"
    kepler_gflops = 139
    presets: ClassVar[Presets] = ({"tile": 32}, {"tile": 16}, {"tile": 8})

    @property
    def extent(self) -> Shape:
        return Shape(self.tile, self.tile, 1)

    @property
    def items(self) -> tuple[int, int]:
        return self.tile, self.tile

    @property
    def local_memory_bytes(self) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class Tiled(Naive):
    """The rung with square tiles in local memory."""

    number = 2
    title = "tiling in local memory"
    file = "02_tiled.cl"
    kepler_gflops = 373

    @property
    def extent(self) -> Shape:
        return Shape(self.tile, self.tile, self.tile)

    @property
    def local_memory_bytes(self) -> int:
        return 2 * FLOAT_BYTES * self.tile**2


@dataclass(frozen=True, kw_only=True)
class MoreWork(Tiled):
    """The rung with several columns of C for each work-item."""

    work_n: int

    number = 3
    title = "more work per work-item"
    file = "03_more_work.cl"
    kepler_gflops = 689
    presets: ClassVar[Presets] = (
        {"tile": 32, "work_n": 8},
        {"tile": 16, "work_n": 4},
        {"tile": 8, "work_n": 4},
    )

    @property
    def items(self) -> tuple[int, int]:
        return self.tile, self.tile // self.work_n

    def problems(self) -> Iterator[str]:
        yield from (bad := list(super().problems()))
        if not bad:
            yield from multiples(self, tile="work_n")


@dataclass(frozen=True, kw_only=True)
class WiderTypes(Tiled):
    """The rung with vectors in place of floats."""

    width: int

    number = 4
    title = "wider data types"
    file = "04_wider_types.cl"
    kepler_gflops = 729
    presets: ClassVar[Presets] = (
        {"tile": 32, "width": 4},
        {"tile": 16, "width": 4},
        {"tile": 8, "width": 2},
    )

    @property
    def items(self) -> tuple[int, int]:
        return self.tile // self.width, self.tile

    def problems(self) -> Iterator[str]:
        yield from (bad := list(super().problems()))
        if not bad:
            yield from multiples(self, tile="width")
            if self.width not in WIDTHS:
                yield f"width={self.width} is not one of {WIDTHS}"
