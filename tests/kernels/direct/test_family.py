"""The direct family: which products are small, its configs and its plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, TWO_CORES, dense, make_scaling_plan, traits_with

from clgemm.core.plan import Element
from clgemm.core.problem import Problem, Shape
from clgemm.kernels.direct.family import DIRECT, DirectConfig, direct_config

CPU, GPU = traits_with(TWO_CORES, "CPU"), traits_with(LIMITS)


@pytest.mark.parametrize(
    ("shape", "suits"),
    [((32, 32, 32), True), ((33, 32, 32), False), ((32, 32, 32, 50), True), ((900, 7, 900), False)],
)
def test_small_products_need_no_packing(shape, suits):
    """Each product of a batch counts."""
    assert DIRECT.suits(Problem.of(Shape(*shape), "strict"), GPU) == suits


def test_samples_of_a_gpu_are_larger():
    """A GPU may make larger products directly: it takes the plan that is expected to be fastest."""
    assert "small" in DIRECT.samples("GPU")
    assert "small" not in DIRECT.samples("CPU")
    for shape in (shape for shapes in DIRECT.samples("CPU").values() for shape in shapes):
        assert DIRECT.suits(Problem.of(shape, "strict"), CPU)
    for shape in (shape for shapes in DIRECT.samples("GPU").values() for shape in shapes):
        assert DIRECT.candidates(Problem.of(shape, "strict"), GPU)
    assert not DIRECT.candidates(Problem.of(Shape(500, 500, 500), "strict"), GPU)


@pytest.mark.parametrize(("device", "config"), [(2, 2), (4, 4), (8, 8), (16, 8)])
def test_work_items_with_vectors_are_alone(device, config):
    """A CPU's work-group is one work-item, with vectors of at most eight floats."""
    found = direct_config(replace(LIMITS, vector_width=device, work_group_size=1))
    assert (found.items, found.width) == (1, config)
    assert not list(found.problems_on(replace(LIMITS, work_group_size=1)))


def test_work_items_on_lanes_come_in_groups():
    """A GPU's work-group is square and as large as the smallest devices take."""
    found = direct_config(LIMITS)
    assert found.items_m == found.items_n
    assert not list(found.problems_on(replace(LIMITS, work_group_size=64)))


def test_scaling_reads_only_c():
    """``C = beta C`` names no buffer of A or B."""
    made = make_scaling_plan(dense(5, 6), DirectConfig(8, 8, 2, 2, False))
    assert made.steps[0].arguments["k"] == 0
    assert not {"a", "b"} & {
        x.slot if isinstance(x, Element) else x for x in made.steps[0].arguments.values()
    }


def space_of(traits):
    """Return the space around the plainest config."""
    return DIRECT.search_space(DIRECT.plainest(traits), traits)


def test_large_work_groups_are_tried_on_lanes_only():
    """A work-group of a CPU has few work-items: each fills a core's vectors."""
    on_lanes, on_vectors = space_of(traits_with(LIMITS)), space_of(traits_with(TWO_CORES, "CPU"))
    assert max(on_lanes.values["items_m"]) == 32
    assert max(on_vectors.values["items_m"]) == 8
    assert on_lanes.coarse != on_vectors.coarse
