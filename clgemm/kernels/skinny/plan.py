"""The steps of the skinny family: an operand of a few rows, the other read where it lies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from clgemm.core.config import FLOAT_BYTES, Limits
from clgemm.core.layout import Layout, Level, batch_levels
from clgemm.core.steps import (
    LAST_GROUP,
    LONGEST_SUM,
    Element,
    Plan,
    Side,
    Slot,
    Step,
    ceil_div,
    operand_at,
    operand_in_place,
    round_up,
    slices,
    stack_of,
    widest_load,
)
from clgemm.kernels.common.panels import own_levels, packed_strides
from clgemm.kernels.pack.config import PackConfig
from clgemm.kernels.pack.plan import pack_step
from clgemm.kernels.skinny.config import HINTED_WIDTH, SkinnyConfig, SkinnyLanesConfig
from clgemm.kernels.split_k.plan import target

__all__ = ["MOST_ROWS", "fits_skinny", "make_skinny_plan"]

MOST_ROWS = 8
# k is cut where C alone has too little work for every compute unit, but into no shorter slices.
GROUPS_PER_UNIT = 8
SMALLEST_SLICE = 256
# Where B's columns lie along its memory, work-groups read as few of them as they do at a time, and
# all of each if that makes so many work-groups: long runs, and one launch.
GROUPS_PER_UNIT_ALONG_K = 2
# Where work-items spread over lanes, slices give each compute unit so many of them at most: to cut
# k into more work-groups than run at the same time cost an H200 5 us of 32 at 1 x 3072 x 3072.
LANES_PER_UNIT = 1024
# Of matrices no larger than so many times what is kept of larger ones, plain loads find most in the
# last cache.
MOSTLY_KEPT = 1.5
# They go down columns as many abreast as touch 512 bytes, in smaller work-groups, each of whose
# work-items brings so many floats of the few rows to local memory at a time.
ABREAST_ALONG_K, GROUP_ALONG_K, CHUNK_ALONG_K, AHEAD_ALONG_K = 32, 256, 2, 4


def fits_skinny(a: Layout, b: Layout, c: Layout) -> bool:
    """Tell whether one operand has few rows and the other lies as the kernel reads it."""
    a, b, c, _ = _turned(a, b, c)
    return c.rows <= MOST_ROWS and 1 in (b.column_stride, b.row_stride)


def _turned(a: Layout, b: Layout, c: Layout) -> tuple[Layout, Layout, Layout, bool]:
    """Return the product with the shorter side as rows, and whether that is its transpose."""
    if c.rows <= c.columns:
        return a, b, c, False
    return b.transposed(), a.transposed(), c.transposed(), True


def make_skinny_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: SkinnyConfig | SkinnyLanesConfig,
    copy: PackConfig | None,
    limits: Limits,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` where `fits_skinny`.

    Parameters
    ----------
    copy : PackConfig, optional
        How the few rows are made dense where a `SkinnyConfig` wants them so; the other takes them
        as they lie.
    """
    scratch: dict[Slot, int] = {}
    steps = tuple(_steps(*_turned(a, b, c), config, copy, limits, scratch))
    return Plan(steps, tuple(scratch.items()))


def fitted(config: SkinnyLanesConfig, b: Layout) -> SkinnyLanesConfig:
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
        return replace(config, along_k=False, width=width, abreast=abreast, ahead=ahead)
    group = min(config.group, GROUP_ALONG_K)
    most = CHUNK_ALONG_K * group // config.rows
    chunk = max(width, min(config.chunk or most, most))
    abreast = min(ABREAST_ALONG_K, group)
    return replace(
        config,
        along_k=True,
        width=width,
        group=group,
        abreast=abreast,
        chunk=chunk // width * width,
        ahead=config.ahead if config.chunk else AHEAD_ALONG_K,
    )


