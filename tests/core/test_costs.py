"""Tests of the constants of expected times, and of how times that overlap are joined."""

from __future__ import annotations

import math
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import TWO_CORES, dense, traits_with

from clgemm.core.costs import (
    H200,
    INTEL,
    INTEL_MANY_CORES,
    POCL,
    POCL_3_0,
    POCL_MANY_CORES,
    CpuCosts,
    joined,
)
from clgemm.core.plan import expected_us, least_us
from clgemm.core.problem import Problem, Shape
from clgemm.kernels import FAMILIES

TIMES = st.lists(st.floats(0, 1e6), min_size=1, max_size=4)


@given(times=TIMES, power=st.floats(1, 20))
def test_joined_times_lie_between_the_longest_and_the_sum(times, power):
    """What overlaps takes as long as the longest at least, and as all at most."""
    found = joined(power, *times)
    assert max(times) <= found * (1 + 1e-9)
    assert found <= sum(times) * (1 + 1e-9)


def test_equal_times_overlap_by_the_power():
    """A power of 1 adds them up; a large one takes the longest."""
    assert joined(1.0, 3.0, 4.0) == pytest.approx(7.0)
    assert joined(2.0, 3.0, 4.0) == pytest.approx(5.0)
    assert joined(50.0, 3.0, 4.0) == pytest.approx(4.0, rel=1e-3)
    assert joined(2.0, 0.0) == 0.0


def test_every_constant_is_above_zero():
    """They are times, rates and factors."""
    assert all(value > 0 and math.isfinite(value) for value in asdict(H200).values())


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
