"""The launches of products by few rows, where work-items spread over lanes. Pure."""

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
from clgemm.kernels.common.few_rows import FewRows, few_rows, slice_of_k
from clgemm.kernels.common.panels import Scratch
from clgemm.kernels.skinny_gpu.config import HINTED_WIDTH, SkinnyGpuConfig, SkinnyGpuVariant
from clgemm.kernels.split_k.plan import product_arguments, target

__all__ = ["make_skinny_plan"]

# Slices of k give each compute unit so many work-items at most: to cut k into more work-groups than
# run at the same time cost an H200 5 us of 32 at 1 x 3072 x 3072.
LANES_PER_UNIT = 1024
# Plain loads find most of a matrix in the last cache if it is no larger than so many times
# `persisting_cache_bytes`.
MOSTLY_CACHED = 1.5
# Where B's columns lie along its memory, work-groups are smaller.
ABREAST_ALONG_K = 32  # work-items side by side: they touch 512 bytes
GROUP_ALONG_K = 256  # work-items
CHUNK_ALONG_K = 2  # floats of the few rows that each brings to local memory at a time
AHEAD_ALONG_K = 4  # loads under way at once


def make_skinny_plan(
    a: Layout, b: Layout, c: Layout, config: SkinnyGpuConfig, limits: Limits
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` where it `fits_few_rows`."""
    scratch = Scratch()
    steps = tuple(_steps(few_rows(a, b, c), config, limits, scratch))
    return Plan(steps, tuple(scratch.sizes.items()))


def fitted(config: SkinnyGpuConfig, b: Layout) -> SkinnyGpuVariant:
    """Return a config that reads B along its memory, by the widest vectors that fit it."""
    along_k = b.column_stride != 1
    width = widest_load(b, along_k, config.width)
    if not along_k:
        # Of narrower ones as many side by side, and under way, as bring as much.
        narrower = config.width // width
        abreast = config.abreast * narrower
        if config.group % abreast:
            abreast = config.abreast
        ahead = config.ahead * narrower
        fit = replace(config, width=width, abreast=abreast, ahead=ahead)
        return variant_of(SkinnyGpuVariant, fit, along_k=False)
    group = min(config.group, GROUP_ALONG_K)
    most = CHUNK_ALONG_K * group // config.rows
    chunk = max(width, min(config.chunk or most, most))
    abreast = min(ABREAST_ALONG_K, group)
    fit = replace(
        config,
        width=width,
        group=group,
        abreast=abreast,
        chunk=chunk // width * width,
        ahead=config.ahead if config.chunk else AHEAD_ALONG_K,
    )
    return variant_of(SkinnyGpuVariant, fit, along_k=True)


def loads_to_cache(config: SkinnyGpuConfig, b_bytes: int, limits: Limits) -> int:
    """Return how many of the loads under way are of what stays in the last cache.

    As large a part of B as stays there; none where most of B does anyway, or hardly any would.
    """
    if config.width != HINTED_WIDTH or b_bytes < MOSTLY_CACHED * limits.persisting_cache_bytes:
        return 0
    return config.ahead * limits.persisting_cache_bytes // b_bytes


def _steps(
    few: FewRows, config: SkinnyGpuConfig, limits: Limits, scratch: Scratch
) -> Iterator[Step]:
    """Yield each launch, and note the scratch memory that it needs."""
    a, b, c, slot_a, slot_b = few
    m, n, k = c.rows, c.columns, a.columns
    fit = fitted(config, b)
    blocks = ceil_div(m, fit.rows) * ceil_div(n, fit.strip)
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // (blocks * k), 3):
        batch = batch_of(levels, 3)
        at_once = limits.compute_units * LANES_PER_UNIT // fit.items
        slice_k = slice_of_k(k, at_once // (blocks * batch.matrices), fit.width)
        cuts = ceil_div(k, slice_k)
        apart = math.prod(level.count for level in levels if level.strides[1])
        cached_loads = loads_to_cache(fit, FLOAT_BYTES * apart * n * k, limits)
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
