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
    Plan,
    Slice,
    Slot,
    Step,
    Turn,
    ceil_div,
    operand_in_place,
    round_up,
    slices,
)
from clgemm.kernels.common.family import Fallback
from clgemm.kernels.tensor_core.config import (
    LENGTH_BYTES,
    TILE_BYTES,
    TILE_ROWS,
    SingleLaunchConfig,
    TensorVariant,
    WgmmaVariant,
)

__all__ = ["make_tensor_plan"]

OPERANDS: tuple[Slot, Slot, Slot] = ("a", "b", "c")

# Both split operands together stay below this; larger products go in blocks. 8192 x 8192 takes 260
# MiB an operand, in tf32 520.
SCRATCH_BYTES = 3 * 2**29
# The smallest depth that a blocked product cuts k into.
SMALLEST_DEPTH = 4096
# Products of up to so many multiply-adds are made in one launch, if the plain product in it has, or
# with a guard would have, a compute unit for each of its tiles: above, what it saves is less than
# what it is slower by. The kernel counts up to so many work-groups.
LARGEST_AT_ONCE = 3 * 2**29
MOST_GROUPS = 2**11 - 1
# Elements kept aside, for each panel of 128 rows or columns, above which the plain kernel takes
# over: with as many in every panel, adding their products takes about as long as all others.
LISTED_PER_PANEL = 16
# Work-groups for each compute unit that split for a fallback: its work seldom runs, and
# then the fewer return the better.
RESERVE_GROUPS = 8


