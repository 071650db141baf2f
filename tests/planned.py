"""Plans by a config that the test gives, without a device."""

from __future__ import annotations

from clgemm.core.config import KernelConfig, Limits
from clgemm.core.layout import Layout
from clgemm.core.problem import Problem
from clgemm.core.steps import Plan
from clgemm.core.traits import Traits
from clgemm.kernels import family_named
from clgemm.kernels.common.choice import Choice
from clgemm.kernels.common.family import Fallback
from clgemm.planning.bounded import bounded

__all__ = ["fallback_by", "make_plan", "make_scaling_plan", "traits_with"]


def traits_with(limits: Limits, kind: str = "GPU", **others: object) -> Traits:
    """Return the traits of a device with these limits."""
    return Traits(limits, kind, **others)  # type: ignore[arg-type]


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
        return bounded(fallback, problem)
    return bounded(lambda part: family.plan(part, choice, traits, fallback), problem)


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
