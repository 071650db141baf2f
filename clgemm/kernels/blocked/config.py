"""The config of the blocked family, and how it divides C among a CPU's cores. Pure.

The model of the division is for cores that have vectors and their own caches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from clgemm.core.config import KernelConfig, Launch, positive, tunable_of, vector, vector_block_of
from clgemm.core.plan import ceil_div, round_up
from clgemm.kernels.pack.plan import VectorPackConfig
from clgemm.kernels.split_k.plan import ReduceConfig

__all__ = [
    "NEAR",
    "BlockedConfig",
    "BlockedEstimate",
    "BlockedVariant",
    "cuts_k",
    "register_spread",
]

# Fitted on Xeons with AVX-512; the data and the script of the fit were not kept.
# Costs are in multiply-adds of a vector by a row of A.
PANEL_COST = 0.25  # vectors: overhead of a panel of B
NARROW_COST = 0.15  # vectors: overhead of a panel, times the square of its missing vectors
BLOCK_COST = 0.9  # vectors: overhead of a block
FAR_COST = 1.5  # the same where the caches do not hold A
STRIP_COST = 300  # multiply-adds: storing each row of a block of C, which begins in another page
PACK_COST = 32  # rows: packing a block of B
TAKE_COST = 8000  # multiply-adds: taking a block of A from a list
SLICE_COST = 48  # steps over k: writing and reading C for a slice
# Multiply-adds: a second launch, which adds slices up. With this cost, 36 random products of 17 to
# 400 rows and columns take 0.95 of the time that they took without it, with Intel's runtime. With
# PoCL 3.1, 30 take 0.94 (two cores of an Intel Xeon, Sapphire Rapids, 2026-11-27).
CUT_COST = 200_000
SMALLEST_SLICE = 512  # of k
NEAR = 2**19  # elements of A per compute unit that the last cache holds
FEW_PANELS = 64  # pairs of panels per compute unit; from here on k is not cut


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

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return also the macros for how panels are packed."""
        rows_a, columns_a = vector_block_of(self.tile_m)
        rows_b, columns_b = vector_block_of(self.tile_n)
        return (
            *super().macros(),
            *(("VECTOR_ROWS_A", rows_a), ("VECTOR_ROWS_B", rows_b)),
            *(("VECTOR_COLUMNS_A", columns_a), ("VECTOR_COLUMNS_B", columns_b)),
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


class BlockedEstimate(NamedTuple):
    """The blocks of C, and the lists that divide them among work-groups.

    Several work-groups may share a list. Each takes blocks from its own list, then from the others.
    """

    block_m: int  # panels of A in a block
    block_n: int  # columns of B in a block
    slice_k: int  # depth of a slice of k
    lists: int  # lists that the columns of blocks are divided among
    cost: float = 0.0  # expected time, in multiply-adds of a vector by an element of A


def cuts_k(config: BlockedConfig, m: int, n: int, matrices: int, units: int) -> bool:
    """Return whether there are so few blocks of C per core that k may be cut."""
    panels = ceil_div(m, config.tile_m) * ceil_div(n, config.tile_n)
    return matrices * panels < FEW_PANELS * units


@functools.lru_cache(maxsize=256)  # most blocks of one product have the same sizes
def register_spread(
    config: BlockedConfig, m: int, n: int, k: int, matrices: int, block_k: int, units: int
) -> BlockedEstimate:
    """Return the blocks that should end first: cores stay busy, and little is packed twice."""
    panels_m, vectors = ceil_div(m, config.tile_m), ceil_div(n, config.width)
    block_cost = BLOCK_COST if m * k <= NEAR * units else FAR_COST

    def width(vectors: int) -> float:
        panels = ceil_div(vectors, config.vectors)
        missing = panels * config.vectors - vectors
        return vectors + PANEL_COST * panels + NARROW_COST * missing**2 + block_cost

    cuts, slices_k = 1, [k]
    few = cuts_k(config, m, n, matrices, units)
    while few and cuts < units * 4 and k // (2 * cuts) >= SMALLEST_SLICE:
        cuts *= 2
        slices_k.append(round_up(ceil_div(k, cuts), block_k))
    best, least = (1, 1, k, 1), math.inf
    columns_of = []  # for each width: itself, columns of blocks, the last one's vectors, mean width
    for block_n in _widths(config, vectors, block_k):
        whole, rest = divmod(vectors, block_n)  # the last column is narrower
        across = whole + (rest > 0)
        mean = (whole * width(block_n) + (width(rest) if rest else 0)) / across
        columns_of.append((block_n, across, rest, mean))
    for block_m in _even_parts(panels_m, config.block_m):
        blocks_m = ceil_div(panels_m, block_m)
        for block_n, across, rest, mean in columns_of:
            for slice_k in slices_k:
                depth = slice_k + (SLICE_COST if slice_k < k else 0)
                stacked = matrices * ceil_div(k, slice_k)
                columns = stacked * across
                each = (mean * depth + STRIP_COST) * block_m * config.tile_m + TAKE_COST
                # B's block of a column is packed once; with several blocks of k, for each of A.
                pack = mean * depth * PACK_COST
                # Units that are slowed down end later, by less if blocks are small.
                late, cut = each / 4, CUT_COST if slice_k < k else 0
                for i in range(units.bit_length()):
                    lists = _lists(columns, units, 2**i)
                    (rounds, over), (groups, spare) = divmod(columns, lists), divmod(units, lists)
                    if over or spare or (rest and stacked % lists):
                        # Some help other lists, and pack again.
                        taken, rounds = ceil_div(columns * blocks_m, units) + 1, rounds + 1
                    else:
                        taken = ceil_div(rounds * blocks_m, groups)
                    packed = rounds if slice_k <= block_k else taken
                    cost = taken * each + packed * pack + late + cut
                    if cost < least:
                        best, least = (block_m, block_n, slice_k, lists), cost
    block_m, block_n, slice_k, lists = best
    return BlockedEstimate(block_m, block_n * config.width, slice_k, lists, least)


def _widths(config: BlockedConfig, vectors: int, depth: int) -> Iterable[int]:
    """Return the numbers of vectors that a block of C may be wide.

    The second-level cache holds a block of B. So with a short k, blocks are wider, and rows of C
    are written in few pieces.
    """
    most = config.block_n * config.vectors
    if depth <= config.block_k // 2:
        return _even_parts(vectors, most * config.block_k // depth)
    return range(1, min(vectors, most) + 1)


def _lists(columns: int, units: int, together: int) -> int:
    """Return the number of lists if `together` work-groups share each."""
    return max(1, min(columns, units // together))


def _even_parts(count: int, most: int) -> list[int]:
    """Return the sizes, up to `most`, that cut `count` items into parts of nearly one size."""
    parts = range(ceil_div(count, most), count + 1)
    sizes = dict.fromkeys(ceil_div(count, n) for n in parts[: 4 * most])
    return list(sizes)
