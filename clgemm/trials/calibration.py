"""Calibration: how long plans take on a device, and the constants of expected times from that.

A constant is not fitted alone, for which a short measurement is too little: those of a group have a
common factor over those of a device that is known. docs/family_costs.py fits each of them, to hours
of measurements.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import zip_longest
from statistics import median
from typing import Any, NamedTuple, cast

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from clgemm.core.cache import forget_plans
from clgemm.core.costs import H200, INTEL, POCL, POCL_3_0, POCL_MANY_CORES, Costs, CpuCosts
from clgemm.core.plan import Plan, expected_us
from clgemm.core.problem import Layout, Problem, Shape
from clgemm.core.traits import Limits
from clgemm.hardware.device import Device
from clgemm.planning import planner
from clgemm.records.verdicts import keep_costs, measured_costs
from clgemm.runtime.operands import Matrix
from clgemm.runtime.workspace import workspace

log = logging.getLogger(__name__)

# Products whose plans together depend on every constant, a small one first.
SHAPES = (
    Shape(128, 128, 128),
    Shape(512, 512, 512),
    Shape(1000, 1000, 1000),
    Shape(20, 20, 20),
    Shape(4096, 4096, 4096),
    Shape(1, 4096, 4096),
    Shape(3000, 3000, 2),
    Shape(64, 64, 20_000),
    Shape(64, 4096, 4096),
    Shape(777, 1301, 999),
    Shape(2048, 2048, 2048),
    Shape(64, 64, 64, 200),
    Shape(8192, 64, 512),
    Shape(4096, 2, 4096),
    Shape(16, 4096, 4096),
    Shape(300, 5000, 300),
)
CPU_SHAPES = (
    Shape(1000, 1000, 1000),
    Shape(20, 20, 20),
    Shape(1, 2000, 2000),
    Shape(3000, 2, 1000),
    Shape(16, 16, 16, 500),
    Shape(4, 1500, 1500),
    Shape(100, 100, 3000),
    Shape(2000, 9, 60),
    Shape(1500, 700, 3),
    Shape(300, 200, 100),
    Shape(8, 300, 4000),
    Shape(5, 40, 3000),
    Shape(1, 200, 300),
    Shape(3, 50, 9000),
)
PLANS_OF_A_PRODUCT = 6
LEAST_PLANS = 24  # with fewer, nothing is fitted
# Of a calibration beside other work: the time with all builds, and what a plan may take at most.
CALIBRATION_S, LONGEST_US = 25.0, 2e4
FIRST_WORK = 2**24  # multiply-adds of a product that is measured before any rate is known
LOOK_S, OWN_SHARE = 0.01, 0.8  # a process that gets less of a core measures nothing
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
        *("start_us", "more_us", "pack_us", "reduce_us", "outer_us", "skinny_us", "dots_us"),
        *("tensor_us", "narrow_us", "narrow_fused_us", "fused_us", "part_us"),
    ),
    "latency": (
        *("step_us", "copied_step_us", "one_buffer_step_us", "direct_step_us", "skinny_step_us"),
        *("dots_step_us", "narrow_load_step_us"),
        *("fused_slice_us", "narrow_slice_us", "narrow_pack_us", "direct_store"),
    ),
    "memory": (
        *("memory_bytes", "cache_bytes", "skinny_bytes", "dots_bytes", "outer_bytes"),
        "pack_bytes",
        *("tensor_pack_bytes", "narrow_bytes"),
    ),
    "arithmetic": (
        *("multiply_adds", "outer_multiply_adds", "direct_items", "reduce_elements"),
        "reduced_elements",
    ),
    "tensor cores": (
        *("tensor_step_us", "tensor_slice_us", "tensor_round_us"),
        *("narrow_step_us", "narrow_column_us", "narrow_round_us"),
    ),
}

CPU_GROUPS = {
    "launches": ("start_us", "launch_us", "skinny_group_us", "direct_group_us"),
    "memory": ("skinny_bytes", "packed", "transposed", "stored", "added", "copied"),
    "arithmetic": (
        *("blocked_vectors", "skinny_multiply_adds", "skinny_along_k", "skinny_dots"),
        "skinny_stored",
    ),
    "direct": ("direct_step_us",),
}


class TimedPlan(NamedTuple):
    """A plan and how long it took."""

    plan: Plan
    taken_us: float


class Contender(NamedTuple):
    """A call that is timed: what waits for its results, and the context that it is made in."""

    call: Callable[[], object]
    finish: Callable[[], object]
    context: Callable[[], AbstractContextManager[object]] = nullcontext

    def burst_s(self, calls: int) -> float:
        """Return the time of a call among so many, in seconds."""
        with self.context():
            start = time.perf_counter()
            for _ in range(calls):
                self.call()
            self.finish()
            return (time.perf_counter() - start) / calls

    def calls_of_burst(self) -> int:
        """Return how many calls a burst takes, after some calls that compile and warm up."""
        self.burst_s(1)
        calls = max(1, min(5, int(BURST_S / self.burst_s(1))))
        return max(1, min(MOST_CALLS, int(BURST_S / self.burst_s(calls))))


def bursts_us(contenders: Sequence[Contender]) -> list[float]:
    """Return the time of a call of each contender, in microseconds: medians of bursts in turns."""
    calls = [each.calls_of_burst() for each in contenders]
    rounds = [
        [each.burst_s(count) for each, count in zip(contenders, calls, strict=True)]
        for _ in range(BURSTS)
    ]
    return [1e6 * median(times) for times in zip(*rounds, strict=True)]


def burst_us(call: Callable[[], object], finish: Callable[[], object]) -> float:
    """Return the time of a call among many, in microseconds: the median of bursts."""
    return bursts_us([Contender(call, finish)])[0]


def plan_us(
    device: Device, plan: Plan, matrices: Mapping[str, Matrix], is_turned: bool = False
) -> float:
    """Return the time of a plan, in microseconds.

    On a CPU, most products are of host arrays, and each is waited for. Threads sleep between them.

    Parameters
    ----------
    matrices : mapping of str to Matrix
        A, B and C of the product.
    is_turned : bool, optional
        Whether the plan is of the transposed product, C' = B' A'. It knows the strides.
    """
    space, finish = workspace(device.queue), device.queue.finish
    if is_turned:
        matrices = {**matrices, "a": matrices["b"], "b": matrices["a"]}

    def run_and_wait() -> None:
        space.run(plan, device, matrices)
        finish()

    if device.traits.has_vectors:
        return burst_us(run_and_wait, finish)
    if not space.order.omits_events:
        return burst_us(lambda: space.run(plan, device, matrices), finish)
    # As the call cache enqueues calls with the same arrays.
    bound = space.bind(plan, device)
    buffers = {slot: matrix.buffer for slot, matrix in matrices.items()}
    scalars = (1.0, 0.0, *(matrices[slot].offset for slot in "abc"))
    identity = object()

    def run_again() -> object:
        return space.start_again(bound, identity) or space.start(
            bound, buffers, scalars, (), identity
        )

    return burst_us(run_again, finish)


def is_unknown(device: Device) -> bool:
    """Return whether a device is a GPU of which no constants were measured, here or before.

    The known ones have wgmma units.
    """
    traits = device.traits
    if traits.has_vectors or not traits.has_cost_model or traits.has_wgmma:
        return False
    return measured_costs(device.name, device.runtime) is None


def calibrate(device: Device) -> int:
    """Measure the constants of a GPU and keep them; return the number of plans.

    A GPU that is too slow for it keeps those that it has. On a machine that is too busy, nothing is
    kept: the next process tries again.
    """
    looks: list[bool] = []

    def has_core() -> bool:
        looks.append(_has_core())
        return looks[-1]

    timed = timed_plans(device, CALIBRATION_S, LONGEST_US, has_core)
    found = fitted(timed, device.limits)
    if timed and (found is not None or all(looks)):
        keep_costs(device.name, device.runtime, found or device.limits.costs, len(timed))
        forget_plans()
    return len(timed)


def _has_core() -> bool:
    """Return whether this process gets a core to itself now."""
    begun, computed = time.perf_counter(), time.thread_time()
    while time.perf_counter() - begun < LOOK_S:
        pass
    return time.thread_time() - computed > OWN_SHARE * LOOK_S


def timed_plans(
    device: Device,
    seconds: float,
    longest_us: float = math.inf,
    may_measure: Callable[[], bool] = lambda: True,
) -> list[TimedPlan]:
    """Measure plans of `SHAPES`, or `CPU_SHAPES`, until the time is up.

    Parameters
    ----------
    longest_us : float, optional
        Products that are likely to take longer are left out.
    may_measure : callable, optional
        Asked before each product, which is left out otherwise.
    """
    end = time.monotonic() + seconds
    found: list[TimedPlan] = []
    most = FIRST_WORK if longest_us < math.inf else math.inf  # multiply-adds of a product
    for shape in CPU_SHAPES if device.traits.has_vectors else SHAPES:
        if time.monotonic() > end:
            break
        if shape.work > most or not may_measure():
            continue
        try:
            matrices = _matrices(device, shape)
        except (cl.Error, MemoryError):  # too large for the device
            continue
        for plan, is_turned in _plans(device, shape):
            if time.monotonic() > end:
                break
            with suppress(cl.Error):  # it needs more memory than there is
                found.append(TimedPlan(plan, plan_us(device, plan, matrices, is_turned)))
                most = max(most, longest_us * shape.work / found[-1].taken_us)
    return found


def _plans(device: Device, shape: Shape) -> list[tuple[Plan, bool]]:
    """Return the plans that are expected to be fastest, first one of each family.

    Each comes with whether it is one of the transposed product.
    """
    by_family: dict[str, list[tuple[Plan, bool]]] = {}
    for precision in ("strict", "float32"):
        problem = Problem.of(shape, precision)
        for family in planner.families(device):
            if bool(family.instructions) == (precision != "strict"):
                plans = []
                for choice in family.candidates(problem, device.traits):
                    part, is_turned = planner.oriented(problem, family, choice, device.traits)
                    plans.append((planner.make_plan(device, part, family, choice), is_turned))
                plans.sort(key=lambda found: expected_us(found[0], device.limits))
                by_family[family.name] = plans
    in_turns = (found for row in zip_longest(*by_family.values()) for found in row)
    return list(filter(None, in_turns))[:PLANS_OF_A_PRODUCT]


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


def expected_times(plans: Sequence[Plan], limits: Limits, costs: Costs | CpuCosts) -> np.ndarray:
    """Return the expected times of plans by some constants, in microseconds."""
    with_costs = limits.with_costs(costs)
    return np.array([expected_us(plan, with_costs) for plan in plans])


def groups_of(costs: Costs | CpuCosts) -> dict[str, tuple[str, ...]]:
    """Return the groups of constants that have a common factor."""
    return CPU_GROUPS if isinstance(costs, CpuCosts) else GROUPS


def scaled(logarithms: np.ndarray, start: Costs | CpuCosts = H200) -> Costs | CpuCosts:
    """Return constants whose times are longer by factors, given by their logarithms, by group."""
    changes = {}
    for factor, names in zip(np.exp(logarithms), groups_of(start).values(), strict=True):
        for name in names:
            is_time = name.endswith("_us") or name == "direct_store"
            changes[name] = float(getattr(start, name) * (factor if is_time else 1 / factor))
    return cast("Costs | CpuCosts", replace(cast("Any", start), **changes))


def fitted(timed: Sequence[TimedPlan], limits: Limits) -> Costs | CpuCosts | None:
    """Return the constants that fit measured times; None if there are too few.

    If those of a device that is known fit as well, they are those.
    """
    if len(timed) < LEAST_PLANS:
        return None
    known = (POCL, INTEL, POCL_3_0, POCL_MANY_CORES) if limits.has_vectors else (H200,)
    found = [_fitted(timed, limits, start) for start in known]
    return min(found, key=lambda each: each[1])[0]


def _fitted(
    timed: Sequence[TimedPlan], limits: Limits, known: Costs | CpuCosts
) -> tuple[Costs | CpuCosts, float]:
    """Return the constants that fit best, in steps from some that are known, and their error."""
    plans, taken = [each.plan for each in timed], np.log([each.taken_us for each in timed])

    def errors(logarithms: np.ndarray) -> np.ndarray:
        expected = expected_times(plans, limits, scaled(logarithms, known))
        return np.asarray(np.log(expected) - taken)

    start = np.zeros(len(groups_of(known)))
    found = _least_squares(errors, start)
    before, after = (float(np.median(np.abs(errors(x)))) for x in (start, found))
    log.info(
        "expected times of %d plans are off by %.0f %% instead of %.0f %%",
        *(len(timed), 100 * np.expm1(after), 100 * np.expm1(before)),
    )
    return (scaled(found, known), after) if after < before else (known, before)


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
