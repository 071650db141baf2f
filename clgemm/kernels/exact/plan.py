"""Kernels for integers, booleans and float16 on CPUs: their configs and launches. Pure.

Both operands are packed into panels of lanes: 16 bits where at most the low 16 are wanted, else 32
or 64, floats for float16, and for booleans words of 32 steps of k. Then each work-item keeps a tile
of C in registers. Sums of integers wrap around as NumPy's do, so a long k may be cut; float16 adds
up in float32 and rounds once, so there it may not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from clgemm.core.config import KernelConfig, positive, vector
from clgemm.core.plan import (
    Argument,
    Batch,
    Element,
    Plan,
    Slice,
    Step,
    batch_of,
    ceil_div,
    operand_in_place,
    slices,
)
from clgemm.core.problem import Layout, batch_levels, folded
from clgemm.core.traits import Limits
from clgemm.kernels.common.panels import PACKED, SIDES, Scratch
from clgemm.kernels.sources import sources_hash

__all__ = ["DTYPES", "ExactPackConfig", "ExactProductConfig", "Types", "exact_plan", "kernels"]

# What is loaded, by NumPy's kind and size: the numbers of types.cl.
NAMES = "b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2"
DTYPES = {name: number for number, name in enumerate(NAMES)}
# For each result: its lanes, the number of what is stored, and the bytes of both.
BITS, SHORT, INT, LONG, FLOAT = range(5)
LANE_BYTES = (4, 2, 4, 8, 4)
RESULTS = {
    "b1": (BITS, 0),
    **dict.fromkeys(("i1", "u1"), (SHORT, 1)),
    **dict.fromkeys(("i2", "u2"), (SHORT, 2)),
    **dict.fromkeys(("i4", "u4"), (INT, 3)),
    **dict.fromkeys(("i8", "u8"), (LONG, 4)),
    "f2": (FLOAT, 5),
}
WORD = 32  # steps of k in a word of bits
DEPTH = 4096  # steps of k in one sum of a panel, which stays in the second-level cache
PANEL_BYTES = 2**26  # of each packed operand
LAUNCH_WORK = 2**33  # multiply-adds of a launch at most: two cores take a fifth of a second


class Types(NamedTuple):
    """The dtypes of a product, by NumPy's kind and size: ``"i4"`` is int32."""

    a: str
    b: str
    c: str


@dataclass(frozen=True)
class ExactPackConfig(KernelConfig):
    """Packs a matrix into panels of lanes."""

    loaded: int
    lane: int
    panel: int  # rows
    chunk: int  # steps over k of a work-item

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/pack.cl"
    entry: ClassVar[str] = "exact_pack"
    includes: ClassVar[tuple[str, ...]] = ("exact/types.cl",)

    def problems(self) -> Iterator[str]:
        yield from positive(self, "loaded", "lane")


@dataclass(frozen=True)
class ExactProductConfig(KernelConfig):
    """Multiplies panels of lanes."""

    lane: int
    stored: int
    rows: int  # of C in registers
    vectors: int  # of each row
    width: int  # lanes of a vector

    family: ClassVar[str] = "exact"
    source: ClassVar[str] = "exact/product.cl"
    entry: ClassVar[str] = "exact_product"
    includes: ClassVar[tuple[str, ...]] = ("exact/types.cl",)

    @property
    def columns(self) -> int:
        """Columns of C in registers."""
        return self.vectors * self.width

    def problems(self) -> Iterator[str]:
        yield from positive(self, "lane", "stored")
        yield from vector(self, "width")


@functools.cache
def kernels() -> str:
    """Return a hash of the sources of these kernels."""
    return sources_hash(ExactPackConfig, ExactProductConfig)


