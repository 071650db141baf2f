"""The launches of the skinny_cpu family. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from clgemm.core.config import FLOAT_BYTES, Limits
from clgemm.core.layout import Layout, Level, batch_levels
from clgemm.core.steps import (
    LAST_GROUP,
    Element,
    Plan,
    Step,
    batch_of,
    ceil_div,
    operand_at,
    operand_in_place,
    slices,
)
from clgemm.kernels.common.in_place import FewRows, few_rows, slice_of_k
from clgemm.kernels.common.panels import Scratch, own_levels, packed_strides
from clgemm.kernels.pack.plan import PackConfig, pack_step
from clgemm.kernels.skinny_cpu.config import SkinnyCpuConfig
from clgemm.kernels.split_k.plan import product_arguments, target

__all__ = ["make_skinny_plan"]

# Work-groups per compute unit: k is cut into slices until there are this many.
GROUPS_PER_UNIT = 8
# The same where B's columns are contiguous. A work-group takes only the columns that it reads at a
# time. If that makes enough work-groups, k is not cut: long contiguous runs, and one launch.
GROUPS_PER_UNIT_ALONG_K = 2


def make_skinny_plan(
    a: Layout, b: Layout, c: Layout, config: SkinnyCpuConfig, copy: PackConfig, limits: Limits
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` where it `fits_few_rows`.

    Parameters
    ----------
    copy : PackConfig
        The config that makes the few rows dense where the kernel needs that.
    """
    scratch = Scratch()
    steps = tuple(_steps(few_rows(a, b, c), config, copy, limits, scratch))
    return Plan(steps, tuple(scratch.sizes.items()))


def _steps(
    few: FewRows, config: SkinnyCpuConfig, copy: PackConfig, limits: Limits, scratch: Scratch
) -> Iterator[Step]:
    """Yield each launch, and reserve its scratch memory."""
    a, b, c, slot_a, slot_b = few
    m, n, k = c.rows, c.columns, a.columns
    along_k, groups_per_unit = b.column_stride != 1, GROUPS_PER_UNIT
    if along_k:
        config = replace(config, strip=config.vectors * config.width)
        groups_per_unit = GROUPS_PER_UNIT_ALONG_K
    blocks = ceil_div(m, config.rows) * ceil_div(n, config.strip)
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // (blocks * k), 3):
        batch = batch_of(levels, 3)
        wanted = ceil_div(groups_per_unit * limits.compute_units, blocks * batch.matrices)
        slice_k = slice_of_k(k, wanted, config.width)
        cuts = ceil_div(k, slice_k)
        first_a, first_b = Element(slot_a, offsets[0]), Element(slot_b, offsets[1])
        place_a = operand_in_place("a", slot_a, first_a, a)
        if along_k and a.column_stride != 1:
            # Scalar products load vectors along k: the few rows must be dense.
            batch_a = batch_of(own_levels(levels, 0), 1)
            scratch.reserve("packed_a", FLOAT_BYTES * batch_a.matrices * m * k)
            groups = m * ceil_div(k, copy.depth)
            sizes = {"rows": m, "columns": k, "padded_columns": k}
            yield pack_step(copy, sizes, a, batch_a, first_a, ("packed_a", 0), groups)
            packed = zip(levels, packed_strides(levels, 0, m * k), strict=True)
            batch = batch_of(
                tuple(Level(x.count, (stride_a, *x.strides[1:])) for x, stride_a in packed), 3
            )
            place_a = operand_at("a", "packed_a", 0, row=k, column=1)
        place_b = operand_in_place("b", slot_b, first_b, b)
        result = target((m, n, cuts), levels, batch, "beta", c, offsets[2], limits)
        if cuts > 1:
            scratch.reserve("partial", result.partial_bytes)
        sizes = {"m": m, "n": n, "k": k, "slice_k": slice_k}
        arguments = product_arguments(sizes, batch, place_a, place_b, result)
        yield Step(config, blocks * cuts * batch.matrices, arguments)
        yield from result.adding