def kept_loads(config: SkinnyLanesConfig, b_bytes: int, limits: Limits) -> int:
    """Return how many of the loads under way are of what stays in the last cache.

    As large a part of B as stays there; none where most of B does anyway, or hardly any would.
    """
    if config.width != HINTED_WIDTH or b_bytes < MOSTLY_KEPT * limits.kept_bytes:
        return 0
    return config.ahead * limits.kept_bytes // b_bytes


def _steps(
    a: Layout,
    b: Layout,
    c: Layout,
    turned: bool,
    config: SkinnyConfig | SkinnyLanesConfig,
    copy: PackConfig | None,
    limits: Limits,
    scratch: dict[Slot, int],
) -> Iterator[Step]:
    """Yield each launch, and note the scratch memory that it needs."""
    m, n, k = c.rows, c.columns, a.columns
    slot_a: Side = "b" if turned else "a"
    slot_b: Side = "a" if turned else "b"
    lanes, along_k = isinstance(config, SkinnyLanesConfig), b.column_stride != 1
    if isinstance(config, SkinnyLanesConfig):
        config = fitted(config, b)
    elif along_k:
        config = replace(config, strip=config.vectors * config.width)
    blocks = ceil_div(m, config.rows) * ceil_div(n, config.strip)
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // (blocks * k), 3):
        stack = stack_of(levels, 3)
        if lanes:
            at_once = limits.compute_units * LANES_PER_UNIT // config.items
            wanted = at_once // (blocks * stack.matrices)
        else:
            each = GROUPS_PER_UNIT_ALONG_K if along_k else GROUPS_PER_UNIT
            wanted = ceil_div(each * limits.compute_units, blocks * stack.matrices)
        slice_k = ceil_div(k, max(1, min(wanted, k // SMALLEST_SLICE), ceil_div(k, LONGEST_SUM)))
        slice_k = round_up(slice_k, config.width)  # vectors may lie along k, and begin with a slice
        cuts = ceil_div(k, slice_k)
        first_a, first_b = Element(slot_a, offsets[0]), Element(slot_b, offsets[1])
        place_a = operand_in_place("a", slot_a, first_a, a)
        if copy is not None and along_k and a.column_stride != 1:
            # Scalar products by vectors want the few rows dense.
            own = stack_of(own_levels(levels, 0), 1)
            scratch["packed_a"] = max(
                scratch.get("packed_a", 0), FLOAT_BYTES * own.matrices * m * k
            )
            groups = m * ceil_div(k, copy.depth)
            sizes = {"rows": m, "columns": k, "padded_columns": k}
            yield pack_step(copy, sizes, a, own, first_a, ("packed_a", 0), groups)
            strides = packed_strides(levels, 0, m * k)
            every = zip(levels, strides, strict=True)
            stack = stack_of(
                tuple(Level(x.count, (own_stride, *x.strides[1:])) for x, own_stride in every), 3
            )
            place_a = operand_at("a", "packed_a", 0, row=k, column=1)
        if isinstance(config, SkinnyLanesConfig):
            apart = math.prod(level.count for level in levels if level.strides[1])
            config = replace(config, kept=kept_loads(config, FLOAT_BYTES * apart * n * k, limits))
        pieces = (blocks * stack.matrices, config.rows * config.strip) if lanes else None
        result = target((m, n, cuts), levels, stack, "beta", c, offsets[2], limits, pieces)
        if isinstance(config, SkinnyLanesConfig):
            config = replace(config, gathers=result.gathers)
        if cuts > 1:
            scratch["partial"] = max(scratch.get("partial", 0), result.partial_bytes)
        yield Step(
            config,
            blocks * cuts * stack.matrices,
            {
                "m": m,
                "n": n,
                "k": k,
                "slice_k": slice_k,
                "counts": stack.counts,
                **result.scales,
                **place_a,
                "a_strides": stack.strides[0],
                **operand_in_place("b", slot_b, first_b, b, strides=stack.strides[1]),
                **result.to,
            },
        )
        yield from result.adding
