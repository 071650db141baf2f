"""Plans by a config that the test gives, without a device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from strategies import GPU_LIMITS

from clgemm.core import plan as plans
from clgemm.core.config import KernelConfig
from clgemm.core.plan import Argument, Plan, Step
from clgemm.core.problem import Layout, Problem
from clgemm.core.traits import Limits, Traits
from clgemm.kernels import family_named
from clgemm.kernels.common.family import Choice, Fallback
from clgemm.planning.bounded import bounded

LIMITS = replace(GPU_LIMITS, compute_units=8)
TWO_CORES = replace(LIMITS, compute_units=2, vector_width=16)


def dense(m: int, n: int, *batch: int) -> Layout:
    """A batch of dense row-major matrices."""
    strides: tuple[int, ...] = (1,)
    for length in (n, m, *reversed(batch))[: len(batch) + 1]:
        strides = (strides[0] * length, *strides)
    return Layout((*batch, m, n), strides)


def kernels(plan: Plan) -> list[str]:
    """The families of a plan's launches."""
    return [step.config.family for step in plan.steps]


def scales(step: Step) -> tuple[Argument, Argument]:
    """The arguments alpha and beta of a launch."""
    return step.arguments["alpha"], step.arguments["beta"]


def work_of(step: Step) -> int:
    """The multiply-adds of a launch for each matrix."""
    return math.prod(step.arguments[size] for size in "mnk")


def matrices_of(step: Step) -> int:
    """The matrices of a launch."""
    return plans.matrices_of(step.arguments["counts"])


def traits_with(limits: Limits, kind: str = "GPU", **others: Any) -> Traits:
    """Return the traits of a device with these limits."""
    return Traits(limits, kind, **others)


def make_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: KernelConfig,
    pack: tuple[KernelConfig, ...] | None,
    limits: Limits,
    is_fallback: bool = False,
) -> Plan:
    """Return the plan of a product; with `is_fallback`, as the fallback of another plan."""
    family, traits = family_named(config.family), traits_with(limits)
    problem, choice = Problem(a, b, c, "strict"), Choice(config, pack)
    fallback = family.fallback(problem, choice, traits)
    if is_fallback:
        return bounded(fallback, problem, limits)
    return bounded(lambda part: family.plan(part, choice, traits, fallback), problem, limits)


def make_scaling_plan(c: Layout, config: KernelConfig) -> Plan:
    """Return the plan of ``C = beta C``."""
    problem = Problem(c, c, c, None).scaling()
    limits = Limits(2**15, 256, 2**30, 8, 1)
    return make_plan(*problem.layouts, config, None, limits)


def fallback_by(
    config: KernelConfig, pack: tuple[KernelConfig, ...] | None, limits: Limits
) -> Fallback:
    """Return a function that plans a fallback by a config."""
    return lambda part: make_plan(*part.layouts, config, pack, limits, is_fallback=True)
