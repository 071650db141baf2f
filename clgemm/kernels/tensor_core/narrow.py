"""The launches of products on tensor cores with few rows or columns."""

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
from clgemm.kernels.tensor_core.config import NarrowConfig, NarrowVariant

__all__ = ["fits_narrow", "make_narrow_plan"]

PACK_COUNTERS = 3  # of the kernel, in front of the counters of its slices
MOST_SLICES = 16
# Times are in turns of a work-group: a chunk for each of its warp groups. For an H200; neither data
# nor script of the fit was kept.
ROUND_TURNS = 3  # what a round of work-groups takes besides
SLICE_TURNS = 0.3  # what adding up takes for each slice


def fits_narrow(a: Layout, b: Layout, c: Layout) -> bool:
    """Tell whether the elements of the larger operand are neighbours along one dimension."""
    a, _, _, _ = _turned(a, b, c)
    return 1 in (a.row_stride, a.column_stride)


def _turned(a: Layout, b: Layout, c: Layout) -> tuple[Layout, Layout, Layout, bool]:
    """Return the product with the shorter side as columns, and whether that is its transpose."""
    if c.rows >= c.columns:
        return a, b, c, False
    return b.transposed(), a.transposed(), c.transposed(), True


def fitted(config: NarrowConfig, a: Layout) -> NarrowVariant:
    """Return a config that reads A along its memory, by the widest loads that fit it."""
    along_k = a.column_stride == 1
    load = widest_load(a, not along_k, 4 if along_k else 2)
    return variant_of(NarrowVariant, config, along_k=along_k, load_a=load)


def slices_of_k(config: NarrowConfig, tiles: int, k: int, limits: Limits) -> int:
    """Return into how many slices k is best cut."""
    chunks = ceil_div(k, config.chunk)

    def time(cuts: int) -> float:
        rounds = ceil_div(tiles * cuts, limits.compute_units)
        turns = ceil_div(chunks, config.parts * cuts)
        return rounds * (turns + ROUND_TURNS) + (cuts > 1) * cuts * SLICE_TURNS

    return min(range(1, min(chunks, MOST_SLICES) + 1), key=time)


def make_narrow_plan(a: Layout, b: Layout, c: Layout, config: NarrowConfig, limits: Limits) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` for batches that `fits_narrow`."""
    scratch = Scratch()
    a, b, c, turned = _turned(a, b, c)
    steps = tuple(_steps(a, b, c, turned, fitted(config, a), limits, scratch))
    return Plan(steps, tuple(scratch.sizes.items()))


def _steps(
    a: Layout,
    b: Layout,
    c: Layout,
    turned: bool,
    config: NarrowVariant,
    limits: Limits,
    scratch: Scratch,
) -> Iterator[Step]:
    """Yield each launch, and note the scratch memory that it needs."""
    m, n, k = c.rows, c.columns, a.columns
    slot_a: Side = "b" if turned else "a"
    slot_b: Side = "a" if turned else "b"
    tiles_n, chunks = ceil_div(n, config.columns), ceil_div(k, config.chunk)
    tiles = ceil_div(m, config.tile_m) * tiles_n
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // (tiles * chunks), 3):
        own = batch_of(own_levels(levels, 1), 1)
        packs = own.matrices * tiles_n * chunks
        packed = packed_strides(levels, 1, tiles_n * chunks)
        every = zip(levels, packed, strict=True)
        # Of A, B and C, and the chunks of B.
        batch = batch_of(tuple(Level(x.count, (*x.strides, stride)) for x, stride in every), 4)
        scratch.reserve("packed_b", packs * config.chunk_bytes)
        cuts = max(slices_of_k(config, tiles * batch.matrices, k, limits), ceil_div(k, LONGEST_SUM))
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
        sizes = {"m": m, "n": n, "k": k, "slice_k": slice_k}
        packing: dict[str, Argument] = {
            "packed": "packed_b",
            "packed_strides": batch.strides[3],
            "packs": packs,
            "own_counts": own.counts,
            "own_strides": own.strides[0],
            "pack_counters": "counters",
        }
        yield Step(
            replace(config, fused_split_k=result.fused_split_k),
            tiles * cuts * batch.matrices,
            product_arguments(sizes, batch, place_a, place_b, result, packing),
        )
        yield from result.adding
