"""Split-k: where a kernel stores, and the launch that adds up partial products. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from clgemm.core.config import KernelConfig, Launch, multiple, vector
from clgemm.core.costs import Costs
from clgemm.core.plan import (
    COUNTERS,
    Argument,
    Batch,
    Element,
    Step,
    batch_of,
    ceil_div,
    matrices_of,
    operand_at,
    operand_in_place,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, Level
from clgemm.core.traits import Limits

# More slices than the first number are shared by the second number of work-items, on lanes.
REDUCE_PARTS = (48, 32), (16, 8)


@dataclass(frozen=True)
class ReduceConfig(KernelConfig):
    """Adds up the partial products of split-k."""

    group: int  # work-items per work-group
    parts: int  # of them, those that share the slices of one element of C
    width: int  # columns per work-item, one vector
    aligned: bool = False  # the rows of partial products are whole vectors

    family: ClassVar[str] = "reduce"
    source: ClassVar[str] = "split_k/reduce.cl"
    entry: ClassVar[str] = "reduce"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl",)

    @property
    def local_memory_bytes(self) -> int:
        return FLOAT_BYTES * self.group * self.width

    def microseconds(self, launch: Launch) -> float:
        arguments = launch.arguments
        elements = arguments["m"] * arguments["n"] * matrices_of(arguments["counts"])
        limits = launch.limits
        if limits.has_vectors:
            added = elements * arguments["slices"]
            return float(added / limits.cpu_costs.added / limits.compute_units)
        return reduce_us(elements, arguments["slices"], limits.costs)

    def problems(self) -> Iterator[str]:
        bad = list(super().problems())
        yield from bad
        yield from vector(self, "width")
        if not bad:
            yield from multiple(self, "group", of="parts")


def reduce_us(elements: int, slices: int, costs: Costs) -> float:
    """Return the expected time of a launch that adds up `slices` of so many elements."""
    read, written = elements * slices / costs.reduce_elements, elements / costs.reduced_elements
    return costs.reduce_us + read + written


class Target(NamedTuple):
    """Where a kernel stores: in C, or in partial products, one for each slice of k.

    With fused split-k, the kernel itself adds partial products up.
    """

    scales: Mapping[str, Argument]  # the kernel's arguments `alpha` and `beta`
    to: Mapping[str, Argument]  # from `c` to `c_strides`; if fused, `slices_out` and `counters` too
    partial_bytes: int  # of the scratch memory "partial"
    adding: tuple[Step, ...]  # the launch that adds up partial products, if another one does
    fused_split_k: bool = False


def target(
    sizes: tuple[int, int, int],
    levels: tuple[Level, ...],
    batch: Batch,
    beta: Argument,
    c: Layout,
    first: int,
    limits: Limits,
    fused: tuple[int, int] | None = None,
) -> Target:
    """Return where a product is stored.

    Parameters
    ----------
    sizes : tuple of int
        m, n and the number of slices of k.
    levels, batch
        The loops over the batch, of A, B and C; the same as kernel arguments.
    beta : float or "beta"
        The factor of C.
    first : int
        Elements from the first of `c` to the first of the product.
    fused : tuple of int, optional
        For a kernel with fused split-k: its work-groups per slice, and the elements of C per
        work-group.
    """
    m, n, cuts = sizes
    scales: dict[str, Argument] = {"alpha": "alpha", "beta": beta}
    start, strides = Element("c", first), batch.strides[2]
    to = operand_in_place("c", "c", start, c, slice=0, strides=strides)
    if cuts == 1:
        return Target(scales, to, 0, ())
    if fused is not None and limits.fused_split_k and fused[0] <= COUNTERS * limits.compute_units:
        to |= {"slices_out": "partial", "counters": "counters"}
        return Target(scales, to, FLOAT_BYTES * cuts * math.prod(fused), (), fused_split_k=True)
    dense = batch_of(_dense_levels(levels, cuts * m * n), 1)
    place = operand_in_place("c", "c", start, c, strides=strides)
    adding = _reduce_step(sizes, batch, scales, place, limits)
    scales = {"alpha": 1.0, "beta": 0.0}
    to = operand_at("c", "partial", 0, row=n, column=1, slice=m * n, strides=dense.strides[0])
    return Target(scales, to, FLOAT_BYTES * batch.matrices * cuts * m * n, (adding,))


def product_arguments(
    sizes: Mapping[str, int],
    batch: Batch,
    a: Mapping[str, Argument],
    b: Mapping[str, Argument],
    result: Target,
    extra: Mapping[str, Argument] | None = None,
) -> dict[str, Argument]:
    """Return the arguments of a kernel that multiplies, in the order of its parameters.

    Parameters
    ----------
    sizes : mapping of str to int
        `m`, `n`, `k`, `slice_k`, and the other sizes that the kernel takes next.
    a, b : mapping
        Where the operands are, without their batch strides.
    extra : mapping, optional
        The arguments between those of B and those of C.
    """
    return {
        **sizes,
        "counts": batch.counts,
        **result.scales,
        **a,
        "a_strides": batch.strides[0],
        **b,
        "b_strides": batch.strides[1],
        **(extra or {}),
        **result.to,
    }


def _reduce_config(slices: int, limits: Limits) -> ReduceConfig:
    """Return the config that adds up slices: by vectors, or by many work-items on lanes."""
    if limits.has_vectors:
        return ReduceConfig(group=1, parts=1, width=limits.vector_width)
    group = 1
    while group < min(256, limits.work_group_size // 2 + 1):
        group *= 2
    parts = next((parts for least, parts in REDUCE_PARTS if slices > least), 1)
    return ReduceConfig(group=group, parts=min(parts, group), width=4)


def _reduce_step(
    sizes: tuple[int, int, int],
    batch: Batch,
    scales: Mapping[str, Argument],
    to: Mapping[str, Argument],
    limits: Limits,
) -> Step:
    """Return the launch that adds up the slices of a product in the scratch memory "partial"."""
    m, n, cuts = sizes
    config = _reduce_config(cuts, limits)
    config = replace(config, aligned=n % config.width == 0)
    units = m * ceil_div(n, config.width)
    groups = batch.matrices * ceil_div(units, config.group // config.parts)
    arguments: dict[str, Argument] = {"m": m, "n": n, "slices": cuts, "counts": batch.counts}
    arguments |= {**scales, "from": "partial", **to}
    return Step(config, groups, arguments)


def _dense_levels(levels: tuple[Level, ...], matrix: int) -> tuple[Level, ...]:
    """Return the loops over a dense batch of matrices with `matrix` elements each."""
    dense: list[Level] = []
    for level in reversed(levels):
        dense.insert(0, Level(level.count, (matrix,)))
        matrix *= level.count
    return tuple(dense)
