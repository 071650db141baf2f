"""Plans of products in parts: for the most work-items of a launch, and for one triangle. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from clgemm.core.plan import LAST_ITEM, Argument, Element, Plan, Slot, Step, ceil_div, round_up
from clgemm.core.problem import FLOAT_BYTES, Layout, Problem

__all__ = ["GRAIN", "bounded", "half_of", "upper_triangle"]

GRAIN = 128  # elements: long axes are cut at multiples of this, into whole tiles of the kernels


def half_of(size: int) -> int:
    """Return about half of an axis: whole grains, if it is long."""
    half = ceil_div(size, 2)
    return half if half <= GRAIN else round_up(half, GRAIN)


def bounded(make: Callable[[Problem], Plan], problem: Problem) -> Plan:
    """Return the plan of a problem, with launches that every device accepts.

    C is halved along its longest axis until each launch has at most `LAST_ITEM` work-items.

    Parameters
    ----------
    make : callable
        Returns the plan of the problem or of a part of it.
    """
    return _bounded(*_in_parts(make, problem))


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


def _bounded(make: Callable[..., Plan], operands: tuple[_Operand, ...]) -> Plan:
    """Return the plan for the operands, divided as in `bounded`.

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
    axis, half = shape.index(longest), half_of(longest)
    plans = []
    for start, stop in ((0, half), (half, longest)):
        parts, firsts = zip(*(x.part(axis, start, stop) for x in operands), strict=True)
        origins = {x.slot: first for x, first in zip(operands, firsts, strict=True)}
        plans.append((_bounded(make, parts), origins))
    return _joined(plans)


def _joined(plans: Iterable[tuple[Plan, dict[Slot, int]]]) -> Plan:
    """Return one plan of several, each with the first elements of its operands, by slot."""
    steps: list[Step] = []
    scratch: dict[Slot, int] = {}
    for plan, origins in plans:
        steps += (_moved(step, origins) for step in plan.steps)
        for slot, size_bytes in plan.scratch:
            scratch[slot] = max(scratch.get(slot, 0), size_bytes)
    return Plan(tuple(steps), tuple(scratch.items()))


def _moved(step: Step, origins: dict[Slot, int]) -> Step:
    """Return a step whose operands begin at other elements: `origins`, by slot, are added."""

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, Element):
            return argument._replace(offset=argument.offset + origins[argument.slot])
        return argument

    return replace(step, arguments={name: moved(x) for name, x in step.arguments.items()})
