"""The parts of a plan: launches, their arguments, and batches cut to fit launches. Pure."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

from clgemm.core.config import KernelConfig, Launch
from clgemm.core.costs import joined
from clgemm.core.problem import FLOAT_BYTES, Layout, Level
from clgemm.core.traits import Limits

Side = Literal["a", "b"]
Slot = Literal[
    "a",
    "b",
    "c",
    "packed_a",
    "packed_b",
    "real_a",
    "real_b",
    "partial",
    "product",
    "counters",
    "alpha",
    "beta",
]

OPERANDS: tuple[Slot, ...] = ("a", "b", "c")
LAST_GROUP = 2**31 - 1  # work-groups per launch that every device takes
LAST_ITEM = 2**31 - 1  # work-items per launch: rusticl ends the process from 2**32 on
# Steps over k in one sum. Rounding errors grow with the length of a sum, so longer ones are cut
# into parts that are added up in C. At this length the extra read and write of C costs little.
LONGEST_SUM = 8192
COUNTERS = 1024  # zero-initialised atomic counters, per compute unit
HOST_OVERLAP = 6.0  # as in `joined`: a product's host time and its device time
KERNEL_LEVELS = 4  # nested loops over a batch inside a kernel: the lanes of an int4


class Element(NamedTuple):
    """Argument: the position in elements of an operand's first element, plus `offset`.

    A kernel may count in numbers of which an element has several: `parts`.
    """

    slot: Slot
    offset: int
    parts: int = 1


class OutlierCounter(NamedTuple):
    """Argument: the workspace's counter of the outliers in product number `product` of a plan.

    Outliers are elements that the parts of tensor-core kernels cannot hold. Products alternate
    between two counters, also from call to call: each product sets that of the next to zero.
    """

    product: int


# A number or packed vector for the kernel, or the name of a value that the runtime fills in.
Argument = int | float | bytes | Slot | Element | OutlierCounter


@dataclass(frozen=True)
class Step:
    """One kernel launch."""

    config: KernelConfig
    groups: int  # work-groups; ``config.items`` work-items each
    # By the names of the kernel's parameters, in their order. Their types are in
    # `clgemm.kernels.sources.parameter_types`.
    arguments: Mapping[str, Argument]
    # Whether the launch does something only if there are more outliers than a limit. The kernel
    # takes their counter and the limit as its last arguments (kernels/common/prelude.cl).
    conditional: bool = False


@dataclass(frozen=True, eq=False)
class Plan:
    """Launches in order, and the scratch memory that they share. A plan equals only itself."""

    steps: tuple[Step, ...]
    scratch: tuple[tuple[Slot, int], ...] = ()
    counted_products: int = 0  # number of products whose outliers are counted

    @functools.cached_property
    def operands(self) -> frozenset[Argument]:
        """Those of a, b and c that the launches use."""
        return frozenset(x for step in self.steps for x in step.arguments.values()) & {*OPERANDS}


def least_us(limits: Limits) -> float:
    """Return the expected time of a launch that does nothing."""
    if limits.has_vectors:
        return limits.cpu_costs.start_us + limits.cpu_costs.launch_us
    return joined(HOST_OVERLAP, limits.costs.host_us, limits.costs.start_us)


def expected_us(plan: Plan, limits: Limits, needs_fallback: float = 0.0) -> float:
    """Return the expected time of a plan in microseconds, by the families' models.

    A GPU and its host work at the same time: while the device computes, the host enqueues what
    comes next.

    Parameters
    ----------
    needs_fallback : float, optional
        The share of products whose data need a fallback, in a kernel or in conditional launches.
    """
    launches = [Launch(step.groups, step.arguments, limits) for step in plan.steps]
    if limits.has_vectors:
        cpu, pairs = limits.cpu_costs, zip(plan.steps, launches, strict=True)
        return cpu.start_us + sum(cpu.launch_us + s.config.microseconds(x) for s, x in pairs)
    costs = limits.costs
    host, device = costs.host_us - costs.host_more_us, costs.start_us - costs.more_us
    fallback = 0.0
    for step, launch in zip(plan.steps, launches, strict=True):
        host += costs.tensor_host_us if step.conditional else costs.host_more_us
        taken = costs.more_us + step.config.microseconds(launch)
        fallback += step.config.fallback_us(launch)
        if step.conditional:
            fallback += taken
        else:
            device += taken
    device += needs_fallback * fallback
    return joined(HOST_OVERLAP, host, device)


def matrices_of(counts: bytes) -> int:
    """Return the matrices of a launch, from its kernel's argument `counts`."""
    return math.prod(struct.unpack("4i", counts))


