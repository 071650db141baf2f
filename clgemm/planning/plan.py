"""From shapes, a config and a device's limits to the kernel launches that make a product.

Pure and cached: a plan holds numbers and the names of buffers, never a buffer, so that the second
call of a kind finds its plan made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from clgemm.core.config import FLOAT_BYTES, Limits
from clgemm.core.layout import Layout, batch_levels
from clgemm.core.steps import (
    LAST_GROUP,
    LAST_ITEM,
    Argument,
    Element,
    Plan,
    Slot,
    Step,
    ceil_div,
    operand_in_place,
    round_up,
    slices,
    stack_of,
)
from clgemm.kernels.blocked.config import RegisterConfig
from clgemm.kernels.blocked.plan import RegisterPanels
from clgemm.kernels.common.panels import AnyPackConfig, pack_step
from clgemm.kernels.direct.config import DirectConfig
from clgemm.kernels.pack.config import PackConfig
from clgemm.kernels.skinny.config import SkinnyConfig, SkinnyLanesConfig
from clgemm.kernels.skinny.plan import make_skinny_plan
from clgemm.kernels.tiled.config import LocalConfig
from clgemm.kernels.tiled.plan import LocalPanels

__all__ = ["make_copy_plan", "make_plan", "make_scaling_plan"]

GRAIN = 128  # a matrix that is cut in two is cut at a multiple of this: whole tiles


@lru_cache(maxsize=1024)
def make_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: LocalConfig | RegisterConfig | SkinnyConfig | SkinnyLanesConfig | DirectConfig,
    pack: tuple[AnyPackConfig, ...] | None,
    limits: Limits,
    reserve: bool = False,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` for stacks of one shape, none empty.

    Parameters
    ----------
    a, b, c : Layout
        (*batch, m, k), (*batch, k, n) and (*batch, m, n); repeated matrices have strides of zero.
    pack : tuple of PackConfig or VectorPackConfig, optional
        How `a` and `b` are packed for a local config, `a` for a register one, and how the operand
        of few rows is copied for a skinny one. The others need none.
    reserve : bool, optional
        Whether most calls need none of it, so that launches count for more than what they do.
    """

    def make(a: Layout, b: Layout, c: Layout) -> Plan:
        return _product(a, b, c, config, pack, limits, reserve)

    rows, columns = len(c.shape) - 2, len(c.shape) - 1
    operands = _Operand("a", a, without=columns), _Operand("b", b, without=rows), _Operand("c", c)
    return _bounded(make, operands)


def _product(
    a: Layout,
    b: Layout,
    c: Layout,
    config: LocalConfig | RegisterConfig | SkinnyConfig | SkinnyLanesConfig | DirectConfig,
    pack: tuple[AnyPackConfig, ...] | None,
    limits: Limits,
    reserve: bool,
) -> Plan:
    if isinstance(config, DirectConfig):
        return Plan(tuple(_direct_steps(a, b, c, a.columns, config)))
    if isinstance(config, SkinnyLanesConfig):
        return make_skinny_plan(a, b, c, config, None, limits)
    assert pack is not None
    if isinstance(config, SkinnyConfig):
        assert isinstance(pack[0], PackConfig)
        return make_skinny_plan(a, b, c, config, pack[0], limits)
    if isinstance(config, RegisterConfig):
        return RegisterPanels(a, b, c, config, pack, limits).plan()
    return LocalPanels(a, b, c, config, pack, limits, reserve).plan()


@lru_cache(maxsize=1024)
def make_scaling_plan(c: Layout, config: DirectConfig) -> Plan:
    """Return the launches of ``C = beta C``: a product over no depth at all reads no operand."""

    def make(c: Layout) -> Plan:
        return Plan(tuple(_direct_steps(c, c, c, 0, config)))

    return _bounded(make, (_Operand("c", c),))


