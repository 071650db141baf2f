"""Verification of each kernel family with every config that it may be used with on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyopencl as cl

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.hardware.device import Device
from clgemm.kernels.common.family import Choice, Family
from clgemm.planning.planner import choice_of, families, make_plan
from clgemm.records.record import choice_as_dict
from clgemm.runtime.memory import place
from clgemm.runtime.workspace import workspace
from clgemm.testing.assertions import compared
from clgemm.testing.operands import outside_unchanged
from clgemm.verify.cases import Operands, on_device, operands_for
from clgemm.verify.tally import Tally

__all__ = ["choices_of", "modes_of", "verify_family"]

# Shapes of products that a family makes, by whose defaults and records its configs are found.
SIZES = (64, 300, 1000, 3000)
SHAPES = (
    *(Shape(n, n, n) for n in SIZES),
    *(Shape(4096, few, 1024) for few in (1, 2, 4, 8, 64)),
    *(Shape(few, 4096, 1024) for few in (1, 2, 4, 8, 64)),
    *(Shape(64, 64, 50_000), Shape(128, 128, 128, 100)),
)
MOST_WORK = 2**26  # multiply-adds of one product
LEAST_PRODUCTS = 4  # of each config


def modes_of(family: Family[Any, Any]) -> tuple[str, ...]:
    """Return the precisions in which a family's kernels differ."""
    return ("float32", "fast") if family.instructions else ("strict",)


def choices_of(device: Device, family: Family[Any, Any]) -> list[Choice]:
    """Return the configs that a device may use of a family, those of its records first."""
    served = [choice_of(device, family, shape) for shape in SHAPES]
    defaults = [c for shape in SHAPES for c in family.defaults(shape, device.traits)]
    fitting = (c for c in (*served, *defaults) if not list(family.problems(c, device.limits)))
    return list(dict.fromkeys(fitting))


def cases_of(device: Device, family: Family[Any, Any]) -> Iterator[tuple[Choice, Shape, str]]:
    """Yield each config with each of its edge shapes, in each precision, round by round."""
    choices = choices_of(device, family)
    shapes = {choice: family.edge_shapes(choice.config) for choice in choices}
    for turn in range(max(map(len, shapes.values()), default=0)):
        for choice in choices:
            shape = shapes[choice][turn % len(shapes[choice])]
            if shape.work <= MOST_WORK:
                for mode in modes_of(family):
                    yield choice, shape, mode


def verify_family(
    device: Device,
    family: Family[Any, Any],
    tally: Tally,
    rng: np.random.Generator,
    has_time: Callable[[], bool],
) -> None:
    """Multiply by each config of a family on its edge shapes, until the time is over.

    Every config makes at least `LEAST_PRODUCTS`, whatever the time: building it takes longer.
    """
    assert family in families(device)
    made = dict.fromkeys((choice for choice, *_ in cases_of(device, family)), 0)
    is_over, number = not made, 0
    while not is_over:
        for choice, shape, mode in cases_of(device, family):
            if made[choice] >= LEAST_PRODUCTS and not has_time():
                continue
            if not made[choice]:
                tally.configs.setdefault(family.name, []).append(choice_as_dict(choice))
            for any_strides in (True, False):  # where a family refuses the first, the second
                case = operands_for(rng, family, shape, mode, number, any_strides)
                where = f"{family.name} {choice.config}, {shape.label}, {case.data}, {mode}"
                try:
                    found = _multiplied(device, family, choice, case, mode)
                except (cl.Error, RuntimeError, ValueError) as error:
                    found = 0.0, f"{type(error).__name__}: {error}"
                if found is not None:
                    count = tally.of_family(family.name, mode)
                    tally.add(count, where, case.c.view.size, *found)
                    break
            made[choice] += 1
            number += 1
        is_over = not has_time() and min(made.values()) >= LEAST_PRODUCTS


def _multiplied(
    device: Device, family: Family[Any, Any], choice: Choice, case: Operands, mode: str
) -> tuple[float, str] | None:
    """Return the largest error in units of the bound, and what is wrong.

    Returns
    -------
    (float, str) or None
        None if the family does not take operands that lie so.
    """
    (a, base_a), (b, base_b), (c, base_c) = (on_device(device, x) for x in case[:3])
    matrices = {"a": place(a), "b": place(b), "c": place(c)}
    x, y, z = (matrix.layout for matrix in matrices.values())
    problem = Problem(x, y, z, mode)
    if not family.fits(problem):
        return None
    plan = make_plan(device, problem, family, choice)
    space = workspace(device.queue)
    bound = space.bind(plan, device)
    scratch = space.scratch(bound)
    for slot, size in plan.scratch:  # what scratch memory holds at first must not matter
        cl.enqueue_fill_buffer(device.queue, scratch[slot], np.full(1, np.nan, "f"), 0, size)
    space.run(plan, device, matrices, case.alpha, case.beta)
    device.queue.finish()
    after = base_c.get()
    first = case.c.view.__array_interface__["data"][0]
    offset = first - case.c.base.__array_interface__["data"][0]
    view: Any = np.ndarray(
        case.c.view.shape, np.float32, after, offset=offset, strides=case.c.view.strides
    )
    if not outside_unchanged(after, case.c.before, view):
        return 0.0, "memory around C was written"
    for name, base, operand in (("A", base_a, case.a), ("B", base_b, case.b)):
        if not np.array_equal(base.get().view(np.int32), operand.before.view(np.int32)):
            return 0.0, f"{name} was modified"
    values = case.a.values, case.b.values
    return compared(view, *values, case.alpha, case.beta, case.c.values, precision=mode)
