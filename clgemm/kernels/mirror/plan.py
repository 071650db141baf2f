"""The kernel that makes results symmetric: its config, and the launches for a batch. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig, positive
from clgemm.core.plan import (
    LAST_ITEM,
    Argument,
    Element,
    Plan,
    Step,
    batch_of,
    ceil_div,
    operand_in_place,
    slices,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, batch_levels
from clgemm.core.traits import Limits

__all__ = ["MirrorConfig", "MirrorTileConfig", "mirror_plan"]

SIDE, ROWS = 32, 8
SIDE_ON_CPU = 32


@dataclass(frozen=True)
class MirrorConfig(KernelConfig):
    """Copies the upper triangles of square matrices to the lower ones."""

    side: int  # rows and columns of a tile
    rows: int  # rows that a work-group copies at once

    family: ClassVar[str] = "mirror"
    source: ClassVar[str] = "mirror/mirror.cl"
    entry: ClassVar[str] = "mirror"

    @property
    def items(self) -> int:
        return self.side * self.rows

    @property
    def local_memory_bytes(self) -> int:
        return FLOAT_BYTES * self.side * (self.side + 1)

    def problems(self) -> Iterator[str]:
        yield from positive(self)
        if self.side % self.rows:
            yield f"rows={self.rows} does not divide side={self.side}"


@dataclass(frozen=True)
class MirrorTileConfig(KernelConfig):
    """Copies the upper triangles of square matrices to the lower ones, on CPUs."""

    side: int  # rows and columns of a tile

    family: ClassVar[str] = "mirror"
    source: ClassVar[str] = "mirror/mirror_vectors.cl"
    entry: ClassVar[str] = "mirror_tile"

    def problems(self) -> Iterator[str]:
        yield from positive(self)
        if self.side % 16:
            yield f"side={self.side} is not a multiple of 16"


@functools.lru_cache(maxsize=256)
def mirror_plan(c: Layout, limits: Limits) -> Plan:
    """Return the launches that make a batch of square matrices, operand "c", symmetric.

    The upper triangle stays; or the lower one, if elements of a column are closer in memory than
    those of a row.
    """
    if c.row_stride < c.column_stride:  # rows of its transpose are neighbours in memory
        c = c.transposed()
    side, rows = (SIDE_ON_CPU, 1) if limits.has_vectors else (SIDE, ROWS)
    while side * rows > limits.work_group_size and not limits.has_vectors:
        side, rows = (side, rows // 2) if rows > 1 else (side // 2, rows)
    config = MirrorTileConfig(side) if limits.has_vectors else MirrorConfig(side, rows)
    groups = ceil_div(c.rows, side) ** 2
    steps = []
    for offsets, levels in slices(batch_levels(c), max(1, LAST_ITEM // (groups * config.items)), 1):
        batch = batch_of(levels, 1)
        arguments: dict[str, Argument] = {
            "n": c.rows,
            "counts": batch.counts,
            **operand_in_place("c", "c", Element("c", offsets[0]), c, strides=batch.strides[0]),
        }
        steps.append(Step(config, groups * batch.matrices, arguments))
    return Plan(tuple(steps))
