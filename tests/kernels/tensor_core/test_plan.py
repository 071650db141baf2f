"""Plans of products on tensor cores, without a device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import fallback_by
from strategies import GPU_LIMITS as LIMITS
from strategies import rows

from clgemm.core.layout import Layout
from clgemm.core.steps import OutlierCounter, expected_us
from clgemm.kernels.pack.defaults import pack_config
from clgemm.kernels.tensor_core import plan as tensor_plan
from clgemm.kernels.tensor_core.config import (
    TILE_BYTES,
    MmaVariant,
    SingleLaunchConfig,
    WgmmaVariant,
)
from clgemm.kernels.tensor_core.plan import make_tensor_plan
from clgemm.kernels.tiled.defaults import lane_configs

WIDE = WgmmaVariant(swizzle=16, tf32=False, guard=True, tile_n=256, stages=2)
WIDE_TF32 = replace(WIDE, tf32=True)
MMA = MmaVariant(swizzle=2, tf32=False, guard=True)
PLAIN = lane_configs()[0]
PACK = (pack_config(LIMITS, PLAIN.tile_m), pack_config(LIMITS, PLAIN.tile_n))
FALLBACK = fallback_by(PLAIN, PACK, LIMITS)


def planned(a, b, c, *tiers):
    return make_tensor_plan(a, b, c, tiers or (WIDE,), FALLBACK, LIMITS)


def families(plan):
    return [
        ("conditional " if step.conditional else "") + step.config.family for step in plan.steps
    ]


def firsts(step):
    return [step.arguments[f"{side}_offset"].offset for side in "abc"]


def test_a_guarded_product_holds_the_plain_one_as_fallback(apart):
    """One launch splits both operands, one multiplies; the rest are conditional launches."""
    plan = planned(rows(1000, 500), rows(500, 700), rows(1000, 700))
    assert families(plan) == ["tensor_pack", "tensor", "conditional tiled"]
    assert plan.counted_products == 1
    skewed = Layout((1000, 500), (1, 1000)), Layout((500, 700), (1400, 2))
    plan = planned(*skewed, rows(1000, 700))
    assert families(plan) == [
        "tensor_pack",
        "tensor",
        "conditional pack",
        "conditional tiled",
    ]
    for step in plan.steps[2:]:
        assert list(step.arguments)[-2:] == ["gate", "gate_most"]
        assert step.arguments["gate"] == OutlierCounter(0, 0)
    assert len({step.arguments["gate_most"] for step in plan.steps[2:]}) == 1


def test_small_products_are_made_in_one_launch():
    """If they are guarded and each of the plain product's tiles has a compute unit."""
    plan = planned(rows(1000, 500), rows(500, 1024), rows(1000, 1024))
    (step,) = plan.steps
    assert (step.config, step.groups) == (SingleLaunchConfig.of(WIDE), 132)
    counters = {
        "count": OutlierCounter(0, 0),
        "count_next": OutlierCounter(1, 0),
        "counters": "counters",
    }
    assert step.arguments.items() >= counters.items()
    assert plan.counted_products == 1
    assert dict(plan.scratch)["packed_a"] == 8 * 8 * (TILE_BYTES + 4)
    stack = planned(rows(2, 300, 500), rows(2, 500, 300), rows(2, 300, 300))
    assert families(stack)[:2] == ["tensor_pack", "tensor"]
    operands = rows(300, 500), rows(500, 300), rows(300, 300)
    apart = make_tensor_plan(*operands, (WIDE,), FALLBACK, LIMITS, single_launch=False)
    assert families(apart)[:2] == ["tensor_pack", "tensor"]
    for m, k, config in ((1100, 500, WIDE), (1000, 1700, WIDE), (1000, 500, MMA)):
        plan = planned(rows(m, k), rows(k, 1024), rows(m, 1024), config)
        assert "tensor_single_launch" not in families(plan)


def test_tiles_of_the_last_round_are_cut_along_k(apart):
    """Each slice has memory; a fallback that needs less shares it."""
    _, multiply, *_ = (plan := planned(rows(512, 9000), rows(9000, 512), rows(512, 512))).steps
    cuts = WIDE.cuts(8, 9000, LIMITS)
    assert cuts.slices > 4
    expected = {"whole": 0, "slices": cuts.slices, "partial": "partial", "counters": "counters"}
    assert multiply.arguments.items() >= expected.items()
    assert multiply.groups == cuts.all_slices
    assert dict(plan.scratch)["partial"] >= cuts.all_slices * 4 * 128 * 256
    _, whole, *_ = planned(rows(512, 64), rows(64, 512), rows(512, 512)).steps
    assert whole.arguments["whole"] == 8
    assert whole.arguments["slices"] == 1


def test_a_single_launch_cuts_its_fallback_too():
    """Each has slices of its own, in the same memory."""
    plan = planned(rows(300, 3000), rows(3000, 300), rows(300, 300))
    (step,) = plan.steps
    single = SingleLaunchConfig.of(WIDE)
    cuts, plain = single.cuts(9, 3000, LIMITS), single.plain_cuts(300, 300, 3000, LIMITS)
    assert plain.tiles == 15
    assert step.arguments["slices"] == cuts.slices > 4
    assert (step.arguments["plain_whole"], step.arguments["plain_slices"]) == (0, plain.slices)
    assert plain.slices > 4
    needed = max(cuts.all_slices * 128 * 128, plain.all_slices * 128 * 64)
    assert dict(plan.scratch)["partial"] == 4 * needed