def make_tensor_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    tiers: tuple[TensorVariant, ...],
    fallback: Fallback,
    limits: Limits,
    at_once: bool = True,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` for batches of one shape, none empty.

    Parameters
    ----------
    a, b, c : Layout
        (*batch, m, k), (*batch, k, n) and (*batch, m, n).
    tiers : tuple of TensorVariant
        Each makes the products whose elements are too far apart for the one before. Their launches
        are there in any case, and return at once where they are not needed.
    fallback : callable
        Plans what is too far apart for the last of `tiers`, if that one guards.
    at_once : bool, optional
        Whether small products may be made in one launch, which is not by a config of `tiers` then.
    """
    m, n, k = c.rows, c.columns, a.columns
    tile_k = min(config.tile_k for config in tiers)
    most_bytes = min(SCRATCH_BYTES // 2, limits.allocation_bytes)
    rows, columns, depth = _blocks(m, n, k, tile_k, most_bytes)
    together = most_bytes // _packed_bytes(max(rows, columns), depth, tile_k)
    if isinstance(tiers[0], SingleLaunchConfig):
        together = 1
    steps: list[Step] = []
    bytes_a, bytes_b, partial, turns = 0, 0, 0, 0
    for part in slices(batch_levels(a, b, c), together, 3, loops=1):
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
            own = _own_matrices(blocks[0]), _own_matrices(blocks[1])
            bytes_a = max(bytes_a, own[0] * _packed_bytes(sizes[0], sizes[2], tile_k))
            bytes_b = max(bytes_b, own[1] * _packed_bytes(sizes[1], sizes[2], tile_k))
            beta: Argument = "beta" if k_0 == 0 else 1.0
            if at_once and (whole := _at_once(tiers, *blocks, limits)) is not None:
                steps.append(_step_at_once(*blocks, origins, beta, whole, limits, turns))
                turns += whole.guard
                continue
            for tier, config in enumerate(tiers):
                turn = Turn(turns, tier)
                steps += _tensor_steps(*blocks, origins, beta, config, limits, turn)
            if config.guard:
                plan = fallback(Problem(*blocks, "strict"))
                needs = dict(plan.scratch)
                bytes_a = max(bytes_a, needs.pop("packed_a", 0))
                bytes_b = max(bytes_b, needs.pop("packed_b", 0))
                partial = max(partial, needs.pop("partial", 0))
                assert not needs
                first = dict(zip("abc", origins, strict=True))
                gate: dict[str, Argument] = {"gate": turn, "gate_most": _most(*blocks[:2])}
                steps += (_gated(step, first, beta, gate) for step in plan.steps)
                turns += 1
    scratch: list[tuple[Slot, int]] = [("packed_a", bytes_a), ("packed_b", bytes_b)]
    scratch += [("partial", partial)] * (partial > 0)
    return Plan(tuple(steps), tuple(scratch), turns)


def _own_matrices(x: Layout) -> int:
    """Return how many matrices of a block's batch are packed: repeated ones are once."""
    return x.batch[0] if x.strides[0] else 1


def _packed_bytes(rows: int, depth: int, tile_k: int) -> int:
    """Return what an operand's tiles and their directory take."""
    return ceil_div(rows, TILE_ROWS) * ceil_div(depth, tile_k) * (TILE_BYTES + LENGTH_BYTES)


def _blocks(m: int, n: int, k: int, tile_k: int, most_bytes: int) -> tuple[int, int, int]:
    """Return rows, columns and depth of blocks whose split operands fit: k is cut first."""

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
    """Return the blocks of a batch's matrices, `origin` elements from where the operand begins."""
    (level,) = part.levels or (Level(1, (0, 0, 0)),)
    stride = level.strides[operand]
    address = FLOAT_BYTES * (origin | stride) | x.alignment_bytes
    return Layout((level.count, rows, columns), (stride, *x.strides[-2:]), address & -address)


def _panels(a: Layout, b: Layout) -> int:
    """Return the panels of both operands, of all matrices that are packed."""
    panels_a = _own_matrices(a) * ceil_div(a.rows, TILE_ROWS)
    return panels_a + _own_matrices(b) * ceil_div(b.columns, TILE_ROWS)


def _most(a: Layout, b: Layout) -> int:
    return LISTED_PER_PANEL * _panels(a, b)


def _least(k: int, tf32: bool) -> int:
    """Return the power of two, over its scale, from which on an element may be split.

    docs/tensor_cores.md says what that does to the bound.
    """
    if tf32:
        return -50  # the least products are normal numbers
    return max((2 if k < 1024 else 1) - (k.bit_length() - 1), -14)


def _tensor_steps(
    a: Layout,
    b: Layout,
    c: Layout,
    origins: tuple[int, int, int],
    beta: Argument,
    config: TensorVariant,
    limits: Limits,
    counter: Turn,
) -> Iterator[Step]:
    (matrices,), m, n, k = c.batch, c.rows, c.columns, a.columns
    first_a, first_b, first_c = map(Element, OPERANDS, origins)
    operands: dict[str, Argument] = {
        **operand_in_place("a", "a", first_a, a, stride=a.strides[0]),
        **operand_in_place("b", "b", first_b, b.transposed(), stride=b.strides[0]),  # like A'
        "packed_a": "packed_a",
        "packed_b": "packed_b",
    }
    tiles = _panels(a, b) * ceil_div(k, config.tile_k)
    # Its own counter, the next product's, that of the tier before; any buffers if nothing counts.
    own: Slot | Turn
    following: Slot | Turn
    before: Slot | Turn
    own = following = before = "packed_a"
    if config.guard:
        product, tier = counter
        own, following, before = counter, Turn(product + 1, tier), Turn(product, max(tier - 1, 0))
    sizes: dict[str, Argument] = {"matrices": matrices, "m": m, "n": n, "k": k}
    most = _most(a, b)
    yield Step(
        config.split,
        min(tiles, RESERVE_GROUPS * limits.compute_units) if counter.tier else tiles,
        {
            **sizes,
            "least": _least(k, config.tf32),
            "most": most,
            **operands,
            "count": own,
            "count_before": before,
        },
    )
    tiles = matrices * ceil_div(m, config.tile_m) * ceil_div(n, config.tile_columns)
    yield Step(
        config,
        min(tiles, limits.compute_units),
        {
            **sizes,
            "most": most,
            "alpha": "alpha",
            "beta": beta,
            **operands,
            **operand_in_place("c", "c", first_c, c, stride=c.strides[0]),
            "count": own,
            "count_next": following,
            "count_before": before,
        },
    )


def _at_once(
    tiers: tuple[TensorVariant, ...], a: Layout, b: Layout, c: Layout, limits: Limits
) -> SingleLaunchConfig | None:
    """Return the config that does everything in one launch, if that is the way."""
    config, m, n, k = tiers[0], a.rows, b.columns, a.columns
    if isinstance(config, SingleLaunchConfig):
        return config
    if not isinstance(config, WgmmaVariant) or len(tiers) > 1 or c.batch[0] > 1:
        return None
    tiles = ceil_div(m, SingleLaunchConfig.plain_m) * ceil_div(n, SingleLaunchConfig.plain_n)
    if m * n * k > LARGEST_AT_ONCE or tiles > min(limits.compute_units, MOST_GROUPS):
        return None
    return SingleLaunchConfig.of(config)


def _step_at_once(
    a: Layout,
    b: Layout,
    c: Layout,
    origins: tuple[int, int, int],
    beta: Argument,
    config: SingleLaunchConfig,
    limits: Limits,
    product: int,
) -> Step:
    m, n, k = c.rows, c.columns, a.columns
    own: Slot | Turn
    following: Slot | Turn
    own = following = "packed_a"  # any buffer if nothing counts
    if config.guard:
        own, following = Turn(product, 0), Turn(product + 1, 0)
    first_a, first_b, first_c = map(Element, OPERANDS, origins)
    return Step(
        config,
        min(limits.compute_units, MOST_GROUPS),
        {
            "m": m,
            "n": n,
            "k": k,
            "least": _least(k, config.tf32),
            "most": _most(a, b),
            "alpha": "alpha",
            "beta": beta,
            **operand_in_place("a", "a", first_a, a),
            **operand_in_place("b", "b", first_b, b.transposed()),  # read like A', rows k deep
            "packed_a": "packed_a",
            "packed_b": "packed_b",
            **operand_in_place("c", "c", first_c, c),
            "count": own,
            "count_next": following,
            "counters": "counters",
        },
    )


def _gated(
    step: Step, origins: Mapping[str, int], beta: Argument, gate: Mapping[str, Argument]
) -> Step:
    """Return a step of a block's own plan in its place in the whole, behind the gate."""

    def placed(argument: Argument) -> Argument:
        if isinstance(argument, Element) and argument.slot in origins:
            return Element(argument.slot, argument.offset + origins[argument.slot])
        return beta if argument == "beta" else argument

    arguments = {name: placed(x) for name, x in step.arguments.items()}
    return replace(step, arguments={**arguments, **gate}, gated=True)
