"""Rungs 17 to 21: tensor cores, in half precision, with split operands, and of bytes. Pure."""

from __future__ import annotations

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

HALF_BYTES = 2
SIDE = 128  # rows of A, or columns of B, of a packed tile
PACKERS = 256  # work-items that pack a tile
WARP_GROUP_COLUMNS = 64  # of C, for each of two warp groups
MULTIPLIERS, FEEDERS = 256, 32  # work-items of a work-group
TILE_DEPTH = 64  # along k, from rung 18 on
SCALE_BYTES = 128  # the scale of a split tile, and what aligns the next tile
BARRIER_BYTES = 16  # of each stage
LANES = 32  # work-items of a sub-group
WORD_BYTES, VECTOR_BYTES = 4, 16  # digits in a word, and in a load from global memory
SPARE_WORDS = 8  # of each row of words in local memory: PITCH in rung 21's kernel
# Local memory of a work-group on compute capability 9.0. OpenCL reports less, but static arrays may
# have it all.
HOPPER_LOCAL_BYTES = 226 * 1024


@dataclass(frozen=True, kw_only=True)
class PackedHalves(Rung):
    """What rungs 17 to 20 share: operands that are packed in half precision.

    The error is at most (2**-10 + 2**-22 + k 2**-23) |A| |B|, for elements that are zero, or at
    least 2**-14 and less than 65520.
    """

    swizzle: int = 8

    pictured = False  # sub-groups read tiles together
    # The compute capabilities that have the instructions: the first and the last one, in words too.
    first: ClassVar[tuple[int, int]]
    last: ClassVar[tuple[int, int]]
    needs: ClassVar[str]

    @classmethod
    def missing(cls, target: Target) -> str:
        if cls.first <= target.capability <= cls.last:
            return ""
        text = f"it needs {cls.needs}, through NVIDIA's OpenCL"
        if any(target.capability):
            text += f"; this one has {target.capability[0]}.{target.capability[1]}"
        return text

    def error_bound(self, shape: Shape) -> float:
        """Return the bound on |C - C_exact| / (|A| |B|) of operands in half precision."""
        return 2.0**-10 + 2.0**-22 + shape.k * 2.0**-23

    @property
    def packed_tile_bytes(self) -> int:
        """Bytes of a packed tile of 128 rows of A, or of 128 columns of B."""
        return HALF_BYTES * SIDE * self.extent.k

    @property
    def tile_bytes(self) -> int:
        return (self.extent.m + self.extent.n) // SIDE * self.packed_tile_bytes

    def packed_bytes(self, side: int, k: int) -> int:
        """Return the bytes of a packed operand with so many rows of A, or columns of B."""
        return side // SIDE * (k // self.extent.k) * self.packed_tile_bytes

    def buffers(self, shape: Shape) -> dict[str, int]:
        packed = {"packed_a": shape.m, "packed_b": shape.n}
        return {
            **super().buffers(shape),
            **{name: self.packed_bytes(n, shape.k) // FLOAT_BYTES for name, n in packed.items()},
        }

    def tiles(self, shape: Shape) -> int:
        return shape.m // self.extent.m * (shape.n // self.extent.n)

    def work_groups_of(self, shape: Shape) -> int:
        """Return how many work-groups multiply."""
        return self.tiles(shape)

    def launches(self, shape: Shape) -> tuple[Launch, ...]:
        groups, buffers = (self.work_groups_of(shape), 1), ("packed_a", "packed_b", "c")
        multiply = Launch("multiply", shape, buffers, groups, self.items, self.local_memory_bytes)
        return (
            self.pack("a", shape.m, shape.k, (1, shape.m)),
            self.pack("b", shape.n, shape.k, (shape.k, 1)),
            multiply,
        )

    def pack(self, name: str, side: int, k: int, steps: tuple[int, int]) -> Launch:
        """Return the launch that packs an operand.

        Parameters
        ----------
        side : int
            Rows of A, or columns of B.
        steps : tuple of int
            How far two neighbours along the side are apart, and two along k.
        """
        groups = side // SIDE, k // self.extent.k
        moved = FLOAT_BYTES * side * k + self.packed_bytes(side, k)
        buffers = name, f"packed_{name}"
        return Launch("pack", (k, *steps), buffers, groups, (PACKERS, 1), 0, moved)


@dataclass(frozen=True, kw_only=True)
class TensorCores(PackedHalves):
    """The rung in half precision, with mma.sync."""

    tile_k: int

    number = 17
    title = "tensor cores, half precision"
    file = "17_tensor_cores.cl"
    follows = 14
    presets: ClassVar[Presets] = ({"tile_k": 32},)
    remark = "in half precision"
    local_tiles = 2
    first, last = (8, 0), (99, 9)
    needs = "an NVIDIA GPU of compute capability 8.0 or later"

    @property
    def extent(self) -> Shape:
        return Shape(SIDE, SIDE, self.tile_k)

    @property
    def items(self) -> tuple[int, int]:
        return MULTIPLIERS, 1

    @property
    def tile_read_bytes(self) -> int:
        # Each of eight sub-groups reads 32 rows of A and 64 columns of B.
        return HALF_BYTES * self.tile_k * 8 * (32 + 64)

    def load_problems(self) -> Iterator[str]:
        if self.tile_k not in (16, 32, 48):
            yield f"tile_k={self.tile_k} is not 16, 32 or 48"


@dataclass(frozen=True, kw_only=True)
class WarpGroups(PackedHalves):
    """The rung in half precision, with wgmma and the copy engine. Its error is rung 17's."""

    stages: int
    work_groups: int = 132  # as many as an H200 has compute units; any number is right

    number = 18
    title = "warp groups and the copy engine"
    file = "18_warp_groups.cl"
    follows = 17
    # 288 work-items can have 224 registers each.
    options = ("-cl-nv-maxrregcount=224",)
    presets: ClassVar[Presets] = ({"stages": 4},)
    remark = "in half precision"
    first = last = (9, 0)  # wgmma was there for one generation only
    needs = "an NVIDIA GPU of compute capability 9.0"
    most_stages: ClassVar[int] = 4

    @property
    def extent(self) -> Shape:
        return Shape(2 * SIDE, SIDE, TILE_DEPTH)

    @property
    def items(self) -> tuple[int, int]:
        return MULTIPLIERS + FEEDERS, 1

    @property
    def tile_read_bytes(self) -> int:
        # For each product, each warp group's instructions read its columns twice: once for each
        # tile of A, which is read as a whole.
        columns = 2 * WARP_GROUP_COLUMNS
        return self.products * HALF_BYTES * TILE_DEPTH * 2 * (columns + self.extent.m)

    @property
    def local_memory_bytes(self) -> int:
        return self.stages * (self.tile_bytes + BARRIER_BYTES)

    def local_memory_limit(self, target: Target) -> int:
        return max(HOPPER_LOCAL_BYTES, target.local_memory_bytes)

    def work_groups_of(self, shape: Shape) -> int:
        return min(self.work_groups, self.tiles(shape))

    def macros(self, target: Target) -> dict[str, int]:
        macros = super().macros(target)
        del macros["WORK_GROUPS"]  # the kernel takes any number
        return macros

    def load_problems(self) -> Iterator[str]:
        if self.stages > self.most_stages:
            yield f"stages={self.stages} is more than {self.most_stages}: local memory is full"


@dataclass(frozen=True, kw_only=True)
class SplitOperands(WarpGroups):
    """The rung with three products of half parts, and the error bound of float32.

    The bound holds for k of 512 or more, where each element of a tile of 128 x 64 is zero or at
    least 2**-13/k of the tile's largest, which is between 2**-49 and 2**78.
    """

    number = 19
    title = "split operands, single precision"
    file = "19_split_operands.cl"
    follows = 18
    presets: ClassVar[Presets] = ({"stages": 2},)
    remark = "two half parts, three products; not safe for all inputs"
    products: ClassVar[int] = 3
    most_stages: ClassVar[int] = 2
    least_k: ClassVar[int] = 512

    def error_bound(self, shape: Shape) -> float:
        return Rung.error_bound(self, shape)

    @property
    def packed_tile_bytes(self) -> int:
        return 2 * HALF_BYTES * SIDE * TILE_DEPTH + SCALE_BYTES

    def problems_on(self, target: Target, shape: Shape) -> Iterator[str]:
        yield from super().problems_on(target, shape)
        if shape.k < self.least_k:
            yield f"k={shape.k} is less than {self.least_k}: the error bound is not proven for it"


@dataclass(frozen=True, kw_only=True)
class Guard(SplitOperands):
    """The rung that multiplies without tensor cores where split operands would be inaccurate.

    Its error bound is that of float32, for all inputs.
    """

    number = 20
    title = "the guard: safe for all inputs"
    remark = "two half parts, three products; on tensor cores if all elements can be split"
    file = "20_guard.cl"
    follows = 19

    def buffers(self, shape: Shape) -> dict[str, int]:
        return {**super().buffers(shape), "unsafe": 1}

    def launches(self, shape: Shape) -> tuple[Launch, ...]:
        *packing, multiply = super().launches(shape)
        start = Launch("start", (), ("unsafe",), (1, 1), (1, 1), 0, FLOAT_BYTES)
        groups = shape.m // SIDE, shape.n // SIDE
        local_bytes, moved = 2 * FLOAT_BYTES * 8 * SIDE, FLOAT_BYTES * groups[0] * groups[1]
        buffers = "a", "b", "c", "unsafe"
        fallback = Launch("fallback", shape, buffers, groups, (PACKERS, 1), local_bytes, moved)
        return (
            start,
            *(launch._replace(buffers=(*launch.buffers, "unsafe")) for launch in packing),
            multiply._replace(buffers=(*multiply.buffers, "unsafe")),
            fallback,
        )


def _blocks(side: int, tile_k: int, work_m: int, work_n: int, tensor: int = 0) -> dict[str, int]:
    """Return rung 21's parameters for square tiles of C."""
    blocks = {"tile_m": side, "tile_n": side, "tile_k": tile_k, "work_m": work_m, "work_n": work_n}
    return {**blocks, "tensor": tensor}


@dataclass(frozen=True, kw_only=True)
class EightBitSlices(Rung):
    """The rung for int32, which multiplies digits of a byte each, on tensor cores or without."""

    tile_m: int
    tile_n: int
    tile_k: int
    work_m: int
    work_n: int
    tensor: int
    pack: int = 16

    number = 21
    title = "eight-bit slices"
    file = "21_eight_bit_slices.cl"
    dtype = np.dtype(np.int32)
    follows = 17
    flags = frozenset({"tensor"})
    multiples: ClassVar[Pairs] = (("tile_m", "work_m"), ("tile_n", "work_n"))
    products: ClassVar[int] = 10  # pairs of four digits whose weights are below 2**32
    pictured = False
    presets: ClassVar[Presets] = (
        _blocks(128, 64, 32, 64, tensor=1),
        _blocks(128, 32, 8, 8),
        _blocks(64, 32, 8, 8),
        _blocks(32, 32, 4, 4),
        _blocks(16, 16, 4, 4),
    )

    @classmethod
    def missing(cls, target: Target) -> str:
        return "the toolchain does not have OpenCL's as_char4" if target.is_cuda else ""

    def error_bound(self, shape: Shape) -> float:  # noqa: ARG002 - the base class needs it
        return 0.0

    @property
    def extent(self) -> Shape:
        return Shape(self.tile_m, self.tile_n, self.tile_k)

    @property
    def teams(self) -> int:
        """Work-items, or sub-groups with tensor cores, that share a tile of C."""
        return self.tile_m // self.work_m * (self.tile_n // self.work_n)

    @property
    def items(self) -> tuple[int, int]:
        return self.teams * (LANES if self.tensor else 1), 1

    @property
    def tile_bytes(self) -> int:
        return self.tile_k * (self.tile_m + self.tile_n)

    @property
    def tile_read_bytes(self) -> int:
        return self.teams * self.tile_k * (self.work_m + self.work_n)

    @property
    def local_memory_bytes(self) -> int:
        return 2 * self.tile_k * (self.tile_m + self.tile_n + 2 * SPARE_WORDS)

    def steps(self, shape: Shape) -> int:
        return self.products * shape.k

    def buffers(self, shape: Shape) -> dict[str, int]:
        return {**super().buffers(shape), "a_d": shape.m * shape.k, "b_d": shape.k * shape.n}

    def launches(self, shape: Shape) -> tuple[Launch, ...]:
        m, n, k = shape
        return (
            self.packing("a", m, k, (1, m, 0)),
            self.packing("b", n, k, (k, 1, 1)),
            self.multiply(shape, "a_d", "b_d", "c"),
        )

    def packing(self, name: str, side: int, k: int, order: tuple[int, int, int]) -> Launch:
        """Return the launch that packs an operand.

        Parameters
        ----------
        side : int
            Rows of A, or columns of B.
        order : tuple of int
            How far two neighbours along the side are apart, and two along k; and whether the
            highest digit comes first.
        """
        buffers, covered = (name, f"{name}_d"), (side, k // WORD_BYTES)
        return square_launch("pack", self.pack, covered, (side, k, *order), buffers, 2 * side * k)

    def load_problems(self) -> Iterator[str]:
        units = {"tile_k": 32, "work_m": 8, "work_n": 16} if self.tensor else {"tile_k": 4}
        for name, unit in {"tile_m": 4, "tile_n": 4, **units}.items():
            if (value := getattr(self, name)) % unit:
                yield f"{name}={value} is not a multiple of {unit}"
        items = self.items[0]
        for side, tile in (("a", self.tile_m), ("b", self.tile_n)):
            if (loads := tile * self.tile_k // VECTOR_BYTES) % items:
                yield (
                    f"a tile of {side} takes {loads} loads of {VECTOR_BYTES} digits, not a "
                    f"multiple of the {items} work-items"
                )

    def problems_on(self, target: Target, shape: Shape) -> Iterator[str]:
        yield from super().problems_on(target, shape)
        if self.tensor and not _has_tensor_cores(target):
            yield "tensor=1, but the device has no tensor cores that mma.sync reaches"

    def note(self, target: Target) -> str:
        if self.tensor:
            return "exact, on tensor cores"
        lacks = "" if _has_tensor_cores(target) else "; the device has no tensor cores for them"
        return f"exact, products of bytes in plain C{lacks}"


def _has_tensor_cores(target: Target) -> bool:
    return target.capability >= TensorCores.first