def test_tf32_stands_between():
    """It gives way to the plain kernel only."""
    plan = planned(rows(1000, 500), rows(500, 700), rows(1000, 700), WIDE, WIDE_TF32)
    tiers = ["tensor_pack", "tensor"] * 2
    assert families(plan) == [*tiers, "conditional tiled"]
    assert plan.counted_products == 1
    assert dict(plan.scratch)["packed_a"] == 8 * 16 * (TILE_BYTES + 4)
    assert {step.arguments["gate"] for step in plan.steps[4:]} == {OutlierCounter(0, 1)}


def test_the_expected_time_counts_the_first_fallback(apart):
    """By the share of products that need it: the plain kernel, tf32, or a part of the launch."""
    operands = rows(2000, 2000), rows(2000, 2000), rows(2000, 2000)
    plain, tf32 = planned(*operands, WIDE), planned(*operands, WIDE, WIDE_TF32)
    times = [[expected_us(plan, LIMITS, share) for share in (0, 0.5, 1)] for plan in (plain, tf32)]
    assert times[0][0] == pytest.approx(times[1][0], rel=0.05)  # but for the host
    for few, some, every in times:
        assert few < some < every
        assert every - some == pytest.approx(some - few, rel=0.1)
    assert times[1][2] < times[0][2]
    fast = planned(*operands, replace(WIDE, guard=False))
    assert expected_us(fast, LIMITS, 1.0) == expected_us(fast, LIMITS, 0.0)


def test_the_expected_time_of_a_single_launch_counts_the_fallback_in_it():
    """Unless it has none."""
    operands = rows(700, 700), rows(700, 700), rows(700, 700)
    for guard in (True, False):
        plan = planned(*operands, replace(WIDE, guard=guard))
        assert len(plan.steps) == 1
        grows = expected_us(plan, LIMITS, 1.0) > expected_us(plan, LIMITS, 0.0)
        assert grows == guard


def test_fast_needs_no_fallback():
    """Two launches, or one; none counts."""
    fast = replace(WIDE, guard=False)
    for size, expected in ((2000, ["tensor_pack", "tensor"]), (1000, ["tensor_single_launch"])):
        plan = planned(rows(size, 500), rows(500, 700), rows(size, 700), fast)
        assert families(plan) == expected
        assert not any(
            isinstance(x, OutlierCounter) for s in plan.steps for x in s.arguments.values()
        )
        assert plan.counted_products == 0
        assert dict(plan.scratch)["packed_a"] == -(-size // 128) * 8 * (TILE_BYTES + 4)
        assert dict(plan.scratch)["packed_b"] == 6 * 8 * (TILE_BYTES + 4)


def test_a_stack_takes_the_launches_of_one_product():
    """As far as its loops join; what is repeated is packed once."""
    fast = replace(WIDE, guard=False)
    a, b, c = rows(40, 300, 500), rows(40, 500, 700), rows(40, 300, 700)
    split, multiply = planned(a, b, c, fast).steps
    assert split.arguments["matrices"] == multiply.arguments["matrices"] == 40
    assert split.groups == 40 * (3 + 6) * 8
    assert multiply.groups == 132
    shared = b._replace(strides=(0, *b.strides[1:]))
    plan = planned(a, shared, c, fast)
    assert plan.steps[0].groups == (40 * 3 + 6) * 8
    assert dict(plan.scratch)["packed_b"] == 6 * 8 * (TILE_BYTES + 4)
    nested = planned(
        *(
            x._replace(shape=(5, 8, *x.shape[1:]), strides=(9 * x.strides[0], *x.strides))
            for x in (a, b, c)
        ),
        fast,
    )
    assert [step.arguments["matrices"] for step in nested.steps] == 10 * [8]
    guarded = planned(a, b, c, WIDE)
    assert families(guarded)[:3] == ["tensor_pack", "tensor", "conditional tiled"]
    assert guarded.counted_products == 1


def test_a_stack_too_large_for_the_scratch_goes_in_parts(small_blocks):
    """As many matrices at a time as fit."""
    plan = planned(
        rows(5, 100, 200), rows(5, 200, 300), rows(5, 100, 300), replace(WIDE, guard=False)
    )
    assert [step.arguments["matrices"] for step in plan.steps] == [2, 2, 2, 2, 1, 1]
    assert list(map(firsts, plan.steps[1::2])) == [
        [i * 20000, i * 60000, i * 30000] for i in (0, 2, 4)
    ]


def test_no_more_work_groups_than_compute_units(apart):
    """They stay for several tiles of C."""
    assert planned(rows(4096, 64), rows(64, 4096), rows(4096, 4096)).steps[1].groups == 132
    assert planned(rows(256, 64), rows(64, 300), rows(256, 300)).steps[1].groups == 4


def test_blocks_and_stacks_begin_where_they_should(small_blocks):
    """Every block of k but the first adds to what is there, in the fallback too."""
    plan = planned(rows(2, 300, 1000), rows(2, 1000, 300), rows(2, 300, 300))
    products = [s for s in plan.steps if s.config.family == "tensor"]
    assert plan.counted_products == len(products) == 4
    assert list(map(firsts, products)) == [
        [matrix * 300000 + half * 512, matrix * 300000 + half * 512 * 300, matrix * 90000]
        for matrix in (0, 1)
        for half in (0, 1)
    ]
    for step in plan.steps:
        if step.config.family in ("tensor", "tiled"):
            turn = next(x for x in step.arguments.values() if isinstance(x, OutlierCounter))
            alpha, beta = step.arguments["alpha"], step.arguments["beta"]
            if (alpha, beta) != (1.0, 0.0):  # slices of k, which the next launch adds up
                assert (beta == "beta") == (turn.product % 2 == 0)
    packed = {slot: size for slot, size in plan.scratch if slot != "partial"}
    assert max(packed.values()) <= tensor_plan.SCRATCH_BYTES // 2
