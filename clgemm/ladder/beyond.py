"""Rungs 11 and up: what follows the tutorial's ten kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.ladder.rung import WIDTHS, Presets, Rung, Shape, multiples

__all__ = ["AfterClBlas"]


@dataclass(frozen=True, kw_only=True)
class AfterClBlas(Rung):
    """The rung without local memory, after the kernel of clBlas."""

    tile_m: int
    tile_n: int
    work_m: int
    work_n: int
    width: int

    number = 11
    title = "after clBlas: no local memory"
    file = "11_after_clblas.cl"
    follows = 4
    presets: ClassVar[Presets] = (
        {"tile_m": 64, "tile_n": 32, "work_m": 8, "work_n": 4, "width": 4},
        {"tile_m": 32, "tile_n": 16, "work_m": 8, "work_n": 4, "width": 4},
        {"tile_m": 16, "tile_n": 8, "work_m": 4, "work_n": 2, "width": 2},
        {"tile_m": 8, "tile_n": 8, "work_m": 2, "work_n": 2, "width": 2},
    )

    @property
    def extent(self) -> Shape:
        return Shape(self.tile_m, self.tile_n, self.width)

    @property
    def items(self) -> tuple[int, int]:
        return self.tile_m // self.work_m, self.tile_n // self.work_n

    @property
    def local_memory_bytes(self) -> int:
        return 0

    def problems(self) -> Iterator[str]:
        yield from (bad := list(super().problems()))
        if not bad:
            yield from multiples(self, tile_m="work_m", tile_n="work_n")
            for name, value in (("work_m", self.work_m), ("width", self.width)):
                if value not in WIDTHS:
                    yield f"{name}={value} is not one of {WIDTHS}"