def product_config(types: Types, limits: Limits) -> ExactProductConfig:
    """Return the config for a processor: as large a tile as its registers hold."""
    lane, stored = RESULTS[types.c]
    width = min(16, limits.vector_width * 4 // LANE_BYTES[lane])
    # AVX-512 and others with long vectors have 32 registers, those with shorter ones 16.
    rows = 12 if limits.vector_width >= 16 else 6
    return ExactProductConfig(lane, stored, rows, 2, max(2, width))


class _Sizes(NamedTuple):
    """How far a block of a product reaches along m, n and k."""

    m: int
    n: int
    k: int


@functools.lru_cache(maxsize=1024)
def exact_plan(a: Layout, b: Layout, c: Layout, types: Types, limits: Limits) -> Plan | None:
    """Return the launches of ``C = A B``; None if it is too long for the memory of panels.

    Parameters
    ----------
    a, b, c : Layout
        Batches of matrices, with strides in elements. Those of `a` and `b` broadcast to `c`.
    """
    a, b, c = folded(a.broadcast(c.batch), b.broadcast(c.batch), c)
    config = product_config(types, limits)
    packs = tuple(
        ExactPackConfig(DTYPES[each], config.lane, panel, 64)
        for each, panel in ((types.a, config.rows), (types.b, config.columns))
    )
    whole = _Sizes(c.rows, c.columns, a.columns)
    size = _block(whole, config)
    if size is None:
        return None
    bytes_a = _panel_bytes(size.m, size.k, config.rows, config.lane)
    bytes_b = _panel_bytes(size.n, size.k, config.columns, config.lane)
    work = size.m * size.n * size.k
    most = max(1, min(PANEL_BYTES // max(bytes_a, bytes_b), LAUNCH_WORK // max(work, 1)))
    steps, scratch = [], Scratch()
    for part in slices(batch_levels(a, b, c), most, 3):
        batch = batch_of(part.levels, 3)
        scratch.reserve("packed_a", batch.matrices * bytes_a)
        scratch.reserve("packed_b", batch.matrices * bytes_b)
        for column in range(0, whole.n, size.n):
            for p in range(0, whole.k, size.k):
                depth = min(size.k, whole.k - p)
                n = min(size.n, whole.n - column)
                at = part.offsets[1] + p * b.row_stride + column * b.column_stride
                steps.append(_pack(1, packs[1], b.transposed(), n, depth, at, batch))
                for row in range(0, whole.m, size.m):
                    m = min(size.m, whole.m - row)
                    at = part.offsets[0] + row * a.row_stride + p * a.column_stride
                    steps.append(_pack(0, packs[0], a, m, depth, at, batch))
                    steps.append(_multiply(config, c, (row, column, p), (m, n, depth), part, batch))
    return scratch.plan(steps)


def _depth(k: int, lane: int) -> int:
    """Return the steps of panels over k."""
    return ceil_div(k, WORD) if lane == BITS else k


def _panel_bytes(rows: int, k: int, panel: int, lane: int) -> int:
    return ceil_div(rows, panel) * panel * _depth(k, lane) * LANE_BYTES[lane]


def _block(whole: _Sizes, config: ExactProductConfig) -> _Sizes | None:
    """Return the block whose panels fit into scratch memory, and whose launch is short."""
    m, n, k = whole
    lane = config.lane
    if lane == FLOAT:
        if _panel_bytes(config.columns, k, config.columns, lane) > PANEL_BYTES:
            return None
    else:
        k = min(k, DEPTH * (WORD if lane == BITS else 1))
    column_bytes = _depth(k, lane) * LANE_BYTES[lane]
    most = max(PANEL_BYTES // column_bytes, 1)
    n = min(n, max(most // config.columns, 1) * config.columns)
    m = min(m, max(most // config.rows, 1) * config.rows)
    m = min(m, max(LAUNCH_WORK // (n * k) // config.rows, 1) * config.rows)
    return _Sizes(m, n, k)


def _pack(
    operand: int,
    config: ExactPackConfig,
    x: Layout,
    rows: int,
    columns: int,
    first: int,
    batch: Batch,
) -> Step:
    """Return the launch that packs rows of an operand, or of its transpose."""
    depth = _depth(columns, config.lane)
    start, strides = Element(SIDES[operand], first), batch.strides[operand]
    arguments: dict[str, Argument] = {
        "rows": rows,
        "columns": columns,
        "depth": depth,
        "counts": batch.counts,
        **operand_in_place("from", start.slot, start, x, strides=strides),
        "to": PACKED[operand],
    }
    groups = ceil_div(rows, config.panel) * ceil_div(depth, config.chunk)
    return Step(config, groups * batch.matrices, arguments)


def _multiply(
    config: ExactProductConfig,
    c: Layout,
    origin: tuple[int, int, int],
    sizes: tuple[int, int, int],
    part: Slice,
    batch: Batch,
) -> Step:
    """Return the launch that multiplies the panels of a block."""
    (row, column, p), (m, n, k) = origin, sizes
    first = Element("c", part.offsets[2] + row * c.row_stride + column * c.column_stride)
    arguments: dict[str, Argument] = {
        "m": m,
        "n": n,
        "depth": _depth(k, config.lane),
        "adds": int(p > 0),
        "counts": batch.counts,
        "a": "packed_a",
        "b": "packed_b",
        **operand_in_place("c", "c", first, c, strides=batch.strides[2]),
    }
    groups = ceil_div(m, config.rows) * ceil_div(n, config.columns)
    return Step(config, groups * batch.matrices, arguments)
