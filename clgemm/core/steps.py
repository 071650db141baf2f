"""What plans are made of: launches as numbers and names of buffers, and batches cut to fit them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

from clgemm.core.config import FLOAT_BYTES, KernelConfig
from clgemm.core.layout import Layout, Level

__all__ = [
    "COUNTERS",
    "LAST_GROUP",
    "LAST_ITEM",
    "LONGEST_SUM",
    "Argument",
    "Batch",
    "Element",
    "Plan",
    "Side",
    "Slice",
    "Slot",
    "Step",
    "Turn",
    "batch_of",
    "ceil_div",
    "operand_at",
    "operand_in_place",
    "round_up",
    "slices",
    "widest_load",
]

Side = Literal["a", "b"]
Slot = Literal["a", "b", "c", "packed_a", "packed_b", "partial", "counters", "alpha", "beta"]

LAST_GROUP = 2**31 - 1  # work-groups per launch that every device takes
LAST_ITEM = 2**31 - 1  # work-items per launch: rusticl ends the process from 2**32 on
# The rounding errors of a sum grow with its length: longer ones are cut and added up in C. One more
# read and write of C in so many steps is not to be seen in the time.
LONGEST_SUM = 8192
COUNTERS = 1024  # zero-initialised atomic counters, per compute unit
KERNEL_LEVELS = 4  # nested loops over a batch inside a kernel: the lanes of an int4


class Element(NamedTuple):
    """Argument: the position in elements of an operand's first element, plus `offset`."""

    slot: Slot
    offset: int


class Turn(NamedTuple):
    """Argument: a counter of the workspace's own, in which a plan's product `product` counts.

    There are two for each tier of kernels. They take turns, from call to call too: each product
    clears the next one's counter.
    """

    product: int
    tier: int


# A number or packed vector as it goes into the kernel, or the name of what the runtime puts there.
Argument = int | float | bytes | Slot | Element | Turn


@dataclass(frozen=True)
class Step:
    """One kernel launch.

    Attributes
    ----------
    groups : int
        Work-groups; ``config.items`` work-items each.
    arguments : mapping of str to Argument
        By the kernel's parameters, in their order. How each goes into the kernel, the parameter's
        type tells: `clgemm.kernels.sources.parameter_types`.
    gated : bool
        The kernel takes a gate as its last arguments (kernels/common/prelude.cl).
    """

    config: KernelConfig
    groups: int
    arguments: Mapping[str, Argument]
    gated: bool = False


@dataclass(frozen=True, eq=False)
class Plan:
    """Launches in order, and the scratch memory that they share; equal only to itself.

    Attributes
    ----------
    scratch : tuple of (slot, bytes)
    turns : int
        Products that count in the workspace's counters.
    """

    steps: tuple[Step, ...]
    scratch: tuple[tuple[Slot, int], ...] = ()
    turns: int = 0


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
        How its elements lie, by the rest of the parameter's name, in the kernel's order.
    """
    arguments: dict[str, Argument] = {name: slot, f"{name}_offset": first}
    for place, value in places.items():
        arguments[f"{name}_{place}"] = value
    return arguments


def operand_in_place(
    name: str, slot: Slot, first: Element, x: Layout, **places: int | bytes
) -> dict[str, Argument]:
    """Return a kernel's arguments for an operand of a layout: its `row` and `column` come first."""
    return operand_at(name, slot, first, row=x.row_stride, column=x.column_stride, **places)


def ceil_div(x: int, y: int) -> int:
    """Return x / y, rounded up."""
    return -(-x // y)


def round_up(x: int, multiple: int) -> int:
    """Return the smallest multiple that is not less than x."""
    return ceil_div(x, multiple) * multiple


def widest_load(x: Layout, down_rows: bool, most: int) -> int:
    """Return how many neighbours can be loaded together wherever they lie, `most` or fewer.

    Parameters
    ----------
    down_rows : bool
        Whether elements of a column are neighbours in memory, rather than those of a row.
    most : int
        A power of two; so is the result.
    """
    run, far = (x.rows, x.column_stride) if down_rows else (x.columns, x.row_stride)
    places = run, far, *x.strides[:-2]
    load = most
    while any(place % load for place in places) or x.alignment_bytes < FLOAT_BYTES * load:
        load //= 2
    return load


class Batch(NamedTuple):
    """The batch loops that one launch runs: counts and strides of three operands, as vectors."""

    matrices: int
    counts: bytes  # int4
    strides: tuple[bytes, ...]  # long4 each


def batch_of(levels: tuple[Level, ...], operands: int) -> Batch:
    """Return a batch's loops as a kernel takes them."""
    matrices = 1
    for level in levels:
        matrices *= level.count
    missing = KERNEL_LEVELS - len(levels)
    counts = [1] * missing + [level.count for level in levels]
    strides = ([0] * missing + [level.strides[i] for level in levels] for i in range(operands))
    packed = tuple(struct.pack("4q", *own) for own in strides)
    return Batch(matrices, struct.pack("4i", *counts), packed)


class Slice(NamedTuple):
    """A part of a batch that one launch can take, and where it begins in A, B and C."""

    offsets: tuple[int, ...]
    levels: tuple[Level, ...]


def slices(
    levels: tuple[Level, ...], most: int, operands: int, loops: int = KERNEL_LEVELS
) -> Iterator[Slice]:
    """Cut a batch into launches of at most `most` matrices and so many `loops` each."""
    inner: list[Level] = []
    matrices = 1
    rest = list(levels)
    while rest and len(inner) < loops and matrices * rest[-1].count <= most:
        inner.insert(0, rest.pop())
        matrices *= inner[0].count
    cut = Level(1, (0,) * operands)  # the loop that only runs in part
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
