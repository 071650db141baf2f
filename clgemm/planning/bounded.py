"""Plans of products in parts: so that launches are short, and for one triangle. Pure."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from clgemm.core.config import Launch
from clgemm.core.plan import (
    LAST_ITEM,
    Argument,
    Element,
    OutlierCounter,
    Plan,
    Slot,
    Step,
    ceil_div,
    round_up,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, Problem
from clgemm.core.traits import Limits
from clgemm.kernels.mirror.plan import triangles_plan

SCRATCH_ALIGNMENT = 64  # bytes
GRAIN = 128  # elements: long axes are cut at multiples of this, into whole tiles of the kernels


def half_of(size: int) -> int:
    """Return about half of an axis: whole grains, if it is long."""
    half = ceil_div(size, 2)
    return half if half <= GRAIN else round_up(half, GRAIN)


def bounded(make: Callable[[Problem], Plan], problem: Problem, limits: Limits) -> Plan:
    """Return the plan of a problem, with launches that the device accepts.

    C is halved along its longest axis until each launch has at most `LAST_ITEM` work-items, and is
    expected to take `Limits.longest_us` at most.

    Parameters
    ----------
    make : callable
        Returns the plan of the problem or of a part of it.
    """
    made = make(problem)
    if _is_bounded(made, problem.c, limits):
        return made
    if problem.is_half:
        rows = half_of(half_of(half_of(problem.n)))
        return upper_triangle(lambda part: bounded(make, part, limits), problem, rows)
    return _halved(*_in_parts(make, problem), limits)


def upper_triangle(make: Callable[[Problem], Plan], problem: Problem, rows: int) -> Plan:
    """Return the plan of the upper triangle of a batch of square products.

    It consists of blocks of so many rows, which begin at the diagonal. So some elements below the
    diagonal are computed, too.

    Parameters
    ----------
    make : callable
        Returns the plan of a block, which every device accepts.
    """
    made, operands = _in_parts(make, problem)
    axis = len(problem.c.batch)
    plans = []
    for start in range(0, problem.n, rows):
        stop = min(start + rows, problem.n)
        parts, origins = [], {}
        for operand in operands:
            part, first = operand.part(axis, start, stop)
            part, further = part.part(axis + 1, start, problem.n)
            parts.append(part)
            origins[operand.slot] = first + further
        plans.append((made(*(part.layout for part in parts)), origins))
    return _joined(plans)


def by_way_of_scratch(
    make: Callable[[Problem], Plan], problem: Problem, rows: int, limits: Limits
) -> Plan:
    """Return the plan that updates triangles of C by a symmetric product, of matrices.

    Blocks as in `upper_triangle`, or those up to the diagonal, go to the scratch memory "product",
    because they reach across it. From there, the elements of the triangle go to C.

    Parameters
    ----------
    make : callable
        Returns the plan of a block, which every device accepts.
    """
    _, (whole_a, whole_b, _) = _in_parts(make, problem)
    plans, n, c = [], problem.n, problem.c
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        left, right = (0, stop) if problem.triangles == "lower" else (start, n)
        a, first_a = whole_a.part(0, start, stop)
        b, first_b = whole_b.part(1, left, right)
        first_c = start * c.row_stride + left * c.column_stride
        origins: dict[Slot, int] = {"a": first_a, "b": first_b, "c": first_c}
        block = a.layout.rows, b.layout.columns
        to = Layout(block, (block[1], 1), SCRATCH_ALIGNMENT)
        # A whole one begins at the diagonal.
        is_half = block == (n, n) and problem.triangles != "lower"
        plan = make(Problem(a.layout, b.layout, to, problem.precision, is_half=is_half))
        plans.append((_to_scratch(plan, FLOAT_BYTES * math.prod(block)), origins))
        plans.append((triangles_plan(block, c, problem.triangles, limits), origins))
    return _joined(plans)


def _to_scratch(plan: Plan, size_bytes: int) -> Plan:
    """Return a plan whose C is the scratch memory "product", which is not read."""

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, Element) and argument.slot == "c":
            return argument.offset
        return "product" if argument == "c" else 0.0 if argument == "beta" else argument

    steps = tuple(
        replace(step, arguments={name: moved(x) for name, x in step.arguments.items()})
        for step in plan.steps
    )
    return replace(plan, steps=steps, scratch=(*plan.scratch, ("product", size_bytes)))


def _in_parts(
    make: Callable[[Problem], Plan], problem: Problem
) -> tuple[Callable[..., Plan], tuple[_Operand, ...]]:
    """Return what plans a part of a problem by its layouts, and the operands."""

    def made(a: Layout, b: Layout, c: Layout) -> Plan:
        return make(Problem(a, b, c, problem.precision))

    a, b, c = problem.layouts
    rows, columns = len(c.shape) - 2, len(c.shape) - 1
    return made, (
        _Operand("a", a, without=columns),
        _Operand("b", b, without=rows),
        _Operand("c", c),
    )


class _Operand(NamedTuple):
    """An operand of a plan.

    Attributes
    ----------
    without : int, optional
        The axis of C that the operand does not have. The operand's axis at this position is k.
    """

    slot: Slot
    layout: Layout
    without: int | None = None

    def part(self, axis: int, start: int, stop: int) -> tuple[_Operand, int]:
        """Return a part along an axis of C, and the index of that part's first element."""
        if axis == self.without:
            return self, 0
        layout = self.layout
        first = start * layout.strides[axis]
        shape = (*layout.shape[:axis], stop - start, *layout.shape[axis + 1 :])
        address = FLOAT_BYTES * first | layout.alignment_bytes
        part = Layout(shape, layout.strides, address & -address)
        return self._replace(layout=part), first


