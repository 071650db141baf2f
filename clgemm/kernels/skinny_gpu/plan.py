"""The launches of the skinny_gpu family. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from clgemm.core.config import FLOAT_BYTES, Limits, variant_of
from clgemm.core.layout import Layout, batch_levels
from clgemm.core.steps import (
    LAST_GROUP,
    Element,
    Plan,
    Step,
    batch_of,
    ceil_div,
    operand_in_place,
    slices,
    widest_load,
)
from clgemm.kernels.common.in_place import SMALLEST_SLICE, FewRows, few_rows, slice_of_k
from clgemm.kernels.common.panels import Scratch
from clgemm.kernels.skinny_gpu.config import HINTED_WIDTH, SkinnyGpuConfig, SkinnyGpuVariant
from clgemm.kernels.split_k.plan import product_arguments, target

__all__ = ["make_skinny_plan"]

# Most work-items per compute unit for which k is cut: it is slower to cut k into more work-groups
# than can run at the same time.
LANES_PER_UNIT = 1024
# The last cache keeps most of B without hints if B is at most this many times
# `persisting_cache_bytes`.
MOSTLY_CACHED = 1.5
# Where B's rows are contiguous, a config's `abreast` is divided by at most this.
MOST_FEWER_ABREAST = 4
# Where B's columns are contiguous. Measured on an H100, 22 products of 2e6 to 3e8 multiply-adds.
ABREAST_ALONG_K = 16  # work-items side by side: together they read 256 bytes
GROUP_ALONG_K = 256  # work-items
AHEAD_ALONG_K = 4  # loads in flight
CHUNK_ALONG_K = 2  # floats of A that each work-item copies to local memory at a time, at least


def make_skinny_plan(
    a: Layout, b: Layout, c: Layout, config: SkinnyGpuConfig, limits: Limits
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` where it `fits_few_rows`."""
    scratch = Scratch()
    steps = tuple(_steps(few_rows(a, b, c), config, limits, scratch))
    return Plan(steps, tuple(scratch.sizes.items()))


def fitted(config: SkinnyGpuConfig, b: Layout, limits: Limits) -> SkinnyGpuVariant:
    """Return a config that reads B where it is contiguous, by the widest loads that fit."""
    along_k = b.column_stride != 1
    width = widest_load(b, along_k, config.width)
    if not along_k:
        # With narrower loads, more of them side by side and in flight read as much.
        abreast = abreast_along_rows(config, b, width, limits)
        ahead = config.ahead * (config.width // width)
        fit = replace(config, width=width, abreast=abreast, ahead=ahead)
        return with_whole_loads(variant_of(SkinnyGpuVariant, fit, along_k=False))
    group = min(config.group, GROUP_ALONG_K)
    # Powers of two: the second is the largest that divides the work-group.
    abreast = min(ABREAST_ALONG_K, group & -group)
    ahead = min(config.ahead, AHEAD_ALONG_K)
    chunk = max(CHUNK_ALONG_K * group // config.rows, ahead * abreast * config.width)
    chunk = min(config.chunk or chunk, chunk)
    fit = replace(config, group=group, abreast=abreast, ahead=ahead, chunk=chunk)
    unaligned = width < config.width
    return with_whole_loads(variant_of(SkinnyGpuVariant, fit, along_k=True, unaligned=unaligned))


def with_whole_loads(config: SkinnyGpuVariant) -> SkinnyGpuVariant:
    """Return a config whose loads in flight divide its chunk: fewer of them, and a smaller chunk.

    A chunk is as long as one load of all work-items at least.
    """
    if not config.chunk:
        return config
    ahead = max(1, min(config.ahead, config.chunk // config.step))
    loads = ahead * config.step
    return replace(config, ahead=ahead, chunk=max(1, config.chunk // loads) * loads)


def abreast_along_rows(config: SkinnyGpuConfig, b: Layout, width: int, limits: Limits) -> int:
    """Return how many work-items read a row of B together: as many as occupy all compute units."""
    abreast = config.abreast * (config.width // width)
    if config.group % abreast:
        abreast = config.abreast
    least = abreast // MOST_FEWER_ABREAST
    slices = math.prod(b.batch) * max(1, b.rows // SMALLEST_SLICE)
    while abreast % 2 == 0 and abreast // 2 >= least:
        strips = ceil_div(b.columns, abreast * width)
        if strips * slices >= limits.compute_units:
            break
        abreast //= 2
    return abreast


def loads_to_cache(config: SkinnyGpuConfig, b_bytes: int, limits: Limits) -> int:
    """Return how many of the loads in flight the last cache is told to keep.

    They are the part of B that it can keep. None if it keeps most of B anyway, or if it could keep
    hardly any of B.
    """
    if config.width != HINTED_WIDTH or b_bytes < MOSTLY_CACHED * limits.persisting_cache_bytes:
        return 0
    return config.ahead * limits.persisting_cache_bytes // b_bytes


def _steps(
    few: FewRows, config: SkinnyGpuConfig, limits: Limits, scratch: Scratch
) -> Iterator[Step]:
    """Yield each launch, and reserve its scratch memory."""
    a, b, c, slot_a, slot_b = few
    m, n, k = c.rows, c.columns, a.columns
    fit = fitted(config, b, limits)
    blocks = ceil_div(m, fit.rows) * ceil_div(n, fit.strip)
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // (blocks * k), 3):
        batch = batch_of(levels, 3)
        running_groups = limits.compute_units * LANES_PER_UNIT // fit.items
        slice_k = slice_of_k(k, running_groups // (blocks * batch.matrices), fit.width)
        cuts = ceil_div(k, slice_k)
        matrices_b = math.prod(level.count for level in levels if level.strides[1])
        cached_loads = loads_to_cache(fit, FLOAT_BYTES * matrices_b * n * k, limits)
        fused = blocks * batch.matrices, fit.rows * fit.strip
        result = target((m, n, cuts), levels, batch, "beta", c, offsets[2], limits, fused)
        if cuts > 1:
            scratch.reserve("partial", result.partial_bytes)
        place_a = operand_in_place("a", slot_a, Element(slot_a, offsets[0]), a)
        place_b = operand_in_place("b", slot_b, Element(slot_b, offsets[1]), b)
        sizes = {"m": m, "n": n, "k": k, "slice_k": slice_k}
        arguments = product_arguments(sizes, batch, place_a, place_b, result)
        launched = replace(fit, cached_loads=cached_loads, fused_split_k=result.fused_split_k)
        yield Step(launched, blocks * cuts * batch.matrices, arguments)
        yield from result.adding
