"""How blocks of C are divided among a CPU's cores. Pure.

The model is for cores that have vectors and their own caches.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import product
from typing import NamedTuple, Protocol

from clgemm.core.steps import ceil_div, round_up

__all__ = ["NEAR", "BlockedEstimate", "Blocks", "cuts_k", "register_spread"]

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


class Blocks(Protocol):
    """The part of a `BlockedConfig` that the division depends on. It can be hashed."""

    @property
    def tile_m(self) -> int: ...
    @property
    def tile_n(self) -> int: ...
    @property
    def vectors(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def block_m(self) -> int: ...
    @property
    def block_n(self) -> int: ...
    @property
    def block_k(self) -> int: ...


class BlockedEstimate(NamedTuple):
    """The blocks of C, and the lists that divide them among work-groups.

    Attributes
    ----------
    block_m : int
        Panels of A in a block.
    block_n : int
        Columns of B in a block.
    slice_k : int
        Depth of a slice of k.
    lists : int
        Lists that the columns of blocks are divided among. Several work-groups may share a list.
        Each takes blocks from its own list, then from the others.
    cost : float
        Expected time, in multiply-adds of a vector by an element of A.
    """

    block_m: int
    block_n: int
    slice_k: int
    lists: int
    cost: float = 0.0


def cuts_k(config: Blocks, m: int, n: int, matrices: int, units: int) -> bool:
    """Tell whether there are so few blocks of C per core that k may be cut."""
    panels = ceil_div(m, config.tile_m) * ceil_div(n, config.tile_n)
    return matrices * panels < FEW_PANELS * units


@functools.lru_cache(maxsize=256)  # most blocks of one product have the same sizes
def register_spread(
    config: Blocks, m: int, n: int, k: int, matrices: int, block_k: int, units: int
) -> BlockedEstimate:
    """Return the blocks that should end first: cores stay busy, and little is packed twice."""
    panels_m, vectors = ceil_div(m, config.tile_m), ceil_div(n, config.width)
    block_cost = BLOCK_COST if m * k <= NEAR * units else FAR_COST

    def width(vectors: int) -> float:
        panels = ceil_div(vectors, config.vectors)
        missing = panels * config.vectors - vectors
        return vectors + PANEL_COST * panels + NARROW_COST * missing**2 + block_cost

    def expected(choice: tuple[int, int, int, int]) -> float:
        block_m, block_n, slice_k, together = choice
        blocks_m = ceil_div(panels_m, block_m)
        depth = slice_k + (SLICE_COST if slice_k < k else 0)
        whole, rest = divmod(vectors, block_n)  # the last column is narrower
        across = whole + (rest > 0)
        stacked = matrices * ceil_div(k, slice_k)
        columns = stacked * across
        mean = (whole * width(block_n) + (width(rest) if rest else 0)) / across
        each = (mean * depth + STRIP_COST) * block_m * config.tile_m + TAKE_COST
        # B's block of a column is packed once; with several blocks of k, for each block of A.
        pack = mean * depth * PACK_COST
        lists = _lists(columns, units, together)
        (rounds, over), (groups, spare) = divmod(columns, lists), divmod(units, lists)
        if over or spare or (rest and stacked % lists):  # some help other lists, and pack again
            taken, rounds = ceil_div(columns * blocks_m, units) + 1, rounds + 1
        else:
            taken = ceil_div(rounds * blocks_m, groups)
        packed = rounds if slice_k <= block_k else taken
        # Units that are slowed down end later, by less if blocks are small.
        cut = CUT_COST if slice_k < k else 0
        return taken * each + packed * pack + each / 4 + cut

    cuts, slices_k = 1, [k]
    few = cuts_k(config, m, n, matrices, units)
    while few and cuts < units * 4 and k // (2 * cuts) >= SMALLEST_SLICE:
        cuts *= 2
        slices_k.append(round_up(ceil_div(k, cuts), block_k))
    best = min(
        product(
            _even_parts(panels_m, config.block_m),
            _widths(config, vectors, block_k),
            slices_k,
            [2**i for i in range(units.bit_length())],
        ),
        key=expected,
    )
    block_m, block_n, slice_k, together = best
    columns = matrices * ceil_div(k, slice_k) * ceil_div(vectors, block_n)
    lists = _lists(columns, units, together)
    return BlockedEstimate(block_m, block_n * config.width, slice_k, lists, expected(best))


def _widths(config: Blocks, vectors: int, depth: int) -> Iterable[int]:
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
