"""Rungs 5 to 10: a transposed B, rectangular tiles, blocks of C in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.ladder.rung import FLOAT_BYTES, WIDTHS, Launch, Presets, Rung, Shape, Target, multiples

__all__ = [
    "AnySize",
    "Prefetch",
    "ReadOnlyShuffle",
    "RegisterBlocks",
    "Transposed",
    "WiderLoads",
    "square_launch",
]

READ_ONLY_WIDTHS = (1, 2, 4)  # floats that one load instruction of NVIDIA's GPUs reads


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
        return (
            self.transposition(shape, "b", "b_t"),
            self.multiply(shape, "a", "b_t", "c"),
        )

    def transposition(self, shape: Shape, b: str, b_t: str) -> Launch:
        """Return the launch that transposes B."""
        local_memory_bytes = FLOAT_BYTES * self.transpose * (self.transpose + 1)
        size = (shape.k, shape.n)
        return square_launch("transpose", self.transpose, size, size, (b, b_t), local_memory_bytes)

    def problems(self) -> Iterator[str]:
        yield from (bad := list(super().problems()))
        if not bad:
            yield from (bad := list(multiples(self, tile_n="work_n")))
        if not bad:
            yield from self.fetch_problems()

    def fetch_problems(self) -> Iterator[str]:
        """Yield each reason why the work-items cannot share the loads of the tiles evenly."""
        if self.tile_m != self.tile_n:
            yield f"tile_m={self.tile_m} differs from tile_n={self.tile_n}: one loop fetches both"
        yield from self.share_problems("a", self.tile_m)

    def share_problems(self, side: str, tile: int) -> Iterator[str]:
        """Yield a problem unless all work-items load the same number of a tile's vectors."""
        items = self.items[0] * self.items[1]
        if (loads := tile // self.load_width * self.tile_k) % items:
            yield (
                f"a tile of {side} takes {loads} loads of {self.load_width} floats, not a multiple "
                f"of the {items} work-items"
            )


@dataclass(frozen=True, kw_only=True)
class RegisterBlocks(Transposed):
    """The rung with a block of C for each work-item."""

    work_m: int

    number = 6
    title = "2D register blocks"
    file = "06_register_blocks.cl"
    kepler_gflops = 1371
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

    def fetch_problems(self) -> Iterator[str]:
        yield from (bad := list(multiples(self, tile_m="work_m")))
        if not bad:
            yield from super().fetch_problems()


@dataclass(frozen=True, kw_only=True)
class WiderLoads(RegisterBlocks):
    """The rung with register blocks and vector loads of the tiles."""

    width: int

    number = 7
    title = "wider loads, register blocks"
    file = "07_wider_loads.cl"
    kepler_gflops = 1361
    presets: ClassVar[Presets] = (
        {"tile_m": 128, "tile_n": 128, "tile_k": 16, "work_m": 8, "work_n": 8, "width": 4},
        {"tile_m": 64, "tile_n": 64, "tile_k": 16, "work_m": 8, "work_n": 8, "width": 4},
        {"tile_m": 32, "tile_n": 32, "tile_k": 8, "work_m": 4, "work_n": 4, "width": 2},
        {"tile_m": 16, "tile_n": 16, "tile_k": 8, "work_m": 4, "work_n": 4, "width": 2},
        {"tile_m": 8, "tile_n": 8, "tile_k": 8, "work_m": 2, "work_n": 4, "width": 2},
    )

    @property
    def load_width(self) -> int:
        return self.width

    def fetch_problems(self) -> Iterator[str]:
        yield from (bad := list(self.width_problems("tile_m")))
        if not bad:
            yield from super().fetch_problems()

    def width_problems(self, *tiles: str) -> Iterator[str]:
        """Yield a problem unless the sides of the tiles are multiples of the vector width."""
        if self.width not in WIDTHS:
            yield f"width={self.width} is not one of {WIDTHS}"
        else:
            yield from multiples(self, **dict.fromkeys(tiles, "width"))


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

    def problems(self) -> Iterator[str]:
        yield from (bad := list(super().problems()))
        if bad:
            return
        if self.read_only and self.width not in READ_ONLY_WIDTHS:
            yield f"width={self.width} is not one of {READ_ONLY_WIDTHS} with read_only=1"
        if self.shuffle:
            yield from multiples(self, lanes="work_n")
            if self.items[0] % self.work_n:
                yield (
                    f"{self.items[0]} work-items along the rows are not a multiple of "
                    f"work_n={self.work_n}: work-items that share a row of B must be neighbours"
                )

    def problems_on(self, target: Target, shape: Shape) -> Iterator[str]:
        yield from super().problems_on(target, shape)
        if any(self.problems()):
            return
        if self.read_only and not target.read_only:
            yield "read_only=1, but the device's compiler has no read-only loads"
        if not self.shuffle:
            return
        if self.lanes not in target.lanes:
            yield f"lanes={self.lanes} is not a sub-group size with shuffles here: {target.lanes}"
        items = self.items[0] * (1 if target.row_sub_groups else self.items[1])
        if items % self.lanes:
            yield f"{items} work-items are not a multiple of lanes={self.lanes}"

    @property
    def registers_read(self) -> tuple[int, int]:
        rows, columns = super().registers_read
        return rows, 1 if self.shuffle else columns

    def macros(self, target: Target) -> dict[str, int]:
        return {**super().macros(target), "PTX": int(target.ptx)}

    def note(self, target: Target) -> str:
        used = [
            name
            for name, on in (("read-only loads", self.read_only), ("shuffles", self.shuffle))
            if on
        ]
        missing = [
            name
            for name, there in (("read-only loads", target.read_only), ("shuffles", target.lanes))
            if not there
        ]
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

    @property
    def local_memory_bytes(self) -> int:
        return 2 * super().local_memory_bytes


@dataclass(frozen=True, kw_only=True)
class AnySize(Prefetch):
    """The rung for any size: pad A, pad B, transpose B, multiply, unpad C."""

    pad: int = 16

    number = 10
    title = "incomplete tiles, any size"
    file = "10_any_size.cl"
    follows = 9
    kepler_gflops = 1251
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
            sizes = (rows, columns, *to)
            return square_launch("pad", self.pad, to, sizes, (name, f"{name}_padded"))

        return (
            pad(m, k, (padded.m, padded.k), "a"),
            pad(k, n, (padded.k, padded.n), "b"),
            self.transposition(padded, "b_padded", "b_t"),
            self.multiply(padded, "a_padded", "b_t", "c_padded"),
            square_launch("unpad", self.pad, (m, n), (m, n, padded.m), ("c_padded", "c")),
        )

    def fetch_problems(self) -> Iterator[str]:
        bad = [*self.width_problems("tile_m", "tile_n"), *multiples(self, tile_m="work_m")]
        yield from bad
        if not bad:
            yield from self.share_problems("a", self.tile_m)
            yield from self.share_problems("b", self.tile_n)


def square_launch(
    kernel: str,
    side: int,
    covered: tuple[int, int],
    sizes: tuple[int, ...],
    buffers: tuple[str, ...],
    local_memory_bytes: int = 0,
) -> Launch:
    """Return the launch of a supporting kernel, whose work-groups are squares of the matrix."""
    groups = (-(-covered[0] // side), -(-covered[1] // side))
    return Launch(kernel, sizes, buffers, groups, (side, side), local_memory_bytes)
