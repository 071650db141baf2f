"""The launches that pack an operand, or copy a matrix. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from clgemm.core.config import KernelConfig
from clgemm.core.layout import Layout, batch_levels
from clgemm.core.steps import (
    LAST_ITEM,
    Argument,
    Batch,
    Element,
    Plan,
    Slot,
    Step,
    batch_of,
    ceil_div,
    slices,
)
from clgemm.kernels.pack.config import PackConfig

__all__ = ["make_copy_plan", "pack_step"]


def pack_step(
    config: KernelConfig,
    sizes: Mapping[str, int],
    layout: Layout,
    batch: Batch,
    first: Element,
    to: tuple[Slot, int | Element],
    groups: int,
) -> Step:
    """Return the launch that packs an operand's matrices, `groups` work-groups for each.

    Parameters
    ----------
    sizes : mapping of str to int
        `rows`, `columns` and the packing kernel's other sizes, in its order.
    """
    slot, offset = to
    arguments: dict[str, Argument] = {
        **sizes,
        "counts": batch.counts,
        "from": first.slot,
        "from_offset": first,
        "row_stride": layout.row_stride,
        "column_stride": layout.column_stride,
        "from_strides": batch.strides[0],
        "to": slot,
        "to_offset": offset,
    }
    return Step(config, groups * batch.matrices, arguments)


def make_copy_plan(source: Layout, config: PackConfig) -> Plan:
    """Return the launches that copy a to c, a dense row-major batch. Each row is a panel."""
    assert config.panel == 1
    rows, columns = source.rows, source.columns
    groups = ceil_div(columns, config.depth)  # for each row
    most = max(1, LAST_ITEM // (groups * config.items))  # rows of a launch
    steps: list[Step] = []
    copied = 0
    for offsets, levels in slices(batch_levels(source), most // rows, 1):
        batch = batch_of(levels, 1)
        for row in range(0, rows, most):  # more than one launch only for a single matrix
            count = min(most, rows - row)
            first = Element("a", offsets[0] + row * source.row_stride)
            to = Element("c", copied + row * columns)
            sizes = {"rows": count, "columns": columns, "padded_columns": columns}
            steps.append(pack_step(config, sizes, source, batch, first, ("c", to), count * groups))
        copied += batch.matrices * rows * columns
    return Plan(tuple(steps))
