"""How blocks of C are spread over a CPU's cores.

Pure. The model is for cores with vectors and caches of their own.
"""

from __future__ import annotations

import functools
from itertools import product
from typing import NamedTuple

from clgemm.core.steps import ceil_div, round_up
from clgemm.kernels.blocked.config import BlockedConfig

__all__ = ["NEAR", "BlockedEstimate", "cuts_k", "register_spread"]

# Found on Xeons with AVX-512; neither data nor script of the fit was kept.
# Costs are in multiply-adds of a vector by a row of A.
PANEL_COST = 0.25  # vectors: what a panel of B takes more
NARROW_COST = 0.15  # vectors: what a panel takes more for each vector that it lacks, squared
BLOCK_COST = 0.9  # vectors: what a block takes more
FAR_COST = 1.5  # the same where A is far
PACK_COST = 32  # rows: to pack a block of B
DRAW_COST = 8000  # multiply-adds: to draw a block of A
SLICE_COST = 48  # steps over k: to write and read C for a slice
SMALLEST_SLICE = 512  # of k
NEAR = 2**19  # elements of A per compute unit that the last cache holds
FEW_PANELS = 64  # pairs of panels per compute unit: with more, k is not cut


class BlockedEstimate(NamedTuple):
    """Blocks of C, and who multiplies them.

    Attributes
    ----------
    block_m : int
        Panels of A.
    block_n : int
        Columns of B.
    slice_k : int
        Depth of a slice of k.
    lists : int
        Into how many the columns of blocks are shared out; work-groups of one list share each of
        its columns, those of several help one another in the end.
    """

    block_m: int
    block_n: int
    slice_k: int
    lists: int


def cuts_k(config: BlockedConfig, m: int, n: int, matrices: int, units: int) -> bool:
    """Tell whether cores get so few blocks of C that k may be cut among them."""
    panels = ceil_div(m, config.tile_m) * ceil_div(n, config.tile_n)
    return matrices * panels < FEW_PANELS * units


@functools.lru_cache(maxsize=256)  # of the blocks of one product, most are alike
def register_spread(
    config: BlockedConfig, m: int, n: int, k: int, matrices: int, block_k: int, units: int
) -> BlockedEstimate:
    """Return what is expected to end first: all cores busy to the end, and little packed twice."""
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
        each = mean * depth * block_m * config.tile_m + DRAW_COST
        # A column is packed once; if it has several blocks of k, for each block of A anew.
        pack = mean * depth * PACK_COST
        lists = _lists(columns, units, together)
        (rounds, over), (groups, spare) = divmod(columns, lists), divmod(units, lists)
        if over or spare or (rest and stacked % lists):  # some help others, and pack again
            drawn, rounds = ceil_div(columns * blocks_m, units) + 1, rounds + 1
        else:
            drawn = ceil_div(rounds * blocks_m, groups)
        packed = rounds if slice_k <= block_k else drawn
        # Units that are slowed down end later: blocks are not to be too large.
        return drawn * each + packed * pack + each / 4

    cuts, slices_k = 1, [k]
    few = cuts_k(config, m, n, matrices, units)
    while few and cuts < units * 4 and k // (2 * cuts) >= SMALLEST_SLICE:
        cuts *= 2
        slices_k.append(round_up(ceil_div(k, cuts), block_k))
    block_m, block_n, slice_k, together = min(
        product(
            _even_parts(panels_m, config.block_m),
            range(1, min(vectors, config.block_n * config.vectors) + 1),
            slices_k,
            [2**i for i in range(units.bit_length())],
        ),
        key=expected,
    )
    columns = matrices * ceil_div(k, slice_k) * ceil_div(vectors, block_n)
    lists = _lists(columns, units, together)
    return BlockedEstimate(block_m, block_n * config.width, slice_k, lists)


def _lists(columns: int, units: int, together: int) -> int:
    """Return the lists of columns if so many work-groups share each."""
    return max(1, min(columns, units // together))


def _even_parts(count: int, most: int) -> list[int]:
    """Return the sizes, up to `most`, that cut `count` things into parts of nearly one size."""
    parts = range(ceil_div(count, most), count + 1)
    sizes = dict.fromkeys(ceil_div(count, n) for n in parts[: 4 * most])
    return list(sizes)
