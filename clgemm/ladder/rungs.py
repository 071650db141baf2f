"""The rungs, and the choice of their parameters for a device.

Rungs 1 to 4 have square tiles, 5 to 10 a transposed B and rectangular tiles. Rungs 11 to 16 follow
the tutorial's ten. Rung 22 multiplies complex numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clgemm.ladder.rung import (
    FLOAT_BYTES,
    Launch,
    Pairs,
    Presets,
    Rung,
    Shape,
    Target,
    square_launch,
)
from clgemm.ladder.tensor import EightBitSlices, Guard, SplitOperands, TensorCores, WarpGroups
from clgemm.testing.assertions import gamma

READ_ONLY_WIDTHS = (1, 2, 4)  # floats that one load instruction of NVIDIA's GPUs reads


@dataclass(frozen=True, kw_only=True)
class Naive(Rung):
    """The rung with one work-item for each element of C."""

    tile: int

    number = 1
    title = "naive"
    file = "01_naive.cl"
    kepler_gflops = 139
    local_tiles = 0
    presets: ClassVar[Presets] = ({"tile": 32}, {"tile": 16}, {"tile": 8})

    @property
    def extent(self) -> Shape:
        return Shape(self.tile, self.tile, 1)

    @property
    def items(self) -> tuple[int, int]:
        return self.tile, self.tile


@dataclass(frozen=True, kw_only=True)
class Tiled(Naive):
    """The rung with square tiles in local memory."""

    number = 2
    title = "tiling in local memory"
    file = "02_tiled.cl"
    kepler_gflops = 373
    local_tiles = 1

    @property
    def extent(self) -> Shape:
        return Shape(self.tile, self.tile, self.tile)


@dataclass(frozen=True, kw_only=True)
class MoreWork(Tiled):
    """The rung with several columns of C for each work-item."""

    work_n: int

    number = 3
    title = "more work per work-item"
    file = "03_more_work.cl"
    kepler_gflops = 689
    multiples: ClassVar[Pairs] = (("tile", "work_n"),)
    presets: ClassVar[Presets] = (
        {"tile": 32, "work_n": 8},
        {"tile": 16, "work_n": 4},
        {"tile": 8, "work_n": 4},
    )

    @property
    def items(self) -> tuple[int, int]:
        return self.tile, self.tile // self.work_n


@dataclass(frozen=True, kw_only=True)
class WiderTypes(Tiled):
    """The rung with vectors in place of floats."""

    width: int

    number = 4
    title = "wider data types"
    file = "04_wider_types.cl"
    kepler_gflops = 729
    multiples: ClassVar[Pairs] = (("tile", "width"),)
    presets: ClassVar[Presets] = (
        {"tile": 32, "width": 4},
        {"tile": 16, "width": 4},
        {"tile": 8, "width": 2},
    )

    @property
    def items(self) -> tuple[int, int]:
        return self.tile // self.width, self.tile


@dataclass(frozen=True, kw_only=True)
class Transposed(Rung):
    """The rung with a transposed B and rectangular tiles."""

    tile_m: int
    tile_n: int
    tile_k: int
    work_n: int
    transpose: int = 16

    number = 5
    title = "transposed B, rectangular tiles"
    file = "05_transposed.cl"
    kepler_gflops = 740
    multiples: ClassVar[Pairs] = (("tile_n", "work_n"),)
    same_sides: ClassVar[bool] = True  # whether one loop fetches the tiles of A and B
    presets: ClassVar[Presets] = (
        {"tile_m": 64, "tile_n": 64, "tile_k": 32, "work_n": 8},
        {"tile_m": 32, "tile_n": 32, "tile_k": 16, "work_n": 8},
        {"tile_m": 16, "tile_n": 16, "tile_k": 8, "work_n": 4},
        {"tile_m": 8, "tile_n": 8, "tile_k": 8, "work_n": 4},
    )

    @property
    def extent(self) -> Shape:
        return Shape(self.tile_m, self.tile_n, self.tile_k)

    @property
    def items(self) -> tuple[int, int]:
        return self.tile_m, self.tile_n // self.work_n

    @property
    def load_width(self) -> int:
        """Floats per load from global memory."""
        return 1

    def buffers(self, shape: Shape) -> dict[str, int]:
        return {**super().buffers(shape), "b_t": shape.n * shape.k}

    def launches(self, shape: Shape) -> tuple[Launch, ...]:
        return self.transposition(shape), self.multiply(shape, "a", "b_t", "c")

    def transposition(self, shape: Shape, b: str = "b") -> Launch:
        """Return the launch that transposes B."""
        size, moved = (shape.k, shape.n), 2 * shape.k * shape.n
        launch = square_launch("transpose", self.transpose, size, size, (b, "b_t"), moved)
        return launch._replace(
            local_memory_bytes=FLOAT_BYTES * self.transpose * (self.transpose + 1)
        )

    def load_problems(self) -> Iterator[str]:
        if self.same_sides and self.tile_m != self.tile_n:
            yield f"tile_m={self.tile_m} differs from tile_n={self.tile_n}: one loop fetches both"
        items = self.items[0] * self.items[1]
        for side, tile in (("a", self.tile_m), ("b", self.tile_n)):
            if (loads := tile // self.load_width * self.tile_k) % items:
                yield (
                    f"a tile of {side} takes {loads} loads of {self.load_width} floats, not a "
                    f"multiple of the {items} work-items"
                )


@dataclass(frozen=True, kw_only=True)
class RegisterBlocks(Transposed):
    """The rung with a block of C for each work-item."""

    work_m: int

    number = 6
    title = "2D register blocks"
    file = "06_register_blocks.cl"
    kepler_gflops = 1371
    multiples: ClassVar[Pairs] = (*Transposed.multiples, ("tile_m", "work_m"))
    presets: ClassVar[Presets] = (
        {"tile_m": 128, "tile_n": 128, "tile_k": 16, "work_m": 8, "work_n": 8},
        {"tile_m": 64, "tile_n": 64, "tile_k": 16, "work_m": 8, "work_n": 8},
        {"tile_m": 32, "tile_n": 32, "tile_k": 8, "work_m": 4, "work_n": 4},
        {"tile_m": 16, "tile_n": 16, "tile_k": 8, "work_m": 4, "work_n": 4},
        {"tile_m": 8, "tile_n": 8, "tile_k": 8, "work_m": 2, "work_n": 4},
    )

    @property
    def items(self) -> tuple[int, int]:
        return self.tile_m // self.work_m, self.tile_n // self.work_n


@dataclass(frozen=True, kw_only=True)
class WiderLoads(RegisterBlocks):
    """The rung with register blocks and vector loads of the tiles."""

    width: int

    number = 7
    title = "wider loads, register blocks"
    file = "07_wider_loads.cl"
    kepler_gflops = 1361
    multiples: ClassVar[Pairs] = (
        *RegisterBlocks.multiples,
        ("tile_m", "width"),
        ("tile_n", "width"),
    )
    presets: ClassVar[Presets] = tuple(
        {**preset, "width": 4 if preset["tile_m"] >= 64 else 2} for preset in RegisterBlocks.presets
    )

    @property
    def load_width(self) -> int:
        return self.width


@dataclass(frozen=True, kw_only=True)
class ReadOnlyShuffle(WiderLoads):
    """The rung with read-only loads and shuffles, if the device has them."""

    read_only: int
    shuffle: int
    lanes: int = 32

    number = 8
    title = "read-only loads and shuffles"
    file = "08_read_only_shuffle.cl"
    kepler_gflops = 1563
    flags = frozenset({"read_only", "shuffle"})
    # Read-only loads first, then shuffles, then rung 7's loads; for each, the largest tile first.
    presets: ClassVar[Presets] = tuple(
        {**preset, **means}
        for means in (
            {"read_only": 1, "shuffle": 0},
            {"read_only": 0, "shuffle": 1, "lanes": 16},
            {"read_only": 0, "shuffle": 1, "lanes": 8},
            {"read_only": 0, "shuffle": 0},
        )
        for preset in WiderLoads.presets
    )

    def load_problems(self) -> Iterator[str]:
        yield from super().load_problems()
        if self.read_only and self.width not in READ_ONLY_WIDTHS:
            yield f"width={self.width} is not one of {READ_ONLY_WIDTHS} with read_only=1"
        if self.shuffle:
            if self.lanes % self.work_n:
                yield f"lanes={self.lanes} is not a multiple of work_n={self.work_n}"
            if self.items[0] % self.work_n:
                yield (
                    f"{self.items[0]} work-items along the rows are not a multiple of "
                    f"work_n={self.work_n}: work-items that share a row of B must be neighbours"
                )

    def problems_on(self, target: Target, shape: Shape) -> Iterator[str]:
        yield from super().problems_on(target, shape)
        if self.problems():
            return
        if self.read_only and not target.is_nvidia:
            yield "read_only=1, but the device's compiler has no read-only loads"
        if not self.shuffle:
            return
        if self.lanes not in target.lanes:
            yield f"lanes={self.lanes} is not a sub-group size with shuffles here: {target.lanes}"
        # Elsewhere than on NVIDIA's GPUs, a sub-group must lie in one row of work-items.
        items = self.items[0] * (self.items[1] if target.is_nvidia else 1)
        if items % self.lanes:
            yield f"{items} work-items are not a multiple of lanes={self.lanes}"

    @property
    def registers_read(self) -> tuple[int, int]:
        rows, columns = super().registers_read
        return rows, 1 if self.shuffle else columns

    def macros(self, target: Target) -> dict[str, int]:
        return {**super().macros(target), "PTX": int(target.is_nvidia and not target.is_cuda)}

    def note(self, target: Target) -> str:
        features = {
            "read-only loads": (self.read_only, target.is_nvidia),
            "shuffles": (self.shuffle, target.lanes),
        }
        used = [name for name, (on, _) in features.items() if on]
        missing = [name for name, (_, there) in features.items() if not there]
        text = "with " + " and ".join(used) if used else "with rung 7's loads"
        return text + (f"; the device has no {' and no '.join(missing)}" if missing else "")


@dataclass(frozen=True, kw_only=True)
class Prefetch(WiderLoads):
    """The rung that loads the next tiles while it multiplies the current ones."""

    number = 9
    title = "software pre-fetching"
    file = "09_prefetch.cl"
    follows = 7
    kepler_gflops = 1153
    local_tiles = 2


@dataclass(frozen=True, kw_only=True)
class AnySize(Prefetch):
    """The rung for any size: pad A, pad B, transpose B, multiply, unpad C."""

    pad: int = 16

    number = 10
    title = "incomplete tiles, any size"
    file = "10_any_size.cl"
    follows = 9
    kepler_gflops = 1251
    same_sides = False
    presets: ClassVar[Presets] = (
        {"tile_m": 160, "tile_n": 160, "tile_k": 16, "work_m": 10, "work_n": 10, "width": 2},
        {"tile_m": 80, "tile_n": 80, "tile_k": 16, "work_m": 10, "work_n": 10, "width": 2},
    )

    def padded(self, shape: Shape) -> Shape:
        return Shape(
            *(-(-size // tile) * tile for size, tile in zip(shape, self.extent, strict=True))
        )

    def buffers(self, shape: Shape) -> dict[str, int]:
        inner = super().buffers(self.padded(shape))
        return {
            **Rung.buffers(self, shape),
            **{f"{name}_padded": size for name, size in inner.items() if name != "b_t"},
            "b_t": inner["b_t"],
        }

    def launches(self, shape: Shape) -> tuple[Launch, ...]:
        (m, n, k), padded = shape, self.padded(shape)

        def pad(rows: int, columns: int, to: tuple[int, int], name: str) -> Launch:
            sizes, moved = (rows, columns, *to), rows * columns + to[0] * to[1]
            return square_launch("pad", self.pad, to, sizes, (name, f"{name}_padded"), moved)

        return (
            pad(m, k, (padded.m, padded.k), "a"),
            pad(k, n, (padded.k, padded.n), "b"),
            self.transposition(padded, "b_padded"),
            self.multiply(padded, "a_padded", "b_t", "c_padded"),
            square_launch(
                "unpad", self.pad, (m, n), (m, n, padded.m), ("c_padded", "c"), 2 * m * n
            ),
        )


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
    vectors = frozenset({"width", "work_m"})
    multiples: ClassVar[Pairs] = (("tile_m", "work_m"), ("tile_n", "work_n"))
    local_tiles = 0
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


@dataclass(frozen=True, kw_only=True)
class WideLocalReads(Prefetch):
    """The rung that reads vectors from local memory."""

    number = 12
    title = "wide reads of local memory"
    file = "12_wide_local_reads.cl"
    follows = 9
    kepler_gflops = 0
    multiples: ClassVar[Pairs] = (*Prefetch.multiples, ("work_m", "width"), ("work_n", "width"))


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

    def problems(self) -> list[str]:
        odd = f"tile_k={self.tile_k} is odd: two steps along k take turns"
        return super().problems() + [odd] * (self.tile_k % 2)


@dataclass(frozen=True, kw_only=True)
class AsynchronousCopies(RegisterPrefetch):
    """The rung that lets the device copy the tiles."""

    number = 16
    title = "asynchronous copies"
    file = "16_asynchronous_copies.cl"
    follows = 13
    same_sides = False
    presets: ClassVar[Presets] = WideLocalReads.presets

    def load_problems(self) -> Iterator[str]:
        yield from ()  # the device shares the loads

    @classmethod
    def missing(cls, target: Target) -> str:
        lacks = "the toolchain does not have OpenCL's async_work_group_copy"
        return lacks if target.is_cuda else ""


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
        moved = shape.m * shape.n * (self.split + 1)
        return (
            self.transposition(shape),
            multiply._replace(groups=(tiles_m, tiles_n * self.split)),
            square_launch("reduce", self.reduce, covered, sizes, ("partial", "c"), moved),
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


@dataclass(frozen=True, kw_only=True)
class ComplexNumbers(WideLocalReads):
    """The rung for complex64, which is a real product of 2m x 2k and 2k x n."""

    pack: int = 16

    number = 22
    title = "complex numbers"
    file = "22_complex_numbers.cl"
    dtype = np.dtype(np.complex64)
    follows = 12
    sizes = ("2m", "n", "2k")
    remark = "8 m n k operations"

    def error_bound(self, shape: Shape) -> float:
        """Return the bound on |C - C_exact| / (|A| |B|): gamma(2k) for each of the two parts."""
        return math.sqrt(2) * gamma(2 * shape.k)

    def padded(self, shape: Shape) -> Shape:
        return Shape(2 * shape.m, shape.n, 2 * shape.k)

    def buffers(self, shape: Shape) -> dict[str, int]:
        return {**super().buffers(shape), "a_real": 2 * shape.m * shape.k}

    def launches(self, shape: Shape) -> tuple[Launch, ...]:
        size, real = (shape.m, shape.k), self.padded(shape)
        moved = 2 * shape.m * shape.k + real.m * real.k  # floats
        return (
            square_launch("pack", self.pack, size, size, ("a", "a_real"), moved),
            self.transposition(real),
            self.multiply(real, "a_real", "b_t", "c"),
        )


RUNGS: tuple[type[Rung], ...] = (
    Naive,
    Tiled,
    MoreWork,
    WiderTypes,
    Transposed,
    RegisterBlocks,
    WiderLoads,
    ReadOnlyShuffle,
    Prefetch,
    AnySize,
    AfterClBlas,
    WideLocalReads,
    RegisterPrefetch,
    SwizzledOrder,
    SplitK,
    AsynchronousCopies,
    TensorCores,
    WarpGroups,
    SplitOperands,
    Guard,
    EightBitSlices,
    ComplexNumbers,
)

# The tutorial's names for the parameters.
TUTORIAL_NAMES = {
    "TS": "tile",
    "WPT": "work_n",
    "TSM": "tile_m",
    "TSN": "tile_n",
    "TSK": "tile_k",
    "WPTM": "work_m",
    "WPTN": "work_n",
    "TRANSPOSEX": "transpose",
    "TRANSPOSEY": "transpose",
    "PADDINGX": "pad",
    "PADDINGY": "pad",
    "USE_LDG": "read_only",
    "USE_SHUFFLE": "shuffle",
}


def configure(number: int, shape: Shape, target: Target, **parameters: int) -> Rung:
    """Return a rung with parameters that suit the device and the sizes.

    Parameters
    ----------
    number : int
        1 to 22.
    shape : Shape
        The product to compute.
    target : Target
        The device and its compiler.
    **parameters : int
        By clgemm's names or the tutorial's. The others come from the first of the rung's presets
        that fits.

    Raises
    ------
    ValueError
        If there is no such rung or parameter, or if the parameters break constraints of the rung
        or limits of the device; the message names all of them with their values.
    """
    if not 1 <= number <= len(RUNGS):
        raise ValueError(f"rung {number} is not one of 1 to {len(RUNGS)}")
    if min(shape) < 1:
        raise ValueError(f"the sizes (m, n, k) = {tuple(shape)} are not all 1 or more")
    kind = RUNGS[number - 1]
    names = kind.parameters()
    given = {TUTORIAL_NAMES.get(name, name): value for name, value in parameters.items()}
    for name in given:
        if name not in names:
            raise ValueError(f"rung {number} has no parameter {name}; it has {', '.join(names)}")
    given = {name: operator.index(value) for name, value in given.items()}
    candidates = [kind(**{**preset, **given}) for preset in kind.presets]
    for candidate in candidates:
        if not any(candidate.problems_on(target, shape)):
            return candidate
    closest = min(candidates, key=lambda rung: len(list(rung.problems_on(target, shape))))
    raise ValueError(f"{closest}: " + "; ".join(closest.problems_on(target, shape)))
