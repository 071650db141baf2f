"""Plans of products on tensor cores, without a device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import fallback_by
from strategies import GPU_LIMITS as LIMITS
from strategies import rows

from clgemm.core.plan import OutlierCounter, expected_us
from clgemm.core.problem import Layout
from clgemm.kernels.pack.plan import pack_config
from clgemm.kernels.tensor_core import plan as tensor_plan
from clgemm.kernels.tensor_core.plan import (
    TILE_BYTES,
    MmaVariant,
    WgmmaVariant,
    make_tensor_plan,
)
from clgemm.kernels.tiled.family import lane_configs

WIDE = WgmmaVariant(swizzle=16, guard=True, tile_n=256, stages=2)
MMA = MmaVariant(swizzle=2, guard=True)
PLAIN = lane_configs()[0]
PACK = (pack_config(LIMITS, PLAIN.tile_m), pack_config(LIMITS, PLAIN.tile_n))
FALLBACK = fallback_by(PLAIN, PACK, LIMITS)


def planned(a, b, c, config=WIDE):
    return make_tensor_plan(a, b, c, config, FALLBACK, LIMITS)


def families(plan):
    return [
        ("conditional " if step.conditional else "") + step.config.family for step in plan.steps
    ]


def firsts(step):
    return [step.arguments[f"{side}_offset"].offset for side in "abc"]


def test_a_guarded_product_is_two_launches():
    """One splits both operands, one multiplies, and falls back if it must."""
    plan = planned(rows(1000, 500), rows(500, 700), rows(1000, 700))
    assert families(plan) == ["tensor_pack", "tensor"]
    assert plan.counted_products == 1
    split, multiply = plan.steps
    assert split.arguments["count"] == multiply.arguments["count"] == OutlierCounter(0)
    assert multiply.arguments["count_next"] == OutlierCounter(1)
    assert multiply.groups == LIMITS.compute_units  # all of them split, to fall back
    assert dict(plan.scratch)["packed_a"] == 8 * 16 * (TILE_BYTES + 4)  # tf32 takes twice as much


def test_with_mma_a_guarded_product_holds_the_plain_one_as_fallback():
    """One launch splits both operands, one multiplies; the rest are conditional launches."""
    plan = planned(rows(1000, 500), rows(500, 700), rows(1000, 700), MMA)
    assert families(plan) == ["tensor_pack", "tensor_mma", "conditional tiled"]
    assert plan.counted_products == 1
    skewed = Layout((1000, 500), (1, 1000)), Layout((500, 700), (1400, 2))
    plan = planned(*skewed, rows(1000, 700), MMA)
    assert families(plan) == [
        "tensor_pack",
        "tensor_mma",
        "conditional pack",
        "conditional tiled",
    ]
    for step in plan.steps[2:]:
        assert list(step.arguments)[-2:] == ["gate", "gate_most"]
        assert step.arguments["gate"] == OutlierCounter(0)
    assert len({step.arguments["gate_most"] for step in plan.steps[2:]}) == 1


def test_tiles_of_the_last_round_are_cut_along_k():
    """Each slice has memory; a fallback that needs less shares it."""
    _, multiply, *_ = (plan := planned(rows(512, 9000), rows(9000, 512), rows(512, 512))).steps
    cuts = WIDE.cuts(8, 9000, LIMITS)
    assert cuts.slices > 4
    expected = {"whole": 0, "slices": cuts.slices, "partial": "partial", "counters": "counters"}
    assert multiply.arguments.items() >= expected.items()
    assert cuts.all_slices <= multiply.groups == LIMITS.compute_units
    assert dict(plan.scratch)["partial"] >= cuts.all_slices * 4 * 128 * 256
    _, whole, *_ = planned(rows(512, 64), rows(64, 512), rows(512, 512)).steps
    assert whole.arguments["whole"] == 8
    assert whole.arguments["slices"] == 1


def test_the_plain_method_is_cut_too():
    """It has slices of its own, in the same memory."""
    plan = planned(rows(300, 3000), rows(3000, 300), rows(300, 300))
    multiply = plan.steps[1].arguments
    cuts, plain = WIDE.cuts(6, 3000, LIMITS), WIDE.plain_cuts(1, 300, 300, 3000, LIMITS)
    assert plain.tiles == 15
    assert multiply["slices"] == cuts.slices > 4
    assert (multiply["plain_whole"], multiply["plain_slices"]) == (0, plain.slices)
    assert plain.slices > 4
    needed = max(cuts.slices_bytes, plain.slices_bytes)
    assert dict(plan.scratch)["partial"] == needed


def test_the_expected_time_counts_the_fallback():
    """By the share of products that need it."""
    operands = rows(2000, 2000), rows(2000, 2000), rows(2000, 2000)
    for config in (WIDE, MMA):
        plan = planned(*operands, config)
        few, some, every = (expected_us(plan, LIMITS, share) for share in (0, 0.5, 1))
        assert few < some < every
        assert every - some == pytest.approx(some - few, rel=0.1)
    fast = planned(*operands, replace(WIDE, guard=False))
    assert expected_us(fast, LIMITS, 1.0) == expected_us(fast, LIMITS, 0.0)


def test_fast_needs_no_fallback():
    """Two launches; none counts."""
    fast = replace(WIDE, guard=False)
    plan = planned(rows(1000, 500), rows(500, 700), rows(1000, 700), fast)
    assert families(plan) == ["tensor_pack", "tensor"]
    assert not any(isinstance(x, OutlierCounter) for s in plan.steps for x in s.arguments.values())
    assert plan.counted_products == 0
    assert dict(plan.scratch)["packed_a"] == 8 * 8 * (TILE_BYTES + 4)
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
    assert families(guarded) == ["tensor_pack", "tensor"]
    assert guarded.counted_products == 1
    plain = planned(a, b, c, MMA)
    assert families(plain)[:3] == ["tensor_pack", "tensor_mma", "conditional tiled"]


def test_a_stack_too_large_for_the_scratch_goes_in_parts(small_blocks):
    """As many matrices at a time as fit."""
    plan = planned(
        rows(5, 100, 200), rows(5, 200, 300), rows(5, 100, 300), replace(WIDE, guard=False)
    )
    assert [step.arguments["matrices"] for step in plan.steps] == [2, 2, 2, 2, 1, 1]
    assert list(map(firsts, plan.steps[1::2])) == [
        [i * 20000, i * 60000, i * 30000] for i in (0, 2, 4)
    ]


def test_no_more_work_groups_than_compute_units():
    """They stay for several tiles of C."""
    assert planned(rows(4096, 64), rows(64, 4096), rows(4096, 4096)).steps[1].groups == 132
    fast = replace(WIDE, guard=False)
    assert planned(rows(256, 64), rows(64, 300), rows(256, 300), fast).steps[1].groups == 4


@pytest.mark.parametrize("config", [WIDE, MMA])
def test_blocks_and_stacks_begin_where_they_should(small_blocks, config):
    """Every block of k but the first adds to what is there, in the fallback too."""
    plan = planned(rows(2, 300, 1000), rows(2, 1000, 300), rows(2, 300, 300), config)
    products = [s for s in plan.steps if s.config.family in ("tensor", "tensor_mma")]
    depth = 512 if config is MMA else 256  # wgmma has room for tiles of tf32, too
    blocks = range(0, 1000, depth)
    assert plan.counted_products == len(products) == 2 * len(blocks)
    assert list(map(firsts, products)) == [
        [matrix * 300000 + first, matrix * 300000 + first * 300, matrix * 90000]
        for matrix in (0, 1)
        for first in blocks
    ]
    for step in plan.steps:
        if step.config.family in ("tensor", "tensor_mma", "tiled"):
            turn = next(x for x in step.arguments.values() if isinstance(x, OutlierCounter))
            alpha, beta = step.arguments["alpha"], step.arguments["beta"]
            if (alpha, beta) != (1.0, 0.0):  # slices of k, which the next launch adds up
                assert (beta == "beta") == (turn.product % len(blocks) == 0)
    packed = {slot: size for slot, size in plan.scratch if slot != "partial"}
    assert max(packed.values()) <= tensor_plan.SCRATCH_BYTES // 2
