"""The launches of products on tensor cores with few rows or columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from clgemm.core.config import Limits, variant_of
from clgemm.core.layout import Layout, Level, batch_levels
from clgemm.core.steps import (
    COUNTERS,
    LAST_GROUP,
    LONGEST_SUM,
    Argument,
    Element,
    Plan,
    Side,
    Step,
    batch_of,
    ceil_div,
    operand_in_place,
    round_up,
    slices,
    widest_load,
)
from clgemm.kernels.common.panels import Scratch, own_levels, packed_strides
from clgemm.kernels.split_k.plan import product_arguments, target
from clgemm.kernels.tensor_core.narrow_config import NarrowConfig, NarrowVariant
from clgemm.kernels.tensor_core.plan import least_exponent

__all__ = ["fits_narrow", "make_narrow_plan"]

PACK_COUNTERS = 5  # of packing, before the counters of fused split-k
MOST_SLICES = 16
# Chunks of B in halves, and twice as many in tf32 for data that need it.
METHODS = 1 + 2


def fits_narrow(a: Layout, b: Layout, c: Layout) -> bool:
    """Tell whether the larger operand has contiguous rows or columns."""
    a, _, _, _ = _transposed(a, b, c)
    return 1 in (a.row_stride, a.column_stride)


def _transposed(a: Layout, b: Layout, c: Layout) -> tuple[Layout, Layout, Layout, bool]:
    """Return the product with the shorter side as columns, and whether that is its transpose."""
    if c.rows >= c.columns:
        return a, b, c, False
    return b.transposed(), a.transposed(), c.transposed(), True


def fitted(config: NarrowConfig, a: Layout) -> NarrowVariant:
    """Return a config that reads A where it is contiguous, by the widest loads that fit."""
    along_k = a.column_stride == 1
    load = widest_load(a, not along_k, 4 if along_k else 2)
    return variant_of(NarrowVariant, config, along_k=along_k, load_a=load)


def slices_of_k(config: NarrowVariant, tiles: int, packs: int, k: int, limits: Limits) -> int:
    """Return the number of slices of k with the least expected time."""
    chunks = ceil_div(k, config.chunk)

    def time(cuts: int) -> float:
        depth = ceil_div(chunks, cuts) * config.chunk
        return config.busy_us(tiles * cuts, depth, cuts, packs, limits)

    return min(range(1, min(chunks, MOST_SLICES) + 1), key=time)


def make_narrow_plan(a: Layout, b: Layout, c: Layout, config: NarrowConfig, limits: Limits) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` for batches that `fits_narrow`."""
    scratch = Scratch()
    a, b, c, transposed = _transposed(a, b, c)
    steps = tuple(_steps(a, b, c, transposed, fitted(config, a), limits, scratch))
    return Plan(steps, tuple(scratch.sizes.items()))


def _steps(
    a: Layout,
    b: Layout,
    c: Layout,
    transposed: bool,
    config: NarrowVariant,
    limits: Limits,
    scratch: Scratch,
) -> Iterator[Step]:
    """Yield each launch, and reserve its scratch memory."""
    m, n, k = c.rows, c.columns, a.columns
    slot_a: Side = "b" if transposed else "a"
    slot_b: Side = "a" if transposed else "b"
    tiles_n, chunks = ceil_div(n, config.columns), ceil_div(k, config.chunk)
    tiles = ceil_div(m, config.tile_m) * tiles_n
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // (tiles * chunks), 3):
        batch_b = batch_of(own_levels(levels, 1), 1)
        packs = batch_b.matrices * tiles_n * chunks
        packed = packed_strides(levels, 1, tiles_n * chunks)
        every = zip(levels, packed, strict=True)
        # The strides of A, B and C, and those over the chunks of packed B.
        batch = batch_of(tuple(Level(x.count, (*x.strides, stride)) for x, stride in every), 4)
        scratch.reserve("packed_b", METHODS * packs * config.chunk_bytes)
        cuts = slices_of_k(config, tiles * batch.matrices, packs, k, limits)
        cuts = max(cuts, ceil_div(k, LONGEST_SUM))
        slice_k = round_up(ceil_div(k, cuts), config.chunk)
        cuts = ceil_div(k, slice_k)
        fused = None
        if tiles * batch.matrices + PACK_COUNTERS <= COUNTERS * limits.compute_units:
            fused = tiles * batch.matrices, config.tile_m * config.columns
        result = target((m, n, cuts), levels, batch, "beta", c, offsets[2], limits, fused)
        if cuts > 1:
            scratch.reserve("partial", result.partial_bytes)
        first_a, first_b = Element(slot_a, offsets[0]), Element(slot_b, offsets[1])
        place_a = operand_in_place("a", slot_a, first_a, a)
        place_b = operand_in_place("b", slot_b, first_b, b)
        sizes = {"m": m, "n": n, "k": k, "slice_k": slice_k, "least": least_exponent(k)}
        packing: dict[str, Argument] = {
            "packed": "packed_b",
            "packed_strides": batch.strides[3],
            "packs": packs,
            "own_counts": batch_b.counts,
            "own_strides": batch_b.strides[0],
            "pack_counters": "counters",
        }
        yield Step(
            replace(config, fused_split_k=result.fused_split_k),
            tiles * cuts * batch.matrices,
            product_arguments(sizes, batch, place_a, place_b, result, packing),
        )
        yield from result.adding
