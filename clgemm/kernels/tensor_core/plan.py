"""The launches of a product on tensor cores: split, multiply, and a fallback. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from clgemm.core.config import FLOAT_BYTES, Limits
from clgemm.core.layout import Layout, Level, batch_levels
from clgemm.core.problem import Problem
from clgemm.core.steps import (
    Argument,
    Element,
    OutlierCounter,
    Plan,
    Slice,
    Slot,
    Step,
    ceil_div,
    operand_in_place,
    round_up,
    slices,
)
from clgemm.kernels.common.family import Fallback
from clgemm.kernels.common.panels import Scratch
from clgemm.kernels.tensor_core.config import (
    LENGTH_BYTES,
    TILE_BYTES,
    TILE_ROWS,
    SingleLaunchConfig,
    TensorVariant,
    WgmmaVariant,
)
from clgemm.kernels.tensor_core.estimate import Cuts

__all__ = ["make_tensor_plan"]

OPERANDS: tuple[Slot, Slot, Slot] = ("a", "b", "c")

# The most bytes of both split operands together; larger products are cut into blocks. A pair of
# 8192 x 8192 matrices fits, in tf32 too.
SCRATCH_BYTES = 3 * 2**29
# The smallest depth of a block of k.
SMALLEST_DEPTH = 4096
# Most multiply-adds of a product in a single launch. Above, separate launches are faster. The
# single launch also needs a compute unit for each tile of its fallback.
LARGEST_SINGLE_LAUNCH = 3 * 2**29
# Most elements of both operands there: it splits with fewer work-items than a launch of its own.
MOST_SPLIT = 2**22
MOST_GROUPS = 2**11 - 1  # work-groups that the kernel of the single launch can count
# Most listed elements per panel of 128 rows or columns; with more, the fallback takes over. With as
# many in every panel, adding their products takes about as long as all others.
LISTED_PER_PANEL = 16
# Work-groups per compute unit that split for the second tier. They seldom have work: then few
# work-groups return sooner than many.
FALLBACK_GROUPS_PER_UNIT = 8


def make_tensor_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    tiers: tuple[TensorVariant, ...],
    fallback: Fallback,
    limits: Limits,
    single_launch: bool = True,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` for batches of one shape, none empty.

    Parameters
    ----------
    a, b, c : Layout
        (*batch, m, k), (*batch, k, n) and (*batch, m, n).
    tiers : tuple of TensorVariant
        The configs to try, in order. Each serves data whose range is too wide for the one before.
        All are launched; those that are not needed return at once.
    fallback : callable
        Plans products for data whose range is too wide for the last of `tiers`, if that one has a
        guard.
    single_launch : bool, optional
        Whether a small product may be a single launch, by a config that is not one of `tiers`.
    """
    m, n, k = c.rows, c.columns, a.columns
    tile_k = min(config.tile_k for config in tiers)
    most_bytes = min(SCRATCH_BYTES // 2, limits.allocation_bytes)
    rows, columns, depth = _blocks(m, n, k, tile_k, most_bytes)
    most_matrices = most_bytes // _packed_bytes(max(rows, columns), depth, tile_k)
    if isinstance(tiers[0], SingleLaunchConfig):
        most_matrices = 1
    steps: list[Step] = []
    scratch, products = Scratch(), 0
    for part in slices(batch_levels(a, b, c), most_matrices, 3, loops=1):
        for n_0, k_0, m_0 in product(range(0, n, columns), range(0, k, depth), range(0, m, rows)):
            sizes = min(rows, m - m_0), min(columns, n - n_0), min(depth, k - k_0)
            origins = (
                part.offsets[0] + m_0 * a.row_stride + k_0 * a.column_stride,
                part.offsets[1] + k_0 * b.row_stride + n_0 * b.column_stride,
                part.offsets[2] + m_0 * c.row_stride + n_0 * c.column_stride,
            )
            blocks = (
                _block(a, part, 0, sizes[0], sizes[2], origins[0]),
                _block(b, part, 1, sizes[2], sizes[1], origins[1]),
                _block(c, part, 2, sizes[0], sizes[1], origins[2]),
            )
            matrices_a, matrices_b = map(_packed_matrices, blocks[:2])
            scratch.reserve("packed_a", matrices_a * _packed_bytes(sizes[0], sizes[2], tile_k))
            scratch.reserve("packed_b", matrices_b * _packed_bytes(sizes[1], sizes[2], tile_k))
            beta: Argument = "beta" if k_0 == 0 else 1.0
            if single_launch and (single := _single_launch_config(tiers, *blocks, limits)):
                steps.append(
                    _single_launch_step(*blocks, origins, beta, single, limits, products, scratch)
                )
                products += single.guard
                continue
            for tier, config in enumerate(tiers):
                counter = OutlierCounter(products, tier)
                steps += _tensor_steps(*blocks, origins, beta, config, limits, counter, scratch)
            if config.guard:
                plan = fallback(Problem(*blocks, "strict"))
                for slot, size in plan.scratch:
                    scratch.reserve(slot, size)
                first = dict(zip("abc", origins, strict=True))
                most = _most_listed(*blocks[:2])
                condition: dict[str, Argument] = {"gate": counter, "gate_most": most}
                steps += (_conditional(step, first, beta, condition) for step in plan.steps)
                products += 1
    return Plan(tuple(steps), tuple(scratch.sizes.items()), products)


def _packed_matrices(x: Layout) -> int:
    """Return how many matrices of a block's batch are packed: a repeated one is packed once."""
    return x.batch[0] if x.strides[0] else 1


def _packed_bytes(rows: int, depth: int, tile_k: int) -> int:
    """Return the bytes of an operand's tiles and of their directory."""
    return ceil_div(rows, TILE_ROWS) * ceil_div(depth, tile_k) * (TILE_BYTES + LENGTH_BYTES)


def _blocks(m: int, n: int, k: int, tile_k: int, most_bytes: int) -> tuple[int, int, int]:
    """Return the rows, columns and depth of blocks whose split operands fit. Cut k first."""

    def too_large(rows: int, depth: int) -> bool:
        return _packed_bytes(rows, depth, tile_k) > most_bytes

    depth = k
    while depth > SMALLEST_DEPTH and too_large(max(m, n), depth):
        depth = max(round_up(ceil_div(depth, 2), 64), SMALLEST_DEPTH)
    sides = []
    for side in (m, n):
        while too_large(side, depth) and side > TILE_ROWS:
            side = round_up(ceil_div(side, 2), 2 * TILE_ROWS)
        sides.append(side)
    return sides[0], sides[1], depth


def _block(x: Layout, part: Slice, operand: int, rows: int, columns: int, origin: int) -> Layout:
    """Return the blocks of a batch's matrices, `origin` elements after the operand's first."""
    (level,) = part.levels or (Level(1, (0, 0, 0)),)
    stride = level.strides[operand]
    address = FLOAT_BYTES * (origin | stride) | x.alignment_bytes
    return Layout((level.count, rows, columns), (stride, *x.strides[-2:]), address & -address)


def _panels(a: Layout, b: Layout) -> int:
    """Return the number of panels of both operands, in all packed matrices."""
    panels_a = _packed_matrices(a) * ceil_div(a.rows, TILE_ROWS)
    return panels_a + _packed_matrices(b) * ceil_div(b.columns, TILE_ROWS)


def _most_listed(a: Layout, b: Layout) -> int:
    """Return how many elements may be listed before the fallback takes over."""
    return LISTED_PER_PANEL * _panels(a, b)


def _least_exponent(k: int, tf32: bool) -> int:
    """Return the least exponent, relative to the scale, of an element that may be split.

    docs/tensor_cores.md has its effect on the error bound.
    """
    if tf32:
        return -50  # the smallest products are still normal numbers
    return max((2 if k < 1024 else 1) - (k.bit_length() - 1), -14)


def _tensor_steps(
    a: Layout,
    b: Layout,
    c: Layout,
    origins: tuple[int, int, int],
    beta: Argument,
    config: TensorVariant,
    limits: Limits,
    counter: OutlierCounter,
    scratch: Scratch,
) -> Iterator[Step]:
    (matrices,), m, n, k = c.batch, c.rows, c.columns, a.columns
    first_a, first_b, first_c = map(Element, OPERANDS, origins)
    operands: dict[str, Argument] = {
        **operand_in_place("a", "a", first_a, a, stride=a.strides[0]),
        **operand_in_place("b", "b", first_b, b.transposed(), stride=b.strides[0]),  # read like A'
        "packed_a": "packed_a",
        "packed_b": "packed_b",
    }
    tiles = _panels(a, b) * ceil_div(k, config.tile_k)
    # Its own counter, that of the next product, and that of the tier before. Without a guard they
    # are not used: any buffer will do.
    count: Slot | OutlierCounter
    count_next: Slot | OutlierCounter
    count_before: Slot | OutlierCounter
    count = count_next = count_before = "packed_a"
    if config.guard:
        product, tier = counter
        count, count_next = counter, OutlierCounter(product + 1, tier)
        count_before = OutlierCounter(product, max(tier - 1, 0))
    sizes: dict[str, Argument] = {"matrices": matrices, "m": m, "n": n, "k": k}
    most = _most_listed(a, b)
    yield Step(
        config.split,
        min(tiles, FALLBACK_GROUPS_PER_UNIT * limits.compute_units) if counter.tier else tiles,
        {
            **sizes,
            "least": _least_exponent(k, config.tf32),
            "most": most,
            **operands,
            "count": count,
            "count_before": count_before,
        },
    )
    cuts = config.cuts(config.tiles(matrices, m, n), k, limits)
    split_k: dict[str, Argument] = {}
    if isinstance(config, WgmmaVariant):
        split_k = _split_k(scratch, cuts)
    yield Step(
        config,
        min(cuts.whole + cuts.all_slices, limits.compute_units),
        {
            **sizes,
            "most": most,
            "alpha": "alpha",
            "beta": beta,
            **operands,
            **operand_in_place("c", "c", first_c, c, stride=c.strides[0]),
            "count": count,
            "count_next": count_next,
            "count_before": count_before,
            **split_k,
        },
    )


def _split_k(scratch: Scratch, cuts: Cuts, *others: Cuts) -> dict[str, Argument]:
    """Return a kernel's arguments for cuts, and reserve the memory of their slices.

    `others` are cuts of the same launch, of which it makes one or the other.
    """
    partial: Slot = "packed_a"  # without slices not used: any buffer will do
    if size := max(each.slices_bytes for each in (cuts, *others)):
        partial = "partial"
        scratch.reserve(partial, size)
    return {
        "whole": cuts.whole,
        "slices": cuts.slices,
        "partial": partial,
        "counters": "counters",
    }


def _single_launch_config(
    tiers: tuple[TensorVariant, ...], a: Layout, b: Layout, c: Layout, limits: Limits
) -> SingleLaunchConfig | None:
    """Return the config of a single launch, or None if separate launches are better."""
    config, m, n, k = tiers[0], a.rows, b.columns, a.columns
    if isinstance(config, SingleLaunchConfig):
        return config
    if not isinstance(config, WgmmaVariant) or len(tiers) > 1 or c.batch[0] > 1:
        return None
    single = SingleLaunchConfig.of(config)
    tiles = single.plain_tiles(m, n)
    if m * n * k > LARGEST_SINGLE_LAUNCH or (m + n) * k > MOST_SPLIT:
        return None
    if tiles > min(limits.compute_units, MOST_GROUPS):
        return None
    return single


def _single_launch_step(
    a: Layout,
    b: Layout,
    c: Layout,
    origins: tuple[int, int, int],
    beta: Argument,
    config: SingleLaunchConfig,
    limits: Limits,
    product: int,
    scratch: Scratch,
) -> Step:
    m, n, k = c.rows, c.columns, a.columns
    cuts = config.cuts(config.tiles(1, m, n), k, limits)
    plain_cuts = config.plain_cuts(m, n, k, limits)
    count: Slot | OutlierCounter
    count_next: Slot | OutlierCounter
    count = count_next = "packed_a"  # without a guard not used: any buffer will do
    if config.guard:
        count, count_next = OutlierCounter(product, 0), OutlierCounter(product + 1, 0)
    first_a, first_b, first_c = map(Element, OPERANDS, origins)
    return Step(
        config,
        min(limits.compute_units, MOST_GROUPS),
        {
            "m": m,
            "n": n,
            "k": k,
            "least": _least_exponent(k, config.tf32),
            "most": _most_listed(a, b),
            "alpha": "alpha",
            "beta": beta,
            **operand_in_place("a", "a", first_a, a),
            **operand_in_place("b", "b", first_b, b.transposed()),  # read like A'
            "packed_a": "packed_a",
            "packed_b": "packed_b",
            **operand_in_place("c", "c", first_c, c),
            "count": count,
            "count_next": count_next,
            **_split_k(scratch, cuts, plain_cuts),
            "plain_whole": plain_cuts.whole,
            "plain_slices": plain_cuts.slices,
        },
    )


def _conditional(
    step: Step, origins: Mapping[str, int], beta: Argument, condition: Mapping[str, Argument]
) -> Step:
    """Return a conditional step of the fallback, moved to its block of the whole product."""

    def placed(argument: Argument) -> Argument:
        if isinstance(argument, Element) and argument.slot in origins:
            return Element(argument.slot, argument.offset + origins[argument.slot])
        return beta if argument == "beta" else argument

    arguments = {name: placed(x) for name, x in step.arguments.items()}
    return replace(step, arguments={**arguments, **condition}, conditional=True)
