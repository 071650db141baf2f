"""The configs of kernels for tensor cores: split the operands, multiply the parts. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from clgemm.core.config import FLOAT_BYTES, KernelConfig, Launch, positive
from clgemm.core.costs import joined
from clgemm.core.steps import ceil_div, matrices_of
from clgemm.kernels.split_k.config import ReduceConfig
from clgemm.kernels.tensor_core.estimate import narrow_us, split_us, tiles_us
from clgemm.kernels.tiled.config import TiledConfig

__all__ = [
    "LENGTH_BYTES",
    "NARROW_COLUMNS",
    "TILE_BYTES",
    "TILE_DEPTH",
    "TILE_ROWS",
    "MmaConfig",
    "MmaVariant",
    "NarrowConfig",
    "NarrowVariant",
    "SingleLaunchConfig",
    "SplitConfig",
    "TensorConfig",
    "TensorVariant",
    "WgmmaConfig",
    "WgmmaVariant",
]

# The same as in kernels/tensor_core/tile.cl, which describes a tile.
TILE_ROWS = 128
TILE_DEPTH = 64  # along k, in half precision
TILE_BYTES = 2 * 16 * TILE_ROWS * 8 + 4 * TILE_ROWS + 2 * 64
LENGTH_BYTES = 4  # of the length of a list, in the directory behind the tiles
OTHER_BYTES = 128 + 8 * 16 * 33 * 4  # of the wgmma kernel: barriers, a part of C for each warp
LOCAL_BYTES = 226 * 1024  # local memory of a work-group on compute capability 9.0
OVERLAP = 2.0  # as in `joined`: steps and memory traffic
NARROW_COLUMNS = 16, 32, 64  # of C per tile, in kernels/tensor_core/narrow.cl


def _is_strided(launch: Launch) -> bool:
    """Tell whether A or B has no unit stride."""
    places = ((launch.arguments[f"{x}_row"], launch.arguments[f"{x}_column"]) for x in "ab")
    return any(1 not in map(abs, place) for place in places)


@dataclass(frozen=True)
class SplitConfig(KernelConfig):
    """Splits both operands into tiles of two parts."""

    tf32: bool  # parts in tf32, not in half precision
    guard: bool  # list the elements that two parts cannot represent
    int8: bool = False  # low parts in int8, and the high ones in int8 too

    family: ClassVar[str] = "tensor_pack"
    source: ClassVar[str] = "tensor_core/pack.cl"
    entry: ClassVar[str] = "tensor_pack"
    includes: ClassVar[tuple[str, ...]] = ("tensor_core/tile.cl", "tensor_core/split.cl")

    @property
    def items(self) -> int:
        return 256

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch that most products need."""
        if self.tf32:
            return 0.0
        _, sizes, limits = launch
        elements: int = sizes["matrices"] * (sizes["m"] + sizes["n"]) * sizes["k"]
        splitting = split_us(elements, _is_strided(launch), limits)
        return limits.costs.tensor_more_us + splitting

    def problems(self) -> Iterator[str]:
        if self.int8 and (self.tf32 or self.guard):
            yield "int8=True needs tf32=False and guard=False"


@dataclass(frozen=True)
class TensorConfig(KernelConfig):
    """Multiplies split tiles on tensor cores: what the wgmma and mma families share."""

    swizzle: int  # rows of tiles that work-groups visit together, for the second-level cache

    entry: ClassVar[str] = "tensor_product"
    includes: ClassVar[tuple[str, ...]] = (
        *("common/store.cl", "common/swizzle.cl"),
        "tensor_core/tile.cl",
        "tensor_core/outliers.cl",
        "tensor_core/store.cl",
    )
    # TiledConfig is the fallback, for data that two parts cannot represent.
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (SplitConfig, TiledConfig)

    @property
    def tile_m(self) -> int:
        """Rows of C per tile."""
        return TILE_ROWS

    @property
    def tile_columns(self) -> int:
        """Columns of C per tile."""
        return TILE_ROWS

    def problems(self) -> Iterator[str]:
        if self.swizzle < 1:
            yield f"swizzle={self.swizzle} is less than 1"