@lru_cache(maxsize=1024)
def make_copy_plan(source: Layout, config: PackConfig) -> Plan:
    """Return the launches that copy a to c, a dense row-major stack: panels of a single row."""
    assert config.panel == 1
    rows, columns = source.rows, source.columns
    groups = ceil_div(columns, config.depth)  # for each row
    most = max(1, LAST_ITEM // (groups * config.items))  # rows of a launch
    steps: list[Step] = []
    copied = 0
    for offsets, levels in slices(batch_levels(source), most // rows, 1):
        stack = stack_of(levels, 1)
        for row in range(0, rows, most):  # more than one launch only for a single matrix
            count = min(most, rows - row)
            first = Element("a", offsets[0] + row * source.row_stride)
            to = Element("c", copied + row * columns)
            sizes = {"rows": count, "columns": columns, "padded_columns": columns}
            steps.append(pack_step(config, sizes, source, stack, first, ("c", to), count * groups))
        copied += stack.matrices * rows * columns
    return Plan(tuple(steps))


def _direct_steps(a: Layout, b: Layout, c: Layout, k: int, config: DirectConfig) -> Iterator[Step]:
    m, n = c.rows, c.columns
    tile_m, tile_n = config.items_m * config.work_m, config.items_n * config.width
    groups = ceil_div(m, tile_m) * ceil_div(n, tile_n)
    slot_a: Slot = "a" if k else "c"  # an argument must be some buffer, even if it is not read
    slot_b: Slot = "b" if k else "c"
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // groups, 3):
        stack = stack_of(levels, 3)
        first_a, first_b = Element(slot_a, offsets[0]), Element(slot_b, offsets[1])
        first_c, (strides_a, strides_b, strides_c) = Element("c", offsets[2]), stack.strides
        yield Step(
            config,
            groups * stack.matrices,
            {
                "m": m,
                "n": n,
                "k": k,
                "counts": stack.counts,
                "alpha": "alpha",
                "beta": "beta",
                **operand_in_place("a", slot_a, first_a, a, strides=strides_a),
                **operand_in_place("b", slot_b, first_b, b, strides=strides_b),
                **operand_in_place("c", "c", first_c, c, strides=strides_c),
            },
        )


class _Operand(NamedTuple):
    """An operand of a plan.

    Attributes
    ----------
    without : int, optional
        The axis of C that it does not have: another stands in its place.
    """

    slot: Slot
    layout: Layout
    without: int | None = None

    def part(self, axis: int, start: int, stop: int) -> tuple[_Operand, int]:
        """Return a part of it along an axis of C, and in which element that part begins."""
        if axis == self.without:
            return self, 0
        layout = self.layout
        first = start * layout.strides[axis]
        shape = (*layout.shape[:axis], stop - start, *layout.shape[axis + 1 :])
        address = FLOAT_BYTES * first | layout.alignment_bytes
        part = Layout(shape, layout.strides, address & -address)
        return self._replace(layout=part), first


def _bounded(make: Callable[..., Plan], operands: tuple[_Operand, ...]) -> Plan:
    """Return a plan none of whose launches has more work-items than every device takes.

    C is halved along its longest axis until that is so.

    Parameters
    ----------
    make : callable
        Returns the plan for the operands' layouts.
    operands : tuple of _Operand
        The last one is C.
    """
    made = make(*(operand.layout for operand in operands))
    shape = operands[-1].layout.shape
    longest = max(shape)
    if longest == 1 or all(step.groups * step.config.items <= LAST_ITEM for step in made.steps):
        return made
    axis, half = shape.index(longest), ceil_div(longest, 2)
    if half > GRAIN:
        half = round_up(half, GRAIN)
    steps: list[Step] = []
    scratch: dict[Slot, int] = {}
    for start, stop in ((0, half), (half, longest)):
        parts, firsts = zip(*(x.part(axis, start, stop) for x in operands), strict=True)
        plan = _bounded(make, parts)
        origins = {x.slot: first for x, first in zip(operands, firsts, strict=True)}
        steps += (_moved(step, origins) for step in plan.steps)
        for slot, size_bytes in plan.scratch:
            scratch[slot] = max(scratch.get(slot, 0), size_bytes)
    return Plan(tuple(steps), tuple(scratch.items()))


def _moved(step: Step, origins: dict[Slot, int]) -> Step:
    """Return a step whose operands begin so many elements later."""

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, Element):
            return argument._replace(offset=argument.offset + origins[argument.slot])
        return argument

    return replace(step, arguments={name: moved(x) for name, x in step.arguments.items()})
