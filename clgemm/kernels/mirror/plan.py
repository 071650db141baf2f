"""The kernels of symmetric products: one mirrors a result, one updates triangles of C. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from clgemm.core.config import KernelConfig, Launch
from clgemm.core.plan import (
    LAST_ITEM,
    Argument,
    Element,
    Plan,
    Step,
    batch_of,
    ceil_div,
    matrices_of,
    operand_in_place,
    slices,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, Triangles, batch_levels
from clgemm.core.traits import Limits

SIDE = 32  # of tiles on CPUs, and of those that are updated
MIRRORED_SIDE, MIRRORED_ROWS = 64, 4  # 1.6 times as fast as 32 and 8 at 16384 (an H200)
GROUP = 256  # work-items of the kernel that updates triangles


@dataclass(frozen=True)
class MirrorConfig(KernelConfig):
    """Copies the upper triangles of square matrices to the lower ones."""

    side: int  # rows and columns of a tile
    rows: int  # rows that a work-group copies at once
    element_bytes: int = FLOAT_BYTES  # a power of two

    family: ClassVar[str] = "mirror"
    source: ClassVar[str] = "mirror/mirror.cl"
    entry: ClassVar[str] = "mirror"

    @property
    def items(self) -> int:
        return self.side * self.rows

    @property
    def local_memory_bytes(self) -> int:
        return self.element_bytes * self.side * (self.side + 1)

    def microseconds(self, launch: Launch) -> float:
        n, matrices = launch.arguments["n"], matrices_of(launch.arguments["counts"])
        return float(self.element_bytes * n**2 * matrices / launch.limits.costs.memory_bytes)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
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
        yield from super().problems()
        if self.side % 16:
            yield f"side={self.side} is not a multiple of 16"


@dataclass(frozen=True)
class TrianglesConfig(KernelConfig):
    """Adds a block of a symmetric product, in scratch memory, to triangles of C."""

    side: int  # rows and columns of a tile
    group: int  # work-items
    upper: bool  # the triangles that are updated
    lower: bool

    family: ClassVar[str] = "mirror"
    source: ClassVar[str] = "mirror/triangles.cl"
    entry: ClassVar[str] = "update_triangles"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl",)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.group & (self.group - 1):
            yield f"group={self.group} is not a power of two"
        if not (self.upper or self.lower):
            yield "neither triangle is updated"


def triangles_plan(shape: tuple[int, int], c: Layout, triangles: Triangles, limits: Limits) -> Plan:
    """Return the launch that adds a block of a symmetric product to C.

    Parameters
    ----------
    shape : tuple of int
        The rows and columns of the block, which is dense in the scratch memory "product". The
        diagonal begins with its first element; for "lower", it ends with its last one.
    c : Layout
        A matrix that begins with the block's first element.
    """
    rows, columns = shape
    most = min(GROUP, limits.work_group_size)
    group = 1 if limits.has_vectors else 2 ** (most.bit_length() - 1)
    config = TrianglesConfig(SIDE, group, triangles != "lower", triangles != "upper")
    arguments: dict[str, Argument] = {
        "rows": rows,
        "columns": columns,
        "beta": "beta",
        "p": "product",
        **operand_in_place("c", "c", Element("c", 0), c),
    }
    return Plan((Step(config, ceil_div(rows, SIDE) * ceil_div(columns, SIDE), arguments),))


@functools.lru_cache(maxsize=256)
def mirror_plan(c: Layout, limits: Limits, element_bytes: int = FLOAT_BYTES) -> Plan:
    """Return the launches that make a batch of square matrices, operand "c", symmetric.

    The upper triangle stays; or the lower one, if elements of a column are closer in memory than
    those of a row. On CPUs elements are floats.
    """
    if abs(c.row_stride) < abs(c.column_stride):  # rows of its transpose are neighbours in memory
        c = c.transposed()
    config: MirrorConfig | MirrorTileConfig = MirrorTileConfig(SIDE)
    if not limits.has_vectors:
        config = MirrorConfig(MIRRORED_SIDE, MIRRORED_ROWS, element_bytes)
        while any(config.problems_on(limits)):
            config = replace(config, side=config.side // 2, rows=max(1, config.rows // 2))
    groups = ceil_div(c.rows, config.side) ** 2
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
