"""The config of the blocked family: blocks of C in vector registers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import (
    KernelConfig,
    Launch,
    positive,
    tunable_of,
    vector,
    vector_block_of,
)
from clgemm.core.steps import ceil_div
from clgemm.kernels.blocked.estimate import register_spread
from clgemm.kernels.pack.plan import VectorPackConfig
from clgemm.kernels.split_k.plan import ReduceConfig

__all__ = ["BlockedConfig", "BlockedVariant"]


@dataclass(frozen=True)
class BlockedConfig(KernelConfig):
    """Streams panels through the caches; a work-item holds a block of C in vector registers.

    Work-groups pack B themselves, block by block, into memory that stays in their caches.
    """

    work_m: int  # rows of C in registers
    vectors: int  # vectors of each row of C in registers
    width: int  # floats per vector
    block_m: int  # most panels of A that are multiplied by the same panels of B
    block_n: int  # most panels of B per work-group: they stay in the second-level cache
    block_k: int  # most steps over k that are summed in registers
    unroll: int  # steps of the loop over k that are written out
    prefetch: int  # steps over k by which B is prefetched; 0 leaves it to the processor
    prefetch_a: int  # the same for panels of A
    in_place: bool  # read A in place, not packed, if its rows are contiguous
    aliasing: int  # but pack A if its row stride, in floats, is a multiple of this; 0: never
    fma: bool  # as in TiledConfig

    family: ClassVar[str] = "blocked"
    source: ClassVar[str] = "blocked/blocked.cl"
    entry: ClassVar[str] = "blocked_product"
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (VectorPackConfig, ReduceConfig)
    includes: ClassVar[tuple[str, ...]] = (
        "common/store.cl",
        *("blocked/panels_of_a.cl", "pack/vector_panels.cl"),
        *("blocked/panels_of_b.cl", "pack/vector_panels.cl"),
    )
    planned: ClassVar[frozenset[str]] = frozenset({"BLOCK_M", "BLOCK_N", "BLOCK_K", "ALIASING"})

    @property
    def tile_m(self) -> int:
        """Rows of a panel of A."""
        return self.work_m

    @property
    def tile_n(self) -> int:
        """Columns of a panel of B."""
        return self.vectors * self.width

    @property
    def items(self) -> int:
        return 1

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return also the macros for how panels are packed."""
        (rows_a, columns_a), (rows_b, columns_b) = (
            vector_block_of(self.tile_m),
            vector_block_of(self.tile_n),
        )
        rows = (("VECTOR_ROWS_A", rows_a), ("VECTOR_ROWS_B", rows_b))
        return (
            *super().macros(),
            *rows,
            ("VECTOR_COLUMNS_A", columns_a),
            ("VECTOR_COLUMNS_B", columns_b),
        )

    def problems(self) -> Iterator[str]:
        yield from positive(self, "prefetch", "prefetch_a", "aliasing")
        yield from vector(self, "width")
        if self.vectors > 3:
            yield f"vectors={self.vectors} is more than 3"


@dataclass(frozen=True)
class BlockedVariant(BlockedConfig):
    """The config of one launch."""

    packs: bool  # A is not packed yet: work-groups pack it for one another

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time: multiplying, and besides that packing and storing."""
        x, limits = launch.arguments, launch.limits
        costs, units = limits.cpu_costs, limits.compute_units
        m, n, k, matrices = x["m"], x["n"], x["k"], x["matrices"]
        tunable = tunable_of(BlockedConfig, self)
        cost = register_spread(tunable, m, n, k, matrices, x["block_k"], units).cost
        packed = x["a_matrices"] * m * k / costs.packed if self.packs else 0.0
        if x["b_column"] != 1:
            packed += matrices * n * k / costs.transposed
        stored = matrices * m * n * ceil_div(k, x["block_k"]) / costs.stored
        return float(cost / costs.blocked_vectors + (packed + stored) / units)
