"""Long products on a device that uses host memory in place, in tiles of about half a second.

Between two tiles the program hears of the progress, and a signal's handler can end the product. A
product is cut only if every tile adds up in the order of the whole, so no bit changes.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from itertools import product

from clgemm.core.caches import forgettable
from clgemm.core.problem import Problem
from clgemm.core.steps import Plan
from clgemm.hardware.device import Device
from clgemm.planning.planner import plan_of
from clgemm.planning.tiles import cut

__all__ = ["takes_seconds", "tile_steps"]

# Multiply-adds of a tile: of a CPU per compute unit, and in all where the CPU plays a GPU. A core
# of an EPYC makes so many in 0.6 seconds (PoCL 3.0, 2026-11).
TILE_WORK, TILE_WORK_IF_SLOW = 2**35, 2**28
# Arguments of kernels on which the order of a sum depends, and fields of configs that it does not.
ORDERING = ("k", "slice_k", "block_k", "slices")
INDIFFERENT = {"packs", "whole"}


def tile_steps(device: Device, problem: Problem) -> tuple[int, ...]:
    """Return the size of tiles along each axis of C: that of C itself if it is not cut."""
    if not takes_seconds(device, problem):
        return problem.c.shape
    return _tile_steps(device, problem, _tile_work(device))


def takes_seconds(device: Device, problem: Problem) -> bool:
    """Tell whether a product is long enough to be cut."""
    return problem.precision is not None and problem.shape.work >= 2 * _tile_work(device)


def _tile_work(device: Device) -> int:
    limits = device.limits
    return TILE_WORK * limits.compute_units if limits.has_vectors else TILE_WORK_IF_SLOW


@forgettable
@functools.lru_cache(maxsize=256)
def _tile_steps(device: Device, problem: Problem, most: int) -> tuple[int, ...]:
    shape = problem.c.shape
    wanted = _order_of_sums(plan_of(device, problem).plan)
    for work in (most, 2 * most, 4 * most):  # narrow tiles may be planned otherwise
        steps = cut(shape, problem.k, work)
        sizes = (
            {min(step, size), size % step or step} for size, step in zip(shape, steps, strict=True)
        )
        parts = (_part(problem, tile) for tile in product(*sizes))
        if all(_order_of_sums(plan_of(device, part).plan) == wanted for part in parts):
            return steps
    return shape


def _part(problem: Problem, tile: tuple[int, ...]) -> Problem:
    """Return the product of a tile of so many rows and columns, and so many of each batch axis."""
    *batch, rows, columns = tile
    a, b, c = problem.layouts
    a, b = a.broadcast(c.batch), b.broadcast(c.batch)
    return Problem(
        a._replace(shape=(*batch, rows, a.columns)),
        b._replace(shape=(*batch, b.rows, columns)),
        c._replace(shape=tile),
        problem.precision,
    )


def _order_of_sums(plan: Plan) -> Hashable:
    """Return what the order depends on in which a plan's kernels add up each element of C."""
    return plan.counted_products, frozenset(
        (
            type(step.config),
            frozenset((k, v) for k, v in vars(step.config).items() if k not in INDIFFERENT),
            tuple(step.arguments.get(name) for name in ORDERING),
        )
        for step in plan.steps
        if "k" in step.arguments or "slices" in step.arguments
    )