def operand_at(
    name: str, slot: Slot, first: int | Element, **places: int | bytes
) -> dict[str, Argument]:
    """Return a kernel's arguments for one operand.

    ``operand_at("a", "a", Element("a", 5), row=9, column=1)`` sets the parameters `a`, `a_offset`,
    `a_row` and `a_column`.

    Parameters
    ----------
    name : str
        The parameter that is the operand's buffer. The names of the others begin with it.
    places : int or bytes
        The other arguments, by the rest of the parameter's name, in the kernel's order.
    """
    arguments: dict[str, Argument] = {name: slot, f"{name}_offset": first}
    for place, value in places.items():
        arguments[f"{name}_{place}"] = value
    return arguments


def operand_in_place(
    name: str, slot: Slot, first: Element, x: Layout, **places: int | bytes
) -> dict[str, Argument]:
    """Return a kernel's arguments for an operand of this layout, `row` and `column` first."""
    return operand_at(name, slot, first, row=x.row_stride, column=x.column_stride, **places)


def ceil_div(x: int, y: int) -> int:
    """Return x / y, rounded up."""
    return -(-x // y)


def round_up(x: int, multiple: int) -> int:
    """Return the smallest multiple that is not less than x."""
    return ceil_div(x, multiple) * multiple


def tiles_of(m: int, n: int, tile_m: int, tile_n: int, is_half: bool = False) -> int:
    """Return how many tiles cover a matrix; or, with `is_half`, what is right of its diagonal.

    It is not taller than wide then, and one side of a tile divides the other.
    kernels/common/swizzle.cl numbers the tiles.
    """
    rows, columns = ceil_div(m, tile_m), ceil_div(n, tile_n)
    left_out = sum(row * tile_m // tile_n for row in range(rows)) if is_half else 0
    return rows * columns - left_out


def widest_load(x: Layout, down_rows: bool, most: int) -> int:
    """Return how many neighbours one load can take anywhere in the operand, `most` or fewer.

    Parameters
    ----------
    down_rows : bool
        Whether elements of a column are neighbours in memory, rather than those of a row.
    most : int
        A power of two; so is the result.
    """
    length, stride = (x.rows, x.column_stride) if down_rows else (x.columns, x.row_stride)
    sizes = length, stride, *x.strides[:-2]
    load = most
    while any(size % load for size in sizes) or x.alignment_bytes < FLOAT_BYTES * load:
        load //= 2
    return load


class Batch(NamedTuple):
    """The loops over a batch inside one launch: counts, and each operand's strides, as vectors."""

    matrices: int
    counts: bytes  # int4
    strides: tuple[bytes, ...]  # long4 each


def batch_of(levels: tuple[Level, ...], operands: int) -> Batch:
    """Return the loops over a batch in the form of kernel arguments."""
    matrices = 1
    for level in levels:
        matrices *= level.count
    missing = KERNEL_LEVELS - len(levels)
    counts = [1] * missing + [level.count for level in levels]
    strides = ([0] * missing + [level.strides[i] for level in levels] for i in range(operands))
    packed = tuple(struct.pack("4q", *each) for each in strides)
    return Batch(matrices, struct.pack("4i", *counts), packed)


class Slice(NamedTuple):
    """A part of a batch that one launch can take, and its offsets in A, B and C."""

    offsets: tuple[int, ...]
    levels: tuple[Level, ...]


def slices(
    levels: tuple[Level, ...], most: int, operands: int, loops: int = KERNEL_LEVELS
) -> Iterator[Slice]:
    """Cut a batch into launches of at most `most` matrices and `loops` nested loops each."""
    inner: list[Level] = []
    matrices = 1
    rest = list(levels)
    while rest and len(inner) < loops and matrices * rest[-1].count <= most:
        inner.insert(0, rest.pop())
        matrices *= inner[0].count
    cut = Level(1, (0,) * operands)  # the loop that is cut between launches
    if rest and len(inner) < loops and most // matrices > 1:
        cut = rest.pop()
    step = max(1, most // matrices) if cut.count > 1 else 1
    for outer in product(*(range(level.count) for level in rest)):
        for first in range(0, cut.count, step):
            offsets = tuple(
                sum(i * level.strides[o] for i, level in zip(outer, rest, strict=True))
                + first * cut.strides[o]
                for o in range(operands)
            )
            part = Level(min(step, cut.count - first), cut.strides)
            yield Slice(offsets, (part, *inner) if part.count > 1 else tuple(inner))
