"""The config of the kernel for few rows or columns on tensor cores. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import FLOAT_BYTES, KernelConfig, Launch, positive
from clgemm.core.costs import joined
from clgemm.core.steps import ceil_div, matrices_of
from clgemm.kernels.split_k.config import ReduceConfig
from clgemm.kernels.tensor_core.config import LOCAL_BYTES
from clgemm.kernels.tensor_core.estimate import STEP_COLUMNS, narrow_us

__all__ = ["NARROW_COLUMNS", "NarrowConfig", "NarrowVariant"]

OVERLAP = 2.0  # as in `joined`: steps and memory traffic
NARROW_COLUMNS = 16, 32, 64, 96, 128  # of C per tile, in kernels/tensor_core/narrow.cl


@dataclass(frozen=True)
class NarrowConfig(KernelConfig):
    """For a B of few columns. It splits A on the way from memory to registers."""

    columns: int  # of C per tile, one of NARROW_COLUMNS
    parts: int  # warp groups of a work-group
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
    def sharing_k(self) -> int:
        """Warp groups that share k. Where columns are many, they share the rows."""
        return 1 if self.columns > STEP_COLUMNS else self.parts

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
        if self.sharing_k == 1 and self.parts != 2:
            yield f"parts={self.parts} is not 2, as columns={self.columns} needs"
        stages = 4 if self.sharing_k == 1 else 3
        # As in WgmmaConfig.
        if (needed := self.sharing_k * max(stages * self.chunk_bytes, tile)) > LOCAL_BYTES:
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
