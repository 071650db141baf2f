"""The one place that cuts a product of host arrays which a device uses where they lie.

A part is as large as the device's largest buffer allows: the buffer spans an operand from its
lowest element to its highest. And a part takes about half a second at most, because the program
hears of the progress between two parts, and a signal's handler can end the product there. It is
cut for the time only if every part adds up in the order of the whole, so no bit changes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from clgemm.core.cache import forgettable
from clgemm.core.plan import Plan, ceil_div, round_up
from clgemm.core.problem import FLOAT_BYTES, Layout, Problem
from clgemm.core.transfer import cuts
from clgemm.hardware.device import Device
from clgemm.planning.bounded import GRAIN, half_of
from clgemm.planning.planner import plan_of

LEAST_SIDE = 256  # of a part, where C has as much: narrower ones are slower on every device
# Multiply-adds of a part: of a CPU per compute unit, and in all where the CPU plays a GPU. A core
# of an EPYC computes so many in 0.6 seconds (PoCL 3.0, 2026-11). And of an integrated GPU, whose
# launches are short already (`Limits.longest_us`): 0.1 to 1 seconds.
PART_WORK, PART_WORK_IF_SLOW, PART_WORK_OF_GPU = 2**35, 2**28, 2**36
# Arguments of kernels on which the order of a sum depends, and fields of configs that it does not.
ORDERING = ("k", "slice_k", "block_k", "slices")
INDIFFERENT = {"packs", "whole"}

Box = tuple[slice, ...]


class Part(NamedTuple):
    """A part of a product.

    Attributes
    ----------
    a, b, c : tuple of slice
        The part of A, B and C, as a slice for each axis. A and B have as many axes as C.
    is_first : bool
        Whether it is the first one of its part of C. Later ones add to the result.
    """

    a: Box
    b: Box
    c: Box
    is_first: bool

    def problem(self, whole: Problem) -> Problem:
        """Return the part of a product whose operands have as many axes as C."""
        a, b, c = (
            layout._replace(
                shape=tuple(
                    len(range(*own.indices(count)))
                    for own, count in zip(box, layout.shape, strict=True)
                )
            )
            for layout, box in zip(whole.layouts, self[:3], strict=True)
        )
        return Problem(a, b, c, whole.precision)


def is_cut(device: Device, problem: Problem) -> bool:
    """Return whether a product is computed in several parts."""
    return not _fits(device, problem) or (
        takes_seconds(device, problem) and part_sizes(device, problem) != problem.c.shape
    )


def takes_seconds(device: Device, problem: Problem) -> bool:
    """Return whether a product is long enough to be cut for that."""
    return problem.precision is not None and problem.shape.work >= 2 * _part_work(device)


def parts(device: Device, problem: Problem) -> Iterator[Part]:
    """Yield the parts of a product, in the order in which to compute them.

    Of a symmetric product that takes long, those below the diagonal are left out.
    """
    a, b, c = problem.layouts
    a, b = (x.broadcast((1,) * (len(c.batch) - len(x.batch)) + x.batch) for x in (a, b))
    problem = problem._replace(a=a, b=b)
    if _fits(device, problem):
        whole: Box = (slice(None),) * len(c.shape)
        windows: Iterator[Part] = iter([Part(whole, whole, whole, True)])
    else:
        most = device.limits.allocation_bytes // FLOAT_BYTES
        windows = parts_within(a, b, c, most, read=problem.precision is not None)
    for window in windows:
        part = window.problem(problem)
        steps = part_sizes(device, part)
        if steps == part.c.shape:
            yield window
            continue
        for box in product(*map(cuts, part.c.shape, steps)):
            blocks = (*_matrix_blocks(box, part.a, part.b), box)
            x, y, z = map(_within, window[:3], blocks)
            if not (problem.is_symmetric and z[-2].start >= z[-1].stop):
                yield Part(x, y, z, window.is_first)


def _fits(device: Device, problem: Problem) -> bool:
    """Return whether each operand fits into one buffer."""
    most = device.limits.allocation_bytes // FLOAT_BYTES
    return all(last - first < most for first, last in (x.extent for x in problem.layouts))


def _within(outer: Box, inner: Box) -> Box:
    """Return a box that is given by its place in another one."""
    firsts = (each.start or 0 for each in outer)
    return tuple(
        slice(first + each.start, first + each.stop)
        for first, each in zip(firsts, inner, strict=True)
    )


# Parts that are as large as buffers allow.


def parts_within(a: Layout, b: Layout, c: Layout, most: int, read: bool = True) -> Iterator[Part]:
    """Yield the parts of ``C = A B`` whose operands span few elements.

    Parameters
    ----------
    a, b, c : Layout
        Shapes (*batch, m, k), (*batch, k, n) and (*batch, m, n), none empty. A and B may be
        broadcast along axes of the batch.
    most : int
        The limit for the span of a part of an operand: the number of elements from the lowest to
        the highest, both included. At least 1.
    read : bool
        Whether A and B are read. If not, their spans are not limited.
    """
    rows = len(c.batch)
    columns, depth = rows + 1, rows + 2  # axes of the product
    axes = [[*range(rows), rows, depth], [*range(rows), depth, columns], [*range(rows + 2)]]
    # For each operand, the distance of neighbours along each axis of the product.
    strides = []
    for own, layout in zip(axes, (a, b, c), strict=True):
        apart = [0] * (depth + 1)
        for axis, stride, count in zip(own, layout.strides, layout.shape, strict=True):
            apart[axis] = abs(stride) if count > 1 else 0
        strides.append(apart)
    counted = strides if read else strides[2:]
    whole = [(0, count) for count in (*c.batch, c.rows, c.columns, a.columns if read else 1)]
    for box in _boxes(whole, counted, most):
        x, y, z = (
            tuple(
                slice(*box[axis]) if count > 1 else slice(0, 1)
                for axis, count in zip(own, layout.shape, strict=True)
            )
            for own, layout in zip(axes, (a, b, c), strict=True)
        )
        yield Part(x, y, z, box[depth][0] == 0)


def _boxes(
    box: list[tuple[int, int]], strides: Sequence[Sequence[int]], most: int
) -> Iterator[list[tuple[int, int]]]:
    """Halve a product until it fits, along the longest axis of the operand with the widest span.

    The half with the smaller indices comes first.
    """
    reaches = [
        [stride * (stop - start - 1) for stride, (start, stop) in zip(own, box, strict=True)]
        for own in strides
    ]
    widest = max(reaches, key=sum)
    if sum(widest) < most:
        yield box
        return
    axis = widest.index(max(widest))
    start, stop = box[axis]
    half = half_of(stop - start)
    for part in ((start, start + half), (start + half, stop)):
        yield from _boxes([*box[:axis], part, *box[axis + 1 :]], strides, most)


# Parts that take about half a second.


def _part_work(device: Device) -> int:
    if device.kind == "GPU":
        return PART_WORK_OF_GPU
    limits = device.limits
    return PART_WORK * limits.compute_units if limits.has_vectors else PART_WORK_IF_SLOW


@forgettable
@functools.lru_cache(maxsize=256)
def part_sizes(device: Device, problem: Problem) -> tuple[int, ...]:
    """Return the size of parts along each axis of C: that of C itself if it is not cut."""
    shape, whole = problem.c.shape, problem._replace(is_symmetric=False, triangles="")
    if not takes_seconds(device, problem):
        return shape
    most = _part_work(device)
    wanted = _order_of_sums(plan_of(device, whole).plan)
    for work in (most, 2 * most, 4 * most):  # narrow parts may be planned otherwise
        steps = sizes_for(shape, problem.k, work)
        sizes = (
            {min(step, size), size % step or step} for size, step in zip(shape, steps, strict=True)
        )
        tried = (_of_shape(problem, part) for part in product(*sizes))
        if all(_order_of_sums(plan_of(device, part).plan) == wanted for part in tried):
            return steps
    return shape


def _of_shape(problem: Problem, shape: tuple[int, ...]) -> Problem:
    """Return a part of a product, by the shape of its C."""
    *batch, rows, columns = shape
    a, b, c = problem.layouts
    a, b = a.broadcast(c.batch), b.broadcast(c.batch)
    return Problem(
        a._replace(shape=(*batch, rows, a.columns)),
        b._replace(shape=(*batch, b.rows, columns)),
        c._replace(shape=shape),
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


def sizes_for(shape: tuple[int, ...], depth: int, most: float) -> tuple[int, ...]:
    """Return the size of parts along each axis of C, of so many multiply-adds or a little more.

    Batches are cut by matrix, outer axes first. Matrices are cut only where one of them is too
    large: into blocks that are nearly square, which share most.
    """
    *batch, m, n = shape
    steps, work = list(shape), depth * math.prod(shape)
    for axis, count in enumerate(batch):
        if work <= most:
            return tuple(steps)
        one = work // count
        steps[axis] = _even(count, ceil_div(count, max(1, int(most // one))), grain=1)
        work = one * steps[axis]
    if work > most:
        area = most / depth
        side = max(math.sqrt(area), LEAST_SIDE)
        rows = min(m, side)
        columns = min(n, max(area / rows, LEAST_SIDE))
        rows = min(m, max(area / columns, LEAST_SIDE))
        steps[-2] = _even(m, max(1, math.ceil(m / rows)))
        steps[-1] = _even(n, max(1, math.ceil(n / columns)))
    return tuple(steps)


def _even(size: int, count: int, grain: int = GRAIN) -> int:
    """Return the size of parts of an axis, in whole grains if it is more than one.

    Up to a quarter less is taken where the last part would be small otherwise: that part may be
    slower, or add up in another order.
    """
    step = ceil_div(size, count)
    if step <= grain:
        return step
    largest = round_up(step, grain)
    steps = range(largest, largest * 3 // 4, -grain)
    return min(size, max(steps, key=lambda step: (size % step or step) / step))


def _matrix_blocks(box: Box, a: Layout, b: Layout) -> tuple[Box, Box]:
    """Return the blocks of A and B that a block of C needs, where they repeat one matrix the same.

    Parameters
    ----------
    a, b : Layout
        With as many axes as C.
    """
    *batch, rows, columns = box

    def own(x: Layout) -> list[slice]:
        counts = zip(batch, x.batch, strict=True)
        return [s if count > 1 else slice(0, 1) for s, count in counts]

    whole = slice(0, a.columns)
    return (*own(a), rows, whole), (*own(b), whole, columns)
