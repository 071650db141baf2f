"""The configs of tensor cores: operands split in parts, products of the parts.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from clgemm.core.config import FLOAT_BYTES, KernelConfig, positive
from clgemm.kernels.split_k.config import ReduceConfig
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

# kernels/tensor_core/tile.cl, which says what a tile holds.
TILE_ROWS = 128
TILE_DEPTH = 64  # of halves
TILE_BYTES = 2 * 16 * TILE_ROWS * 8 + 4 * TILE_ROWS + 2 * 64
LENGTH_BYTES = 4  # of a list, in the directory behind the tiles
OWN_BYTES = 128 + 8 * 16 * 33 * 4  # the product kernel: barriers, a corner of C for each warp
LOCAL_BYTES = 226 * 1024  # what a work-group can have on compute capability 9.0
NARROW_COLUMNS = 16, 32, 64  # kernels/tensor_core/narrow.cl: of C per tile


@dataclass(frozen=True)
class SplitConfig(KernelConfig):
    """Splits both operands into tiles of two parts."""

    tf32: bool  # parts in tf32, not in halves
    guard: bool  # keep aside the elements that two parts cannot hold
    int8: bool = False  # low parts, and high ones once more, in bytes

    family: ClassVar[str] = "tensor_pack"
    source: ClassVar[str] = "tensor_core/pack.cl"
    entry: ClassVar[str] = "tensor_pack"
    includes: ClassVar[tuple[str, ...]] = ("tensor_core/tile.cl", "tensor_core/split.cl")

    @property
    def items(self) -> int:
        return 256

    def problems(self) -> Iterator[str]:
        if self.int8 and (self.tf32 or self.guard):
            yield "bytes are beside halves, and without a guard"


@dataclass(frozen=True)
class TensorConfig(KernelConfig):
    """Multiplies split tiles on tensor cores: what both families have in common."""

    swizzle: int  # rows of tiles that work-groups visit together, for the second-level cache

    entry: ClassVar[str] = "tensor_product"
    includes: ClassVar[tuple[str, ...]] = (
        *("common/store.cl", "common/swizzle.cl"),
        "tensor_core/tile.cl",
        "tensor_core/outliers.cl",
        "tensor_core/store.cl",
    )
    # TiledConfig: of the fallback, for data that split operands cannot hold.
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
    """The same for one call: what both families have in common."""

    tf32: bool  # as in SplitConfig
    guard: bool  # as there
    int8: bool = field(default=False, kw_only=True)  # as there

    @property
    def tile_k(self) -> int:
        """Depth of a packed tile."""
        return TILE_DEPTH // 2 if self.tf32 else TILE_DEPTH

    @property
    def split(self) -> SplitConfig:
        """How operands are packed for it."""
        return SplitConfig(self.tf32, self.guard, self.int8)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from self.split.problems()


@dataclass(frozen=True)
class MmaConfig(TensorConfig):
    """With mma.sync: compute capability 8.0 and later."""

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
    """The same for one call."""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.int8:
            yield "it multiplies no bytes"


@dataclass(frozen=True)
class WgmmaConfig(TensorConfig):
    """With wgmma: compute capability 9.0."""

    tile_n: int  # columns of C per tile
    stages: int  # tiles of A and B in local memory

    family: ClassVar[str] = "tensor"
    source: ClassVar[str] = "tensor_core/wgmma.cl"
    includes: ClassVar[tuple[str, ...]] = (
        *TensorConfig.includes,
        *("tensor_core/barriers.cl", "tensor_core/warp_groups.cl"),
    )
    # 384 work-items start with 168 registers each and then share them out anew.
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
        needed = self.stages * (1 + self.tile_n // TILE_ROWS) * TILE_BYTES + OWN_BYTES
        if needed > LOCAL_BYTES:
            yield f"{needed} bytes of local memory exceed {LOCAL_BYTES}"


@dataclass(frozen=True)
class WgmmaVariant(WgmmaConfig, TensorVariant):
    """The same for one call."""


@dataclass(frozen=True)
class SingleLaunchConfig(WgmmaVariant):
    """Splits, multiplies, and with a guard makes plainly what must be made so, in one launch."""

    plain_m: ClassVar[int] = 128  # rows of C per tile of the plain product
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
        """Return the nearest to a config of separate launches."""
        return cls(
            swizzle=config.swizzle, tf32=False, guard=config.guard, tile_n=TILE_ROWS, stages=3
        )

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return also those of tensor_core/fallback.cl."""
        return (*super().macros(), ("PLAIN_M", self.plain_m), ("PLAIN_N", self.plain_n))

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.tf32 or self.int8 or self.tile_n != TILE_ROWS:
            yield "it is made for halves and narrow tiles"


@dataclass(frozen=True)
class NarrowConfig(KernelConfig):
    """For a B of few columns: A is split on its way from memory to registers."""

    columns: int  # of C per tile, one of NARROW_COLUMNS
    parts: int  # warp groups of a work-group, which share k
    ahead: int  # chunks from fetching A to the second-level cache to loading it

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
        """Of B, packed."""
        return 2 * FLOAT_BYTES * self.chunk * self.columns + 128

    def problems(self) -> Iterator[str]:
        bad = list(positive(self))
        yield from bad
        if self.parts == 1:
            yield "parts=1 has nobody to take turns with"
        if self.columns not in NARROW_COLUMNS:
            yield f"columns={self.columns} is not one of {NARROW_COLUMNS}"
        if bad:
            return
        tile = FLOAT_BYTES * self.columns * (self.tile_m + 4)
        # As for WgmmaConfig.
        if (needed := self.parts * max(3 * self.chunk_bytes, tile)) > LOCAL_BYTES:
            yield f"{needed} bytes of local memory exceed {LOCAL_BYTES}"


@dataclass(frozen=True)
class NarrowVariant(NarrowConfig):
    """The same for the operands at hand."""

    load_a: int  # floats per load of A
    along_k: bool  # rows of A lie along memory, not its columns
    fused_split_k: bool = False  # adds up slices of k itself

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.load_a not in ((1, 2, 4) if self.along_k else (1, 2)):
            yield f"load_a={self.load_a} is not 1, 2 or, with along_k, 4"
