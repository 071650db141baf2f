"""Tests of the constants of expected times on CPUs, with the families that read them."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from planned import TWO_CORES, dense, traits_with

from clgemm.core.cpu_costs import INTEL, INTEL_MANY_CORES, POCL, POCL_3_0, POCL_MANY_CORES, CpuCosts
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import expected_us, least_us
from clgemm.kernels import FAMILIES

CPU = traits_with(TWO_CORES, "CPU", register_width=16, is_vector_compiler=True)
NAMES = [field.name for field in fields(CpuCosts)]
# Together they need every constant: rows and columns of every order, split-k, an A to be packed.
SHAPES = (
    *(
        Shape(1, 3000, 3000),
        Shape(16, 3000, 3000),
        Shape(3000, 4, 900),
        Shape(4, 20, 9000),
        Shape(20, 20, 20),
    ),
    *(Shape(1000, 1000, 1000), Shape(40, 30, 9000), Shape(3, 6, 2000), Shape(9000, 9000, 9000)),
)


def expected(costs):
    """The expected times of plans of all families, with operands of each order."""
    limits, times = TWO_CORES.with_costs(costs), []
    for m, n, k, _ in SHAPES:
        for a, b in (
            (dense(m, k), dense(k, n)),
            (dense(k, m).transposed(), dense(n, k).transposed()),
        ):
            problem = Problem(a, b, dense(m, n), "strict")
            for family in FAMILIES:
                if family.runs_on(CPU) and not family.instructions:
                    for choice in family.candidates(problem, CPU):
                        traits = replace(CPU, limits=limits)
                        plan = family.plan(problem, choice, traits, lambda part: part)
                        times.append(expected_us(plan, limits))
    return times


@pytest.mark.parametrize("name", NAMES)
def test_every_constant_counts(name):
    """A time that grows makes plans take longer, as does a rate that falls."""
    before = expected(POCL)
    factor = 2 if name.endswith("_us") or name in ("direct_strided", "skinny_again") else 0.5
    after = expected(replace(POCL, **{name: factor * getattr(POCL, name)}))
    assert all(x >= y for x, y in zip(after, before, strict=True))
    assert after != before


@pytest.mark.parametrize("costs", [POCL, INTEL, INTEL_MANY_CORES, POCL_3_0, POCL_MANY_CORES])
def test_no_plan_takes_less_than_a_launch(costs):
    """Times are those of a start, of launches, and of what these do."""
    limits = TWO_CORES.with_costs(costs)
    assert least_us(limits) == costs.start_us + costs.launch_us
    assert min(expected(costs)) > least_us(limits)
    assert limits.cpu_costs == costs
    assert limits.has_vectors
