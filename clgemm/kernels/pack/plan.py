"""Packing: operands copied into panels, or a matrix row by row. Configs and launches. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig, Launch, multiple, positive, vector, vector_block_of
from clgemm.core.plan import (
    LAST_ITEM,
    Argument,
    Batch,
    Element,
    Plan,
    Slot,
    Step,
    batch_of,
    ceil_div,
    matrices_of,
    slices,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, batch_levels
from clgemm.core.traits import Limits

LARGEST_GROUP = 256  # work-items per work-group where they spread over lanes
ROWS_PER_GROUP = 384  # of A, per work-group that transposes


@dataclass(frozen=True)
class PackConfig(KernelConfig):
    """Copies a matrix into zero-padded panels, transposing as it goes."""

    panel: int  # rows of a panel: tile_m or tile_n of the kernel that reads it
    depth: int  # columns that one work-group copies
    group: int  # work-items per work-group

    family: ClassVar[str] = "pack"
    source: ClassVar[str] = "pack/pack.cl"
    entry: ClassVar[str] = "pack"

    @property
    def local_memory_bytes(self) -> int:
        # The odd pitch keeps a column of the tile from falling into one memory bank.
        return FLOAT_BYTES * self.depth * (self.panel | 1)

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch: what it reads and writes."""
        limits = launch.limits
        if limits.has_vectors:
            copied = launch.groups * self.panel * self.depth
            return copied / limits.cpu_costs.copied / limits.compute_units
        costs = limits.costs
        moved = 2 * FLOAT_BYTES * launch.groups * self.panel * self.depth
        return costs.pack_us + moved / costs.pack_bytes


@dataclass(frozen=True)
class VectorPackConfig(KernelConfig):
    """Packs by vectors, for CPUs. The panels of one block of k are stored together."""

    panel: int  # rows of a panel: tile_m or tile_n of the kernel that reads it
    vector_rows: int  # rows that are copied or transposed together
    vector_columns: int  # columns that are transposed together
    panels: int  # most panels that one work-group packs where it transposes
    prefetch: bool  # prefetch what is written, and what is read where it transposes

    family: ClassVar[str] = "pack_vectors"
    source: ClassVar[str] = "pack/pack_vectors.cl"
    entry: ClassVar[str] = "pack_vectors"
    includes: ClassVar[tuple[str, ...]] = ("pack/vector_panels.cl",)
    planned: ClassVar[frozenset[str]] = frozenset({"PANELS", "STREAMS"})

    @classmethod
    def of(cls, panel: int, prefetch: bool, rows: int = ROWS_PER_GROUP) -> VectorPackConfig:
        """Return a config whose work-groups pack panels of about `rows` rows together."""
        vector_rows, vector_columns = vector_block_of(panel)
        return cls(
            panel, vector_rows, vector_columns, panels=max(1, rows // panel), prefetch=prefetch
        )

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return also the macro for how it writes."""
        return (*super().macros(), ("WRITES", int(self.prefetch)))

    def microseconds(self, launch: Launch) -> float:
        x, limits = launch.arguments, launch.limits
        elements = x["rows"] * x["columns"] * matrices_of(x["counts"])
        return float(elements / limits.cpu_costs.packed / limits.compute_units)

    def problems(self) -> Iterator[str]:
        bad = [*positive(self, "prefetch"), *vector(self, "vector_rows")]
        yield from bad
        if bad:
            return
        yield from multiple(self, "panel", of="vector_rows")
        yield from multiple(self, "vector_columns", of="vector_rows")
        yield from vector(self, "vector_columns")
        if self.vector_columns != self.vector_rows != self.panel:
            yield (
                f"vector_columns={self.vector_columns} differs from "
                f"vector_rows={self.vector_rows}, and panel={self.panel} does too"
            )


@dataclass(frozen=True)
class VectorPackVariant(VectorPackConfig):
    """The config of one launch."""

    streams: bool  # store past the caches, which cannot hold the operand

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return also the macro for how it writes."""
        macros = dict(super().macros())
        return tuple((macros | ({"WRITES": 2} if self.streams else {})).items())


def pack_config(limits: Limits, panel: int) -> PackConfig:
    """Return the config that packs panels of `panel` rows."""
    if limits.has_vectors:
        return PackConfig(panel=panel, depth=64, group=1)
    return PackConfig(panel=panel, depth=16, group=min(LARGEST_GROUP, limits.work_group_size))


def copy_config(limits: Limits) -> PackConfig:
    """Return the config that copies a matrix row by row."""
    group = 1 if limits.has_vectors else min(LARGEST_GROUP, limits.work_group_size)
    return PackConfig(panel=1, depth=256, group=group)


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


@functools.lru_cache(maxsize=1024)
def copy_plan(source: Layout, limits: Limits) -> Plan:
    """Return the launches that copy a to c, a dense row-major batch. Each row is a panel."""
    config = copy_config(limits)
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
