"""Rungs 11 and up: what follows the tutorial's ten kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.ladder.blocks import Prefetch, square_launch
from clgemm.ladder.rung import WIDTHS, Launch, Presets, Rung, Shape, Target, multiples

__all__ = [
    "AfterClBlas",
    "AsynchronousCopies",
    "RegisterPrefetch",
    "SplitK",
    "SwizzledOrder",
    "WideLocalReads",
]


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


@dataclass(frozen=True, kw_only=True)
class WideLocalReads(Prefetch):
    """The rung that reads vectors from local memory."""

    number = 12
    title = "wide reads of local memory"
    file = "12_wide_local_reads.cl"
    follows = 9
    kepler_gflops = 0

    def problems(self) -> Iterator[str]:
        yield from (bad := list(super().problems()))
        if not bad:
            yield from multiples(self, work_m="width", work_n="width")


@dataclass(frozen=True, kw_only=True)
class RegisterPrefetch(WideLocalReads):
    """The rung that reads the next step of a tile while it multiplies the current one."""

    number = 13
    title = "double buffering in registers"
    file = "13_register_prefetch.cl"
    follows = 12
    # Larger blocks hide more: chosen on an H200.
    presets: ClassVar[Presets] = (
        {"tile_m": 128, "tile_n": 128, "tile_k": 16, "work_m": 16, "work_n": 8, "width": 4},
        *WideLocalReads.presets,
    )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.tile_k % 2:
            yield f"tile_k={self.tile_k} is odd: two steps along k take turns"


@dataclass(frozen=True, kw_only=True)
class AsynchronousCopies(RegisterPrefetch):
    """The rung that lets the device copy the tiles."""

    number = 16
    title = "asynchronous copies"
    file = "16_asynchronous_copies.cl"
    follows = 13
    presets: ClassVar[Presets] = WideLocalReads.presets

    def fetch_problems(self) -> Iterator[str]:
        yield from (bad := list(self.width_problems("tile_m", "tile_n")))
        if not bad:
            yield from multiples(self, tile_m="work_m")

    @classmethod
    def missing(cls, target: Target) -> str:
        there = target.asynchronous_copies
        return "" if there else "the toolchain does not have OpenCL's async_work_group_copy"


@dataclass(frozen=True, kw_only=True)
class SwizzledOrder(RegisterPrefetch):
    """The rung whose work-groups take the tiles of C in bands."""

    swizzle: int = 8

    number = 14
    title = "swizzled order of the tiles"
    file = "14_swizzled_order.cl"
    follows = 13


@dataclass(frozen=True, kw_only=True)
class SplitK(SwizzledOrder):
    """The rung whose work-groups share the sums of a tile of C."""

    split: int = 4
    reduce: int = 16

    number = 15
    title = "split-k"
    file = "15_split_k.cl"
    follows = 14
    presets: ClassVar[Presets] = WideLocalReads.presets

    def buffers(self, shape: Shape) -> dict[str, int]:
        return {**super().buffers(shape), "partial": self.split * shape.m * shape.n}

    def launches(self, shape: Shape) -> tuple[Launch, ...]:
        multiply = self.multiply(shape, "a", "b_t", "partial")
        tiles_m, tiles_n = multiply.groups
        covered, sizes = (shape.m, shape.n), (shape.m, shape.n, self.split)
        return (
            self.transposition(shape, "b", "b_t"),
            multiply._replace(groups=(tiles_m, tiles_n * self.split)),
            square_launch("reduce", self.reduce, covered, sizes, ("partial", "c")),
        )

    def steps(self, shape: Shape) -> int:
        return shape.k // self.split

    def results(self, shape: Shape) -> int:
        return self.split * super().results(shape)

    def problems_on(self, target: Target, shape: Shape) -> Iterator[str]:
        yield from (bad := list(super().problems_on(target, shape)))
        if not bad and shape.k % (self.split * self.tile_k):
            yield (
                f"k={shape.k} is not a multiple of split={self.split} times tile_k={self.tile_k}"
            )
