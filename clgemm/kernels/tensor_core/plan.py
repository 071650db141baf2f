"""The launches of a product on tensor cores: split, multiply, and a fallback. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

from clgemm.core.plan import (
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
from clgemm.core.problem import FLOAT_BYTES, Layout, Level, Problem, batch_levels
from clgemm.core.traits import Limits
from clgemm.kernels.common.family import Fallback
from clgemm.kernels.common.panels import PACKED, Scratch
from clgemm.kernels.tensor_core.config import (
    LENGTH_BYTES,
    TILE_BYTES,
    TILE_DEPTH,
    TILE_ROWS,
    Cuts,
    TensorVariant,
    WgmmaVariant,
)

__all__ = ["make_tensor_plan"]

OPERANDS: tuple[Slot, Slot, Slot] = ("a", "b", "c")

# The most bytes of both split operands together; larger products are cut into blocks. A pair of
# 8192 x 8192 matrices fits, in tf32 too.
SCRATCH_BYTES = 3 * 2**29
# The smallest depth of a block of k.
SMALLEST_DEPTH = 4096
MOST_GROUPS = 2**11 - 1  # work-groups that kernels can count
# Most listed elements per panel of 128 rows or columns; with more, the fallback takes over. With as
# many in every panel, adding their products takes about as long as all others.
LISTED_PER_PANEL = 16


def make_tensor_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: TensorVariant,
    fallback: Fallback,
    limits: Limits,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` for batches of one shape, none empty.

    Parameters
    ----------
    a, b, c : Layout
        (*batch, m, k), (*batch, k, n) and (*batch, m, n).
    config : TensorVariant
        The config of the call.
    fallback : callable
        Plans products for data whose range is too wide, if the config has a guard. Those of wgmma
        do not need it: the kernel itself falls back.
    """
    m, n, k = c.rows, c.columns, a.columns
    most_bytes = min(SCRATCH_BYTES // 2, limits.allocation_bytes)
    rows, columns, depth = _blocks(m, n, k, config, most_bytes)
    if min(rows, columns) < max(m, n):  # the tiles of a block do not begin at the diagonal
        config = replace(config, triangle=False)
    most_matrices = most_bytes // _packed_bytes(max(rows, columns), depth, config)
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
            for i in range(1 if config.triangle else 2):
                each = _packed_bytes(sizes[i], sizes[2], config)
                scratch.reserve(PACKED[i], _packed_matrices(blocks[i]) * each)
            beta: Argument = "beta" if k_0 == 0 else 1.0
            counter = OutlierCounter(products)
            products += config.guard
            steps += _tensor_steps(*blocks, origins, beta, config, limits, counter, scratch)
            if config.guard and not isinstance(config, WgmmaVariant):
                plan = fallback(Problem(*blocks, "strict", is_half=config.triangle))
                for slot, size in plan.scratch:
                    scratch.reserve(slot, size)
                first = dict(zip("abc", origins, strict=True))
                most = LISTED_PER_PANEL * _panels(*blocks[:2], config)
                condition: dict[str, Argument] = {"gate": counter, "gate_most": most}
                steps += (_conditional(step, first, beta, condition) for step in plan.steps)
    return scratch.plan(steps, products)


def _packed_matrices(x: Layout) -> int:
    """Return how many matrices of a block's batch are packed: a repeated one is packed once."""
    return x.batch[0] if x.strides[0] else 1


def _packed_bytes(rows: int, depth: int, config: TensorVariant) -> int:
    """Return the bytes of an operand's tiles and of their directory."""
    tiles = ceil_div(rows, TILE_ROWS) * ceil_div(depth, config.packed_depth)
    return tiles * (TILE_BYTES + LENGTH_BYTES)


def _blocks(m: int, n: int, k: int, config: TensorVariant, most_bytes: int) -> tuple[int, int, int]:
    """Return the rows, columns and depth of blocks whose split operands fit. Cut k first."""

    def too_large(rows: int, depth: int) -> bool:
        return _packed_bytes(rows, depth, config) > most_bytes

    depth = k
    while depth > SMALLEST_DEPTH and too_large(max(m, n), depth):
        depth = max(round_up(ceil_div(depth, 2), 64), SMALLEST_DEPTH)
    sides = []
    for side in (m, n):
        while too_large(side, depth) and side > 2 * TILE_ROWS:
            side = round_up(ceil_div(side, 2), 2 * TILE_ROWS)
        sides.append(side)
    return sides[0], sides[1], depth


def _block(x: Layout, part: Slice, operand: int, rows: int, columns: int, origin: int) -> Layout:
    """Return the blocks of a batch's matrices, `origin` elements after the operand's first."""
    (level,) = part.levels or (Level(1, (0, 0, 0)),)
    stride = level.strides[operand]
    address = FLOAT_BYTES * (origin | stride) | x.alignment_bytes
    return Layout((level.count, rows, columns), (stride, *x.strides[-2:]), address & -address)


def _panels(a: Layout, b: Layout, config: TensorVariant) -> int:
    """Return the number of panels of both operands, in all packed matrices."""
    panels_a = _packed_matrices(a) * ceil_div(a.rows, TILE_ROWS)
    if config.triangle:  # A's serve for both
        return panels_a
    return panels_a + _packed_matrices(b) * ceil_div(b.columns, TILE_ROWS)


def least_exponent(k: int) -> int:
    """Return the least exponent, relative to the scale, of an element that may be split in halves.

    docs/tensor_cores.md has its effect on the error bound.
    """
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
        "packed_b": "packed_a" if config.triangle else "packed_b",
    }
    tiles = _panels(a, b, config) * ceil_div(k, TILE_DEPTH)
    counters = _counters(config, counter)
    sizes: dict[str, Argument] = {"matrices": matrices, "m": m, "n": n, "k": k}
    most = LISTED_PER_PANEL * _panels(a, b, config)  # before the fallback takes over
    splitting = {**sizes, "least": least_exponent(k), "most": most, **operands}
    yield Step(config.split, tiles, {**splitting, "count": counters["count"]})
    cuts = config.cuts(config.tiles(matrices, m, n), k, limits)
    groups, split_k = min(cuts.parts, limits.compute_units), {}
    if isinstance(config, WgmmaVariant) and config.guard:
        split_k = _split_k(scratch, cuts, config.plain_cuts(matrices, m, n, k, limits))
        groups = min(limits.compute_units, MOST_GROUPS)  # all split, to fall back
    elif isinstance(config, WgmmaVariant):
        split_k = _split_k(scratch, cuts, cuts)  # without a guard, the last are not used
    yield Step(
        config,
        groups,
        {
            **sizes,
            "most": most,
            "alpha": "alpha",
            "beta": beta,
            **operands,
            **operand_in_place("c", "c", first_c, c, stride=c.strides[0]),
            **counters,
            **split_k,
        },
    )


def _counters(config: TensorVariant, counter: OutlierCounter) -> dict[str, Argument]:
    """Return a kernel's counters: its own, and that of the next product.

    Without a guard they are not used: any buffer will do.
    """
    if not config.guard:
        return {"count": "packed_a", "count_next": "packed_a"}
    return {"count": counter, "count_next": OutlierCounter(counter.product + 1)}


def _split_k(scratch: Scratch, cuts: Cuts, plain: Cuts) -> dict[str, Argument]:
    """Return a kernel's arguments for cuts, and reserve the memory of their slices.

    A launch makes those of `cuts`, or `plain`, those of the plain method.
    """
    partial: Slot = "packed_a"  # without slices not used: any buffer will do
    if size := max(each.slices_bytes for each in (cuts, plain)):
        partial = "partial"
        scratch.reserve(partial, size)
    return {
        "whole": cuts.whole,
        "slices": cuts.slices,
        "partial": partial,
        "counters": "counters",
        "plain_whole": plain.whole,
        "plain_slices": plain.slices,
    }


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
