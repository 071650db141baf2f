"""The config of the skinny_gpu family: products with few rows or columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import FLOAT_BYTES, KernelConfig, Launch, multiple, positive, vector
from clgemm.core.steps import ceil_div, matrices_of, round_up
from clgemm.kernels.split_k.plan import ReduceConfig

__all__ = ["HINTED_WIDTH", "MOST_OF_A", "SkinnyGpuConfig", "SkinnyGpuVariant"]

HINTED_WIDTH = 4  # floats of a load that can carry a hint for the last cache
RUNNING_ITEMS = 2048  # work-items that run side by side on a compute unit
ABREAST_FLOATS = 128  # of k, which the work-items side by side read in a step
MOST_OF_A = 16  # floats of A that a work-item copies to local memory at a time


@dataclass(frozen=True)
class SkinnyGpuConfig(KernelConfig):
    """Multiplies by an operand of a few rows; large work-groups read the other once, in place."""

    rows: int  # rows of C at a time
    width: int  # floats per load of B
    group: int  # work-items per work-group
    abreast: int  # of them, those side by side along a row of B, if its rows are contiguous
    chunk: int  # columns of A in local memory; 0: read A in place, if B's rows are contiguous
    fma: bool  # as in TiledConfig
    ahead: int = 4  # loads of B in flight

    family: ClassVar[str] = "skinny_gpu"
    source: ClassVar[str] = "skinny_gpu/skinny_gpu.cl"
    entry: ClassVar[str] = "skinny_product"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl", "split_k/fused.cl")
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (ReduceConfig,)

    @property
    def items(self) -> int:
        return self.group

    @property
    def strip(self) -> int:
        """Columns of C per work-group."""
        return self.abreast * self.width

    @property
    def local_memory_bytes(self) -> int:
        return FLOAT_BYTES * (self.rows * self.chunk + self.group * self.width)

    def problems(self) -> Iterator[str]:
        bad = [*positive(self, "chunk", "cached_loads"), *vector(self, "width")]
        yield from bad
        if not bad:
            yield from multiple(self, "group", of="abreast")
            yield from multiple(self, "chunk", of="width")
            if self.rows * self.chunk > MOST_OF_A * self.group:
                yield (
                    f"chunk={self.chunk} columns of rows={self.rows} are more than {MOST_OF_A} "
                    f"floats for each of group={self.group} work-items"
                )


@dataclass(frozen=True)
class SkinnyGpuVariant(SkinnyGpuConfig):
    """The config of one launch."""

    along_k: bool = False  # B's columns are contiguous, not its rows
    unaligned: bool = False  # they begin and end anywhere, not at multiples of `width`
    fused_split_k: bool = False  # the kernel itself adds up slices of k
    # Of the loads in flight, those that the last cache is told to keep; it evicts the others first.
    # 0: no hints.
    cached_loads: int = 0

    @property
    def strip(self) -> int:
        """Columns of C per work-group."""
        return self.group // self.abreast if self.along_k else super().strip

    @property
    def step(self) -> int:
        """Rows of B that the work-items read by a load each."""
        return self.abreast * self.width if self.along_k else self.group // self.abreast

    @property
    def local_memory_bytes(self) -> int:
        more_of_a = self.rows * self.width if self.unaligned else 0
        return super().local_memory_bytes + FLOAT_BYTES * more_of_a

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch: the bytes of B, and the latency of its steps."""
        _, arguments, limits = launch
        costs = limits.costs
        m, n, k, slice_k = (arguments[name] for name in ("m", "n", "k", "slice_k"))
        # Along k, a work-group takes as long for fewer columns.
        columns = round_up(n, self.strip) if self.along_k else n
        read = FLOAT_BYTES * matrices_of(arguments["counts"]) * columns * k * ceil_div(m, self.rows)
        rounds = ceil_div(launch.groups * self.group, RUNNING_ITEMS * limits.compute_units)
        fused = costs.fused_us if self.fused_split_k else 0.0
        depth = min(k, slice_k)
        if self.along_k:
            reading = read / costs.dots_bytes * (1 + costs.dots_row * (self.rows - 1))
            latency = costs.dots_us + depth / ABREAST_FLOATS * costs.dots_step_us
        else:
            reading = read / costs.skinny_bytes * (1 + costs.skinny_row * (self.rows - 1) ** 2)
            steps = depth / (self.group // self.abreast * self.ahead)
            latency = costs.skinny_us + steps * costs.skinny_step_us
        return float(reading + rounds * latency + fused)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.along_k and not self.chunk:
            yield "along_k needs a chunk of A in local memory, not chunk=0"
        if self.unaligned and not self.along_k:
            yield "unaligned needs along_k"
        if self.chunk % (self.ahead * self.step):
            yield (
                f"chunk={self.chunk} columns of A are no multiple of the {self.ahead * self.step} "
                f"that ahead={self.ahead} loads of all work-items bring"
            )
        if self.cached_loads and self.width != HINTED_WIDTH:
            yield (
                f"cached_loads={self.cached_loads} needs loads of {HINTED_WIDTH} floats, "
                f"not {self.width}"
            )
        if self.cached_loads >= self.ahead:
            yield f"cached_loads={self.cached_loads} is not below ahead={self.ahead}"