@dataclass(frozen=True)
class TensorVariant(TensorConfig):
    """The config of one call: what the wgmma and mma families share."""

    tf32: bool  # as in SplitConfig
    guard: bool  # as there
    int8: bool = field(default=False, kw_only=True)  # as there

    @property
    def tile_k(self) -> int:
        """Depth of a packed tile."""
        return TILE_DEPTH // 2 if self.tf32 else TILE_DEPTH

    @property
    def split(self) -> SplitConfig:
        """The config that splits the operands for it."""
        return SplitConfig(self.tf32, self.guard, self.int8)

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch that most products need."""
        if self.tf32:
            return 0.0
        _, sizes, limits = launch
        m, n = ceil_div(sizes["m"], self.tile_m), ceil_div(sizes["n"], self.tile_columns)
        is_wide = self.tile_columns > self.tile_m
        tiles = sizes.get("matrices", 1) * m * n
        slower = limits.costs.mma if self.family == MmaConfig.family else 1.0
        stored: int = 2 * FLOAT_BYTES * sizes.get("matrices", 1) * sizes["m"] * sizes["n"]
        costs = limits.costs
        computing = slower * tiles_us(tiles, sizes["k"], is_wide, limits)
        return costs.tensor_us - costs.start_us + computing + stored / costs.memory_bytes

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from self.split.problems()


@dataclass(frozen=True)
class MmaConfig(TensorConfig):
    """Uses mma.sync: compute capability 8.0 and later."""

    family: ClassVar[str] = "tensor_mma"
    source: ClassVar[str] = "tensor_core/mma.cl"

    @property
    def items(self) -> int:
        return 256

    @property
    def local_memory_bytes(self) -> int:
        return 2 * (16 * TILE_ROWS * 8 + 8 * TILE_ROWS)


@dataclass(frozen=True)
class MmaVariant(MmaConfig, TensorVariant):
    """The config of one call."""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.int8:
            yield "int8=True needs wgmma"


@dataclass(frozen=True)
class WgmmaConfig(TensorConfig):
    """Uses wgmma: compute capability 9.0."""

    tile_n: int  # columns of C per tile
    stages: int  # tiles of A and B in local memory

    family: ClassVar[str] = "tensor"
    source: ClassVar[str] = "tensor_core/wgmma.cl"
    includes: ClassVar[tuple[str, ...]] = (
        *TensorConfig.includes,
        *("tensor_core/barriers.cl", "tensor_core/warp_groups.cl"),
    )
    # 384 work-items start with 168 registers each; the kernel then divides the registers anew.
    options: ClassVar[tuple[str, ...]] = ("-cl-nv-maxrregcount=168",)

    @property
    def tile_columns(self) -> int:
        return self.tile_n

    @property
    def items(self) -> int:
        return 384

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.stages < 1:
            yield f"stages={self.stages} is less than 1"
        if self.tile_n not in (TILE_ROWS, 2 * TILE_ROWS):
            yield f"tile_n={self.tile_n} is neither {TILE_ROWS} nor {2 * TILE_ROWS}"
        # Static local memory may exceed what the device reports.
        needed = self.stages * (1 + self.tile_n // TILE_ROWS) * TILE_BYTES + OTHER_BYTES
        if needed > LOCAL_BYTES:
            yield f"{needed} bytes of local memory exceed {LOCAL_BYTES}"


@dataclass(frozen=True)
class WgmmaVariant(WgmmaConfig, TensorVariant):
    """The config of one call."""


@dataclass(frozen=True)
class SingleLaunchConfig(WgmmaVariant):
    """Splits and multiplies in one launch; with a guard it holds the fallback too."""

    plain_m: ClassVar[int] = 128  # rows of C per tile of the fallback
    plain_n: ClassVar[int] = 64  # and its columns

    family: ClassVar[str] = "tensor_single_launch"
    source: ClassVar[str] = "tensor_core/single_launch.cl"
    entry: ClassVar[str] = "tensor_single_launch"
    includes: ClassVar[tuple[str, ...]] = (
        *WgmmaConfig.includes,
        *("tensor_core/split.cl", "tensor_core/fallback.cl"),
    )
    companions: ClassVar[tuple[type[KernelConfig], ...]] = ()

    @classmethod
    def of(cls, config: WgmmaVariant) -> SingleLaunchConfig:
        """Return the config that is nearest to one of separate launches."""
        return cls(
            swizzle=config.swizzle, tf32=False, guard=config.guard, tile_n=TILE_ROWS, stages=3
        )

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of the launch, which splits too."""
        _, sizes, limits = launch
        elements = (sizes["m"] + sizes["n"]) * sizes["k"]
        splitting = split_us(elements, _is_strided(launch), limits)
        return super().microseconds(launch) + splitting

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return also the macros of tensor_core/fallback.cl."""
        return (*super().macros(), ("PLAIN_M", self.plain_m), ("PLAIN_N", self.plain_n))

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.tf32 or self.int8 or self.tile_n != TILE_ROWS:
            yield f"a single launch needs tf32=False, int8=False and tile_n={TILE_ROWS}"


@dataclass(frozen=True)
class NarrowConfig(KernelConfig):
    """For a B of few columns. It splits A on the way from memory to registers."""

    columns: int  # of C per tile, one of NARROW_COLUMNS
    parts: int  # warp groups of a work-group, which share k
    ahead: int  # chunks by which A is prefetched to the second-level cache

    tile_m: ClassVar[int] = 128  # rows of C per tile
    chunk: ClassVar[int] = 32  # of k

    family: ClassVar[str] = "tensor_narrow"
    source: ClassVar[str] = "tensor_core/narrow.cl"
    entry: ClassVar[str] = "tensor_narrow"
    includes: ClassVar[tuple[str, ...]] = (
        *("common/store.cl", "split_k/fused.cl"),
        "tensor_core/barriers.cl",
        "tensor_core/chunk.cl",
    )
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (ReduceConfig,)

    @property
    def items(self) -> int:
        return 128 * self.parts

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a packed chunk of B."""
        return 2 * FLOAT_BYTES * self.chunk * self.columns + 128

    def problems(self) -> Iterator[str]:
        bad = list(positive(self))
        yield from bad
        if self.parts == 1:
            yield "parts=1 is less than 2: warp groups alternate"
        if self.columns not in NARROW_COLUMNS:
            yield f"columns={self.columns} is not one of {NARROW_COLUMNS}"
        if bad:
            return
        tile = FLOAT_BYTES * self.columns * (self.tile_m + 4)
        # As in WgmmaConfig.
        if (needed := self.parts * max(3 * self.chunk_bytes, tile)) > LOCAL_BYTES:
            yield f"{needed} bytes of local memory exceed {LOCAL_BYTES}"


@dataclass(frozen=True)
class NarrowVariant(NarrowConfig):
    """The config of one launch."""

    load_a: int  # floats per load of A
    along_k: bool  # A's rows are contiguous, not its columns
    fused_split_k: bool = False  # the kernel itself adds up slices of k

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch."""
        groups, sizes, limits = launch
        m, n, k, depth = (sizes[name] for name in ("m", "n", "k", "slice_k"))
        matrices = matrices_of(sizes["counts"])
        slices = ceil_div(k, depth)
        steps = narrow_us(groups, self.columns, self.parts, min(k, depth), slices, limits)
        read = FLOAT_BYTES * matrices * (m * k * ceil_div(n, self.columns) + m * n)
        packed: float = FLOAT_BYTES * matrices * n * k / limits.costs.narrow_pack_bytes
        rest = limits.costs.narrow_us - limits.costs.start_us + packed
        return joined(OVERLAP, steps, read / limits.costs.narrow_bytes) + rest

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.load_a not in ((1, 2, 4) if self.along_k else (1, 2)):
            yield f"load_a={self.load_a} is not 1, 2 or, with along_k, 4"
