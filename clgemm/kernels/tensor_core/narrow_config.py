"""The config of the kernel for few rows or columns on tensor cores. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import FLOAT_BYTES, KernelConfig, Launch, Limits, positive
from clgemm.core.costs import joined
from clgemm.core.steps import ceil_div, matrices_of
from clgemm.kernels.split_k.plan import ReduceConfig
from clgemm.kernels.tensor_core.estimate import narrow_us

__all__ = ["NARROW_COLUMNS", "NarrowConfig", "NarrowVariant"]

OVERLAP = 2.0  # as in `joined`: steps and memory traffic
# How much longer launches take that go on in tf32, on an H100: microseconds, and a share.
TF32_US, TF32_MORE = 9.0, 0.3
NARROW_COLUMNS = 16, 32, 64, 96, 128  # of C per tile, in kernels/tensor_core/narrow.cl


@dataclass(frozen=True)
class NarrowConfig(KernelConfig):
    """For a B of few columns. It splits A on the way from memory to registers."""

    columns: int  # of C per tile, one of NARROW_COLUMNS
    ahead: int  # chunks by which A is prefetched to the second-level cache

    tile_m: ClassVar[int] = 128  # rows of C per tile
    chunk: ClassVar[int] = 64  # of k, in halves

    family: ClassVar[str] = "tensor_narrow"
    source: ClassVar[str] = "tensor_core/narrow.cl"
    entry: ClassVar[str] = "tensor_narrow"
    includes: ClassVar[tuple[str, ...]] = (
        *("common/store.cl", "split_k/fused.cl"),
        *("tensor_core/barriers.cl", "tensor_core/eleven_bits.cl"),
        *("tensor_core/chunk.cl", "tensor_core/turns.cl"),
    )
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (ReduceConfig,)

    @property
    def items(self) -> int:
        return 256

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a packed chunk of B."""
        return FLOAT_BYTES * self.chunk * self.columns + 128

    def problems(self) -> Iterator[str]:
        yield from positive(self)
        if self.columns not in NARROW_COLUMNS:
            yield f"columns={self.columns} is not one of {NARROW_COLUMNS}"


@dataclass(frozen=True)
class NarrowVariant(NarrowConfig):
    """The config of one launch."""

    load_a: int  # floats per load of A
    along_k: bool  # A's rows are contiguous, not its columns
    fused_split_k: bool = False  # the kernel itself adds up slices of k

    def busy_us(self, groups: int, depth: int, slices: int, packs: int, limits: Limits) -> float:
        """Return how long work-groups keep the device busy; the parameters are `narrow_us`'s."""
        return narrow_us(groups, self.columns, depth, slices, packs, self.load_a == 1, limits)

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch."""
        groups, sizes, limits = launch
        m, n, k, depth = (sizes[name] for name in ("m", "n", "k", "slice_k"))
        matrices = matrices_of(sizes["counts"])
        slices = ceil_div(k, depth)
        steps = self.busy_us(groups, min(k, depth), slices, sizes["packs"], limits)
        read = FLOAT_BYTES * matrices * (m * k * ceil_div(n, self.columns) + m * n)
        rest: float = limits.costs.narrow_us - limits.costs.start_us
        return joined(OVERLAP, steps, read / limits.costs.narrow_bytes) + rest

    def fallback_us(self, launch: Launch) -> float:
        """Return how much longer a launch takes that goes on in tf32."""
        return TF32_US + TF32_MORE * self.microseconds(launch)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.load_a not in ((1, 2, 4) if self.along_k else (1, 2)):
            yield f"load_a={self.load_a} is not 1, 2 or, with along_k, 4"
