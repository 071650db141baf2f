"""Measures how long plans take on a device, and fits the constants of expected times to that.

A constant is not fitted alone, for which a short measurement is too little: those of a group have a
common factor over an H200's. docs/family_costs.py fits each of them, to hours of measurements.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from statistics import median
from typing import NamedTuple, cast

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clgemm.core.config import Limits
from clgemm.core.costs import H200, Costs
from clgemm.core.layout import Layout
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import Plan, expected_us
from clgemm.hardware.device import Device
from clgemm.planning import planner
from clgemm.runtime.memory import Matrix
from clgemm.runtime.workspace import workspace

__all__ = ["LEAST_PLANS", "TimedPlan", "burst_us", "expected_times", "fitted", "timed_plans"]

log = logging.getLogger(__name__)

# Products whose plans together depend on every constant.
SHAPES = (
    Shape(1000, 1000, 1000),
    Shape(20, 20, 20),
    Shape(4096, 4096, 4096),
    Shape(1, 4096, 4096),
    Shape(3000, 3000, 2),
    Shape(64, 64, 20_000),
    Shape(64, 4096, 4096),
    Shape(512, 512, 512),
    Shape(128, 128, 128),
    Shape(777, 1301, 999),
    Shape(2048, 2048, 2048),
    Shape(64, 64, 64, 200),
    Shape(8192, 64, 512),
    Shape(4096, 2, 4096),
    Shape(16, 4096, 4096),
    Shape(300, 5000, 300),
)
PLANS_OF_A_PRODUCT = 6
LEAST_PLANS = 24  # with fewer, nothing is fitted
BURST_S = 0.004  # of one call after the other
MOST_CALLS = 400  # of a burst
BURSTS = 3
OUTLIER = 0.15  # of logarithms, from which on a residual counts less
STEPS = 12
STEP = 1e-3  # of a logarithm, for slopes
MOST_STEP = 1.0  # of a logarithm at a time: a factor of 2.7
PRIOR = 0.1  # of logarithms of factors: how strongly they stay near those of all groups together

# Constants with a common factor. Names that end in "_us" and `direct_store` are times, and are
# multiplied by it; the others are rates.
GROUPS = {
    "host": ("host_us", "host_more_us", "tensor_host_us"),
    "launches": (
        *("start_us", "more_us", "pack_us", "reduce_us", "outer_us", "skinny_us", "tensor_us"),
        *("tensor_more_us", "narrow_us", "narrow_fused_us", "fused_us", "part_us"),
    ),
    "latency": (
        *("step_us", "copied_step_us", "direct_step_us", "skinny_step_us"),
        *("fused_slice_us", "narrow_slice_us", "direct_store"),
    ),
    "memory": (
        *("memory_bytes", "cache_bytes", "skinny_bytes", "outer_bytes", "pack_bytes"),
        *("tensor_pack_bytes", "narrow_bytes", "narrow_pack_bytes"),
    ),
    "arithmetic": (
        *("multiply_adds", "outer_multiply_adds", "direct_items", "reduce_elements"),
        "reduced_elements",
    ),
    "tensor cores": (*("tensor_step_us", "narrow_step_us", "narrow_column_us", "narrow_round_us"),),
}


class TimedPlan(NamedTuple):
    """A plan and how long it took."""

    plan: Plan
    taken_us: float


def burst_us(call: Callable[[], object], finish: Callable[[], object]) -> float:
    """Return the time of a call among many, in microseconds: the median of bursts."""

    def timed(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        finish()
        return (time.perf_counter() - start) / calls

    timed(1)
    calls = max(1, min(5, int(BURST_S / timed(1))))
    calls = max(1, min(MOST_CALLS, int(BURST_S / timed(calls))))
    return 1e6 * median(timed(calls) for _ in range(BURSTS))


def timed_plans(device: Device, seconds: float) -> list[TimedPlan]:
    """Measure plans of `SHAPES`, until the time is up."""
    end = time.monotonic() + seconds
    found: list[TimedPlan] = []
    for shape in SHAPES:
        if time.monotonic() > end:
            break
        try:
            matrices = _matrices(device, shape)
        except (cl.Error, MemoryError):  # too large for the device
            continue
        for plan in _plans(device, shape):
            if time.monotonic() > end:
                break
            with suppress(cl.Error):  # it needs more memory than there is
                found.append(TimedPlan(plan, _plan_us(device, plan, matrices)))
    return found


def _plans(device: Device, shape: Shape) -> list[Plan]:
    """Return the plans that are expected to be fastest, first one of each family."""
    by_family: dict[str, list[Plan]] = {}
    for precision in ("strict", "float32"):
        problem = Problem.of(shape, precision)
        for family in planner.families(device):
            if bool(family.instructions) == (precision != "strict") and family.is_modelled:
                choices = family.candidates(problem, device.traits)
                plans = [planner.make_plan(device, problem, family, choice) for choice in choices]
                plans.sort(key=lambda plan: expected_us(plan, device.limits))
                by_family[family.name] = plans
    return list(_in_turns(list(by_family.values())))[:PLANS_OF_A_PRODUCT]


def _in_turns(lists: Sequence[Sequence[Plan]]) -> Iterator[Plan]:
    for row in zip_longest(*lists):
        yield from (plan for plan in row if plan is not None)


def _matrices(device: Device, shape: Shape) -> dict[str, Matrix]:
    """Return random operands, and memory for the result."""
    m, n, k, count = shape
    random = np.random.default_rng(0).standard_normal(1 << 16, np.float32)
    found = {}
    for name, (rows, columns) in zip("abc", ((m, k), (k, n), (m, n)), strict=True):
        flat = cl_array.to_device(device.queue, np.resize(random, count * rows * columns))
        layout = Layout((count, rows, columns), (rows * columns, columns, 1))
        found[name] = Matrix(cast("cl.Buffer", flat.base_data), 0, layout)
    return found


def _plan_us(device: Device, plan: Plan, matrices: dict[str, Matrix]) -> float:
    space = workspace(device.queue)
    return burst_us(lambda: space.run(plan, device, matrices), device.queue.finish)


def expected_times(plans: Sequence[Plan], limits: Limits, costs: Costs) -> np.ndarray:
    """Return the expected times of plans by some constants, in microseconds."""
    with_costs = replace(limits, costs=costs)
    return np.array([expected_us(plan, with_costs) for plan in plans])


def scaled(logarithms: np.ndarray, start: Costs = H200) -> Costs:
    """Return constants whose times are longer by factors, given by their logarithms, by group."""
    changes = {}
    for factor, names in zip(np.exp(logarithms), GROUPS.values(), strict=True):
        for name in names:
            is_time = name.endswith("_us") or name == "direct_store"
            changes[name] = float(getattr(start, name) * (factor if is_time else 1 / factor))
    return replace(start, **changes)


def fitted(timed: Sequence[TimedPlan], limits: Limits) -> Costs | None:
    """Return the constants that fit measured times; None if there are too few.

    If an H200's constants fit as well, they are those.
    """
    if len(timed) < LEAST_PLANS:
        return None
    plans, taken = [each.plan for each in timed], np.log([each.taken_us for each in timed])

    def errors(logarithms: np.ndarray) -> np.ndarray:
        expected = expected_times(plans, limits, scaled(logarithms))
        return np.asarray(np.log(expected) - taken)

    start = np.zeros(len(GROUPS))
    found = _least_squares(errors, start)
    before, after = (float(np.median(np.abs(errors(x)))) for x in (start, found))
    log.info(
        "expected times of %d plans are off by %.0f %% instead of %.0f %%",
        *(len(timed), 100 * np.expm1(after), 100 * np.expm1(before)),
    )
    return scaled(found) if after < before else H200


def _least_squares(errors: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> np.ndarray:
    """Return the parameters with the least errors, by Gauss and Newton's method.

    Errors above OUTLIER count less: each step weights them by the step before. Parameters are drawn
    to their mean.
    """
    best, x = start, start
    centred = PRIOR * (np.eye(len(start)) - 1 / len(start))
    for _ in range(STEPS):
        now = errors(x)
        slopes = np.stack([(errors(x + e) - now) / STEP for e in STEP * np.eye(len(x))], axis=1)
        weights = (1 + (now / OUTLIER) ** 2) ** -0.25
        matrix = np.vstack([weights[:, None] * slopes, centred])
        right = np.append(weights * now, centred @ x)
        move = np.linalg.lstsq(matrix, -right, rcond=None)[0]
        x = x + np.clip(move, -MOST_STEP, MOST_STEP)
        if np.mean(np.abs(errors(x))) < np.mean(np.abs(errors(best))):
            best = x
    return best
