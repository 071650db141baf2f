"""Plans that are cut, because a launch would have too many work-items."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, dense, make_plan, traits_with

from clgemm.core.plan import OutlierCounter
from clgemm.core.problem import Layout, Problem, Shape
from clgemm.kernels.pack.plan import pack_config
from clgemm.kernels.tiled.family import lane_configs
from clgemm.kernels.tiled.plan import make_tiled_plan
from clgemm.planning import bounded, planner
from clgemm.planning.bounded import by_way_of_scratch, upper_triangle

CONFIG = lane_configs()[-1]
PACKS = tuple(pack_config(LIMITS, tile) for tile in (CONFIG.tile_m, CONFIG.tile_n))


def planned(m, n, k):
    """The plan of a product whose operands are packed."""
    a, b = (Layout(shape, (2 * shape[1], 2)) for shape in ((m, k), (k, n)))
    return make_plan(a, b, dense(m, n), CONFIG, PACKS, LIMITS)


def items(plan):
    """The work-items of the largest launch."""
    return max(step.groups * step.config.items for step in plan.steps)


@pytest.mark.parametrize(("m", "n", "part"), [(300, 90, (256, 90)), (90, 300, (90, 256))])
def test_a_cut_plan_has_scratch_memory_for_its_largest_part(m, n, part, monkeypatch):
    """C is cut at whole tiles; the parts follow one another and share the scratch memory."""
    whole, larger = planned(m, n, 70), planned(*part, 70)
    assert items(whole) > items(larger)
    monkeypatch.setattr(bounded, "LAST_ITEM", items(larger))
    cut = planned(m, n, 70)
    assert len(cut.steps) > len(whole.steps)
    assert items(cut) < items(whole)
    assert dict(cut.scratch) == dict(larger.scratch)
    assert cut.scratch
    ends = [
        step.arguments["m"] * step.arguments["n"] for step in cut.steps if "k" in step.arguments
    ]
    assert sum(ends) == m * n


@pytest.mark.parametrize("over", [0, 1])
def test_a_plan_is_cut_only_where_it_must_be(over, monkeypatch):
    """A launch may have as many work-items as the limit, and not one more."""
    whole = planned(200, 90, 70)
    monkeypatch.setattr(bounded, "LAST_ITEM", items(whole) - over)
    assert (len(planned(200, 90, 70).steps) == len(whole.steps)) == (not over)


@pytest.mark.parametrize("kind", ["GPU", "CPU"])
def test_blocks_on_lanes(kind):
    """Kernels leave out tiles: only what is updated has a block, as large as memory allows."""
    traits = traits_with(replace(LIMITS, allocation_bytes=2**26), kind)
    for n, k, triangles, expected in (
        (1000, 70, "upper", 1000),
        (5000, 70, "upper", 2**26 // (4 * 5000 * 256) * 256),
        (10**8, 70, "upper", 256),
        (1000, 70, "both", 0),  # all of C is read and written besides
        (1000, 700, "both", 1000),
        (5000, 700, "both", 0),
        (1000, 700, "", 0),
    ):
        problem = Problem.of(Shape(n, n, k), "strict")
        problem = problem._replace(is_symmetric=not triangles, triangles=triangles)
        assert planner.triangle_rows(problem, traits) == expected


@pytest.mark.parametrize("n", [1, 31, 32, 100, 257, 1000])
def test_half_of_a_symmetric_product_has_about_half_of_the_work_groups(n):
    """Those of the tiles at the diagonal and right of it, in one launch; other shapes have all."""
    a, b = (Layout(shape, (2 * shape[1], 2)) for shape in ((n, 70), (70, n)))
    made = [
        make_tiled_plan(a, b, dense(n, n), CONFIG, PACKS, LIMITS, is_half=is_half).steps[-1]
        for is_half in (False, True)
    ]
    tiles = -(-n // CONFIG.tile_m)
    assert [step.groups for step in made] == [tiles**2, tiles * (tiles + 1) // 2]
    assert [step.config.triangle for step in made] == [False, True]
    wide = replace(CONFIG, tile_n=3 * CONFIG.tile_m // 2, work_n=CONFIG.tile_m // 2)
    assert not wide.divides


@pytest.mark.parametrize("matrices", [1, 3])
@pytest.mark.parametrize(("n", "rows"), [(300, 128), (256, 128), (100, 128), (130, 1)])
def test_a_triangle_is_computed_in_blocks_from_the_diagonal_on(n, rows, matrices):
    """Each block has its rows of A, its columns of B, and all that is right of the diagonal."""
    problem, asked = Problem.of(Shape(n, n, 70, matrices), "strict"), []

    def make(part):
        asked.append(part)
        return planned(*part.shape[:3])

    plan = upper_triangle(make, problem, rows)
    starts = range(0, n, rows)
    assert [(x.m, x.n, x.k, x.matrices) for x in asked] == [
        (min(rows, n - start), n - start, 70, matrices) for start in starts
    ]
    products = [step for step in plan.steps if "k" in step.arguments]
    firsts = [step.arguments["c_offset"].offset for step in products]
    assert firsts == [start * n + start for start in starts]


def test_products_whose_outliers_are_counted_take_turns_in_a_joined_plan():
    """Each block's counters follow those of the block before."""
    problem = Problem.of(Shape(300, 300, 70), "strict")._replace(triangles="upper")

    def make(part):
        plan = planned(*part.shape[:3])
        first = plan.steps[0]
        counting = replace(first, arguments={**first.arguments, "count": OutlierCounter(0)})
        return replace(plan, steps=(counting,), counted_products=1)

    plan = by_way_of_scratch(make, problem, 128, LIMITS)
    counters = [step.arguments["count"] for step in plan.steps if "count" in step.arguments]
    assert counters == [OutlierCounter(0), OutlierCounter(1), OutlierCounter(2)]
    assert plan.counted_products == 3
    assert dict(plan.scratch)["product"] == 4 * 128 * 300