def _is_bounded(plan: Plan, c: Layout, limits: Limits) -> bool:
    if any(step.groups * step.config.items > LAST_ITEM for step in plan.steps):
        return False
    if limits.longest_us == math.inf or math.prod(c.shape) <= GRAIN**2:
        return True
    # Launches for outliers mostly do nothing.
    launches = (
        (step.config, Launch(step.groups, step.arguments, limits))
        for step in plan.steps
        if not step.conditional
    )
    return all(config.microseconds(launch) <= limits.longest_us for config, launch in launches)


def _halved(make: Callable[..., Plan], operands: tuple[_Operand, ...], limits: Limits) -> Plan:
    """Return the plan for the operands, divided as in `bounded`. Equal parts are planned once.

    Parameters
    ----------
    make : callable
        Returns the plan for the operands' layouts.
    operands : tuple of _Operand
        The last one is C.
    """

    @functools.cache
    def part_of(*layouts: Layout) -> Plan:
        made = make(*layouts)
        return made if _is_bounded(made, layouts[-1], limits) else divided(*layouts)

    def divided(*layouts: Layout) -> Plan:
        shape = layouts[-1].shape
        longest = max(shape)
        if longest == 1:
            return make(*layouts)
        axis, half = shape.index(longest), half_of(longest)
        wholes = [x._replace(layout=each) for x, each in zip(operands, layouts, strict=True)]
        plans = []
        for start, stop in ((0, half), (half, longest)):
            parts, firsts = zip(*(x.part(axis, start, stop) for x in wholes), strict=True)
            origins = {x.slot: first for x, first in zip(operands, firsts, strict=True)}
            plans.append((part_of(*(part.layout for part in parts)), origins))
        return _joined(plans)

    return divided(*(x.layout for x in operands))


def _joined(plans: Iterable[tuple[Plan, dict[Slot, int]]]) -> Plan:
    """Return one plan of several, each with the first elements of its operands, by slot."""
    steps: list[Step] = []
    scratch: dict[Slot, int] = {}
    counted = 0
    for plan, origins in plans:
        steps += [_moved(step, origins, counted) for step in plan.steps]
        counted += plan.counted_products
        for slot, size_bytes in plan.scratch:
            scratch[slot] = max(scratch.get(slot, 0), size_bytes)
    return Plan(tuple(steps), tuple(scratch.items()), counted)


def _moved(step: Step, origins: dict[Slot, int], counted: int) -> Step:
    """Return a step of a plan that is part of another one.

    Parameters
    ----------
    origins : dict of int
        The first element of each operand, by slot.
    counted : int
        Products before it whose outliers are counted.
    """

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, Element):
            return argument._replace(offset=argument.offset + origins[argument.slot])
        if isinstance(argument, OutlierCounter):
            return OutlierCounter(argument.product + counted)
        return argument

    return replace(step, arguments={name: moved(x) for name, x in step.arguments.items()})
