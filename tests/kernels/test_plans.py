"""Plans as numbers, without a device."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest
from planned import make_plan, make_scaling_plan
from strategies import GPU_LIMITS

from clgemm.core.config import Limits
from clgemm.core.layout import Layout, Level
from clgemm.core.steps import Element, ceil_div, round_up, slices
from clgemm.kernels.blocked import estimate as blocked_estimate
from clgemm.kernels.blocked.defaults import register_config
from clgemm.kernels.blocked.plan import is_faster_transposed
from clgemm.kernels.common import panels
from clgemm.kernels.direct.config import DirectConfig
from clgemm.kernels.pack.config import PackConfig
from clgemm.kernels.pack.defaults import copy_config, pack_config, vector_pack_config
from clgemm.kernels.pack.plan import make_copy_plan
from clgemm.kernels.skinny_cpu.defaults import skinny_config
from clgemm.kernels.skinny_gpu.defaults import skinny_lanes_config
from clgemm.kernels.split_k import plan as split_k
from clgemm.kernels.tiled import estimate as tiled_estimate
from clgemm.kernels.tiled import plan as tiled_plan
from clgemm.kernels.tiled.defaults import lane_configs, nvidia_configs
from clgemm.kernels.tiled.estimate import TiledEstimate
from clgemm.kernels.tiled.plan import reads_singly

LIMITS = replace(GPU_LIMITS, compute_units=8)
CONFIG = replace(lane_configs()[1], in_place=False)
IN_PLACE = lane_configs()[1]
PACK = (pack_config(LIMITS, CONFIG.tile_m), pack_config(LIMITS, CONFIG.tile_n))


def rows(m, n, *batch):
    strides = (1,)
    for length in (n, m, *reversed(batch))[: len(batch) + 1]:
        strides = (strides[0] * length, *strides)
    return Layout((*batch, m, n), strides)


REGISTER = register_config(16, True, False)
TWO_CORES = replace(LIMITS, compute_units=2, vector_width=16)
VECTOR_PACK = (vector_pack_config(REGISTER.tile_m, True),)


def planned_for_vectors(m, n, k):
    return make_plan(rows(m, k), rows(k, n), rows(m, n), REGISTER, VECTOR_PACK, LIMITS)


def planned(a, b, c, limits=LIMITS):
    return make_plan(a, b, c, CONFIG, PACK, limits)


def kernels(made):
    return [step.config.family for step in made.steps]


def scales(step):
    return step.arguments["alpha"], step.arguments["beta"]


def work_of(step):
    return math.prod(step.arguments[size] for size in "mnk")


def matrices_of(step):
    return math.prod(struct.unpack("4i", step.arguments["counts"]))


def test_a_product_packs_both_operands_and_multiplies_once():
    """Three launches; padding up to whole tiles is all the scratch there is."""
    made = planned(rows(100, 70), rows(70, 130), rows(100, 130))
    assert kernels(made) == ["pack", "pack", "tiled"]
    assert dict(made.scratch) == {"packed_a": 4 * 128 * 80, "packed_b": 4 * 192 * 80}


def test_operands_that_lie_along_memory_are_not_packed():
    """In either order, by loads as wide as alignment and strides allow; others are packed."""

    def read(a, b):
        made = make_plan(a, b, rows(64, 128), IN_PLACE, PACK, LIMITS)
        config = made.steps[-1].config
        return (
            kernels(made),
            (config.transpose_a, config.load_a),
            (config.transpose_b, config.load_b),
        )

    a, b = rows(64, 64)._replace(alignment_bytes=16), rows(64, 128)._replace(alignment_bytes=16)
    turned_b = Layout((64, 128), (1, 64), 16)
    assert read(a, b) == (["tiled"], (True, 4), (False, 4))
    assert read(a, turned_b) == (["tiled"], (True, 4), (True, 4))
    assert read(a, Layout((64, 128), (128, 1), 8)) == (["tiled"], (True, 4), (False, 2))
    assert read(a, Layout((64, 128), (130, 1), 64)) == (["tiled"], (True, 4), (False, 2))
    assert read(a, Layout((64, 128), (131, 1), 64)) == (["tiled"], (True, 4), (False, 1))
    assert read(Layout((64, 64), (128, 2), 64), b) == (["pack", "tiled"], (False, 4), (False, 4))


def test_what_is_loaded_float_by_float_is_packed_where_it_is_read_often():
    """Tiles that read it again and again would take as many loads; a fallback has few launches."""

    def packs(side, depth, is_fallback=False):
        a, b, c = rows(side, depth), rows(depth, side), rows(side, side)
        return kernels(make_plan(a, b, c, IN_PLACE, PACK, LIMITS, is_fallback)).count("pack")

    tile = IN_PLACE.tile_m
    assert packs(16 * tile - 1, 101) == 0
    assert packs(16 * tile + 1, 101) == 2
    assert packs(8 * tile - 1, 8001) == 2
    assert packs(7 * tile - 1, 8001) == 0
    assert packs(16 * tile + 1, 4001, is_fallback=True) == 0


def test_which_operands_are_read_float_by_float():
    """Those whose rows or columns lie along memory but not by whole vectors, odd ones mostly."""
    vectors, apart = Layout((100, 128), (128, 1), 64), Layout((100, 128), (256, 2), 64)
    wide, narrow = (Layout((128, n), (n, 1), 64) for n in (64, 63))
    assert not reads_singly(vectors, wide, IN_PLACE)
    assert not reads_singly(wide.transposed(), wide, IN_PLACE)
    assert not reads_singly(apart, wide, IN_PLACE)  # packed, by whatever loads
    assert reads_singly(vectors, narrow, IN_PLACE)
    assert reads_singly(narrow.transposed(), wide, IN_PLACE)
    assert reads_singly(Layout((100, 128), (128, 1), 4), wide, IN_PLACE)


def test_huge_products_stay_within_the_scratch_budget():
    """Blocks of k first, then of m and n; beta counts for the first block of k only."""
    n = 100_000
    made = planned(rows(n, n), rows(n, n), rows(n, n))
    assert sum(dict(made.scratch).values()) <= panels.SCRATCH_BYTES
    multiplied = [step for step in made.steps if step.config.family == "tiled"]
    assert {step.arguments["beta"] for step in multiplied} == {"beta", 1.0}
    flops = sum(map(work_of, multiplied))
    assert flops == n**3


def test_long_sums_are_cut():
    """Into slices of k side by side where C is small; else into blocks that add up in C."""
    made = planned(rows(64, 20_000), rows(20_000, 64), rows(64, 64))
    assert kernels(made) == ["pack", "pack", "tiled", "reduce"]
    product, adding = made.steps[2:]
    cuts, slice_k = adding.arguments["slices"], product.arguments["slice_k"]
    assert (cuts - 1) * slice_k < 20_000 <= cuts * slice_k
    assert product.groups == cuts >= LIMITS.compute_units
    assert scales(product) == (1.0, 0.0)
    assert scales(adding) == ("alpha", "beta")
    assert dict(made.scratch)["partial"] == 4 * cuts * 64 * 64
    made = planned(rows(1024, 20_000), rows(20_000, 1024), rows(1024, 1024))
    multiplied = [step for step in made.steps if step.config.family == "tiled"]
    assert [step.arguments["k"] for step in multiplied] == [6672, 6672, 6656]
    assert [step.arguments["beta"] for step in multiplied] == ["beta", 1.0, 1.0]


@pytest.mark.parametrize("size", [(64, 4096, 4096), (4096, 64, 4096), (64, 64, 100_000)])
def test_every_compute_unit_of_a_gpu_gets_work(size):
    """Few tiles of C: slices of k make up for them, and are no shorter than they need be."""
    limits = replace(LIMITS, compute_units=132)
    slices = min(
        (tiled_estimate.tiled_estimate(config, *size, 1, limits) for config in nvidia_configs()),
        key=lambda found: found.time,
    ).slices
    assert slices > 1
    assert size[2] // slices >= tiled_estimate.SMALLEST_SLICE


def test_steps_are_shared_where_few_work_groups_run():
    """Measured on an H200: 64 of 1024 x 64 x 1024 take 1.4 times as long if they are."""
    limits = replace(LIMITS, compute_units=132)
    for shape, shares in (((1000, 777, 1500, 1), True), ((1024, 64, 1024, 64), False)):
        config = min(
            nvidia_configs(),
            key=lambda c, shape=shape: tiled_estimate.tiled_estimate(c, *shape, limits).time,
        )
        assert (config.parts > 1) == shares


@pytest.mark.parametrize(
    ("m", "k", "groups", "launches"), [(1024, 2048, 8, 1), (2048, 512, 16, 1), (128, 4096, 4, 2)]
)
def test_columns_along_memory_are_read_whole(m, k, groups, launches):
    """Few of them a work-group on CPUs; k is cut only where that makes fewer work-groups."""
    a, b, c = rows(m, k), rows(k, 1), rows(m, 1)
    copy = (copy_config(TWO_CORES),)
    made = make_plan(a, b, c, skinny_config(1, 16, True), copy, TWO_CORES)
    multiplying = [step for step in made.steps if step.config.family == "skinny_cpu"]
    assert [step.groups for step in multiplying] == [groups]
    assert len(made.steps) == launches


@pytest.mark.parametrize("n", [1024, 1536, 2048, 2560, 3072])
def test_slices_of_few_rows_run_side_by_side(n):
    """No more work-groups than the compute units hold, and more than half of that."""
    limits = replace(LIMITS, compute_units=132)
    lanes = skinny_lanes_config(1, limits)
    a, b = (x._replace(alignment_bytes=16) for x in (rows(1, n), rows(n, n)))
    for operands in ((a, b, rows(1, n)), (b.transposed(), a.transposed(), rows(n, 1))):
        step = make_plan(*operands, lanes, None, limits).steps[0]
        assert 66 < step.groups * step.config.items / 1024 <= 132


def test_of_a_matrix_larger_than_the_cache_a_part_stays_there():
    """As many loads as bring what fits; none where all of it fits, or hardly any."""
    limits = replace(LIMITS, compute_units=132, persisting_cache_bytes=2**25)
    lanes = replace(skinny_lanes_config(1, limits), ahead=8)

    def kept(n, k, *batch, one_b=False, limits=limits, turned=False, alignment=16):
        b = rows(k, n) if one_b else rows(k, n, *batch)
        a, b, c = rows(1, k, *batch), b.broadcast(batch), rows(1, n, *batch)
        if turned:
            a, b, c = (x.transposed() for x in (b, a, c))
        a, b = (x._replace(alignment_bytes=alignment) for x in (a, b))
        return make_plan(a, b, c, lanes, None, limits).steps[0].config.cached_loads

    assert kept(4096, 4096) == kept(4096, 4096, turned=True) == 4
    assert kept(4096, 4096, alignment=8) == 0
    assert [kept(2**11 << i, 4096) for i in range(6)] == [0, 4, 2, 1, 0, 0]
    assert kept(1024, 4096, 4) == 4
    assert kept(1024, 4096, 4, one_b=True) == 0
    assert kept(4096, 4096, limits=replace(limits, persisting_cache_bytes=0)) == 0


@pytest.mark.parametrize(("pieces", "together"), [(8, True), (9, False)])
def test_slices_may_be_added_up_where_they_are_made(pieces, together, monkeypatch):
    """In one launch, while there is a counter for each tile; it takes alpha, beta and C itself."""
    limits = replace(LIMITS, compute_units=2, fused_split_k=True)
    monkeypatch.setattr(split_k, "COUNTERS", 4)
    monkeypatch.setattr(tiled_plan, "tiled_estimate", lambda *_: TiledEstimate(3, 0.0, True))
    m = 64 * pieces
    a, b, c = rows(m, 3072), rows(3072, 64), rows(m, 64)
    made = make_plan(a, b, c, CONFIG, PACK, limits)
    assert kernels(made)[2:] == ["tiled"] + ["reduce"] * (not together)
    product = made.steps[2]
    assert product.config.fused_split_k == together
    if together:
        assert scales(product) == ("alpha", "beta")
        assert product.arguments["slices_out"] == "partial"
        assert product.arguments["counters"] == "counters"
        assert dict(made.scratch)["partial"] == 4 * 3 * m * 64


def test_slices_are_added_up_in_one_launch_where_that_is_quicker():
    """Of few slices, by work-groups that have others beside them; never where none sees others'."""
    limits = replace(LIMITS, compute_units=132)
    for size, fused_split_k in (((64, 4096, 4096), True), ((64, 64, 100_000), False)):
        seeing = replace(limits, fused_split_k=True)
        best = min(
            (
                tiled_estimate.tiled_estimate(config, *size, 1, seeing)
                for config in nvidia_configs()
            ),
            key=lambda found: found.time,
        )
        assert best.fused_split_k == fused_split_k
    config = nvidia_configs()[2]
    assert not tiled_estimate.tiled_estimate(config, 64, 4096, 4096, 1, limits).fused_split_k


@pytest.mark.parametrize("config", [c for c in nvidia_configs() if c.parts > c.buffers])
def test_slices_of_k_run_side_by_side(config):
    """No compute unit gets more work-groups at a time than its registers hold."""
    limits = replace(LIMITS, compute_units=132)
    found = tiled_estimate.tiled_estimate(
        config, config.tile_m, 64 * config.tile_n, 4096, 1, limits
    )
    sums = config.work_m * config.work_n
    assert -(-64 * found.slices // 132) * config.items * sums <= tiled_estimate.REGISTERS
    alone = tiled_estimate.tiled_estimate(
        replace(config, parts=1), config.tile_m, config.tile_n, 4096, 1, limits
    )
    shared = tiled_estimate.tiled_estimate(config, config.tile_m, config.tile_n, 4096, 1, limits)
    assert shared.time < alone.time


def test_scratch_respects_the_largest_buffer():
    """A device that allocates little gets smaller blocks."""
    small = Limits(48 * 1024, 1024, 2**22, 8, 1)
    made = planned(rows(3000, 3000), rows(3000, 3000), rows(3000, 3000), small)
    assert max(dict(made.scratch).values()) <= 2**22


def test_a_repeated_operand_is_packed_once():
    """A stack that shares B packs it once, and walks it with a stride of zero."""
    a, c = rows(100, 70, 9), rows(100, 130, 9)
    b = rows(70, 130).broadcast((9,))
    made = planned(a, b, c)
    assert kernels(made) == ["pack", "pack", "tiled"]
    assert dict(made.scratch) == {"packed_a": 9 * 4 * 128 * 80, "packed_b": 4 * 192 * 80}
    assert struct.unpack("4q", made.steps[-1].arguments["b_strides"])[-1] == 0


def test_a_product_by_vectors_is_one_launch_however_deep():
    """Blocks of k of nearly one size, a multiple of what packing transposes at once."""
    for k, block_k in ((64, 64), (1000, 1008), (1032, 528), (5000, 1008)):
        made = planned_for_vectors(3000, 100, k)
        assert kernels(made) == ["blocked"]
        assert made.steps[-1].arguments["block_k"] == block_k
        # A block of B for each compute unit.
        columns = round_up(made.steps[-1].arguments["block_n"], REGISTER.tile_n)
        assert dict(made.scratch) == {"packed_b": 4 * LIMITS.compute_units * columns * block_k}


def test_rows_that_share_a_set_of_the_cache_are_packed():
    """As are those that do not run along k."""
    made = planned_for_vectors(1024, 1024, 1024)
    assert kernels(made) == ["blocked"]
    assert made.steps[0].config.packs
    assert dict(made.scratch)["packed_a"] == 4 * 1024 * 1024
    columns = rows(70, 100).transposed()
    made = make_plan(columns, rows(70, 90), rows(100, 90), REGISTER, VECTOR_PACK, LIMITS)
    assert dict(made.scratch)["packed_a"] == 4 * round_up(100, REGISTER.tile_m) * 70


def test_a_is_packed_by_who_multiplies_where_it_stays_near():
    """And where enough work-groups can be at it; else first, past the caches if rows are copied."""

    def made(turned, m, n, k, *batch):
        a = rows(k, m, *batch).transposed() if turned else rows(m, k, *batch)
        plan = make_plan(a, rows(k, n, *batch), rows(m, n, *batch), REGISTER, VECTOR_PACK, LIMITS)
        return plan.steps

    (alone,) = made(True, 1000, 1000, 1000)
    assert alone.config.packs
    pack, product = made(True, 9000, 3000, 1000)[:2]
    assert (pack.config.streams, product.config.packs) == (True, False)
    pack, product = made(False, 3000, 3000, 1024)[:2]
    assert (pack.config.streams, product.config.packs) == (False, False)
    few, _ = made(True, REGISTER.tile_m, 5000, 1000)
    assert not few.config.streams
    # Each matrix of A has counters of its own, one for each block of each block of k.
    (stack,) = made(True, 64, 300, 40, 3)
    assert stack.config.packs
    assert stack.arguments["a_matrices"] == 3


def test_a_is_packed_while_it_is_multiplied_where_that_can_be_fetched_ahead():
    """Rows that are neighbours, columns that share no set of a cache; and nobody waits long."""

    def meanwhile(a, n):
        b, c = rows(a.columns, n), rows(a.rows, n)
        product = make_plan(a, b, c, REGISTER, VECTOR_PACK, TWO_CORES).steps[-1]
        return product.config.packs and product.arguments["meanwhile"]

    assert meanwhile(rows(1000, 1000).transposed(), 1000)
    assert not meanwhile(rows(512, 512).transposed(), 512)
    assert not meanwhile(rows(300, 1024), 300)
    assert not meanwhile(rows(1000, 1).transposed(), 1000)


def test_few_rows_that_share_a_set_of_the_cache_are_read_where_they_lie():
    """Eight fill it, and are packed; six, as AVX2 has them, leave room for B."""
    six = register_config(8, True, True)
    assert six.tile_m == 6
    for config, in_place in ((REGISTER, False), (six, True)):
        packs = (vector_pack_config(config.tile_m, True),)
        operands = rows(1024, 1024), rows(1024, 1024), rows(1024, 1024)
        product = make_plan(*operands, config, packs, TWO_CORES).steps[-1]
        assert product.config.in_place == in_place


def test_a_is_met_while_it_is_near():
    """Packed and multiplied in turns, as much as the last cache holds: blocks of k, or matrices."""

    def made(turned, m, n, k, *batch):
        a = rows(k, m, *batch).transposed() if turned else rows(m, k, *batch)
        b, c = rows(k, n, *batch), rows(m, n, *batch)
        return make_plan(a, b, c, REGISTER, VECTOR_PACK, TWO_CORES)

    near = 4 * blocked_estimate.NEAR * TWO_CORES.compute_units
    deep = made(True, 1000, 777, 3000)
    assert kernels(deep) == 3 * ["blocked"]
    assert dict(deep.scratch)["packed_a"] <= near
    assert [step.arguments["beta"] for step in deep.steps] == ["beta", 1.0, 1.0]
    aliasing = made(True, 1024, 777, 3000)
    assert kernels(aliasing) == 3 * ["pack_vectors", "blocked"]
    assert dict(aliasing.scratch)["packed_a"] <= near
    stack = made(True, 512, 512, 512, 16)
    assert kernels(stack) == 4 * ["blocked"]
    assert dict(stack.scratch)["packed_a"] == near
    assert kernels(made(True, 64, 64, 20_000)).count("blocked") == 2
    # So is A in place, if more than one column of blocks meets it.
    assert kernels(made(False, 1000, 777, 3000)) == 3 * ["blocked"]
    assert kernels(made(False, 1000, 100, 3000)) == ["blocked"]
    assert kernels(made(False, 64, 64, 20_000)) == ["blocked", "reduce"]


def test_the_operands_that_cost_less_change_places():
    """The smaller one is packed, or none; unless all of C would be stored along its columns."""

    def changes(m, n, k, turned=""):
        a = rows(k, m).transposed() if "a" in turned else rows(m, k)
        b = rows(n, k).transposed() if "b" in turned else rows(k, n)
        return is_faster_transposed(a, b, rows(m, n), REGISTER, TWO_CORES)

    assert changes(2000, 100, 2000, "a")
    assert changes(800, 100, 20_000, "ab")
    assert changes(100, 800, 20_000, "b")
    assert not changes(1000, 300, 6000, "a")
    assert changes(3000, 300, 1000, "a")
    assert not changes(2000, 100, 2000)
    assert not changes(100, 2000, 2000, "a")
    assert not changes(1000, 1000, 1000, "ab")
    assert not changes(4000, 4000, 200, "ab")


def test_every_compute_unit_gets_work():
    """From square, tall, wide and deep products alike; the deep one in slices of k."""
    for m, n, k in ((512, 512, 512), (100_000, 48, 64), (8, 100_000, 64), (64, 64, 100_000)):
        made = planned_for_vectors(m, n, k)
        product = next(step for step in made.steps if step.config.family == "blocked")
        assert product.groups == LIMITS.compute_units
        block_m, columns, lists = (product.arguments[i] for i in ("block_m", "all", "lists"))
        assert columns * ceil_div(m, block_m * REGISTER.tile_m) >= LIMITS.compute_units
        assert 1 <= lists <= min(columns, LIMITS.compute_units)
    assert kernels(made)[-2:] == ["blocked", "reduce"]
    cuts = made.steps[-1].arguments["slices"]
    assert dict(made.scratch)["partial"] == 4 * cuts * 64 * 64


def test_matrices_that_share_b_follow_one_another():
    """So that a work-group packs it for all of them once, however their A lies."""
    a, c = rows(70, 100, 5, 3).transposed(), rows(100, 90, 5, 3)
    for batch, sharing in (((5, 3), 1), ((3,), 1), ((5, 1), 3), ((), 15)):
        b = rows(70, 90, *batch).broadcast((5, 3))
        made = make_plan(a, b, c, REGISTER, VECTOR_PACK, LIMITS)
        assert made.steps[-1].arguments["matrices"] == 15
        assert made.steps[-1].arguments["sharing"] == sharing


def test_20000_x_20000_by_vectors_fits_a_gibibyte():
    """Packed in blocks; every multiply-add is made once."""
    n = 20_000
    made = planned_for_vectors(n, n, n)
    assert sum(dict(made.scratch).values()) <= 2**30
    multiplied = [step for step in made.steps if step.config.family == "blocked"]
    assert sum(map(work_of, multiplied)) == n**3


def test_slices_cover_a_stack_once():
    """Any cut of any levels reaches each matrix exactly once, within both limits."""
    levels = (Level(2, (1000,)), Level(3, (300,)), Level(5, (50,)), Level(2, (20,)), Level(4, (3,)))
    everything = sorted(
        1000 * i + 300 * j + 50 * k + 20 * m + 3 * n
        for i in range(2) for j in range(3) for k in range(5) for m in range(2) for n in range(4)
    )  # fmt: skip
    for most in (1, 3, 4, 7, 8, 30, 1000):
        reached = []
        for part in slices(levels, most, 1):
            walked = [part.offsets[0]]
            for level in part.levels:
                walked = [w + i * level.strides[0] for w in walked for i in range(level.count)]
            assert len(walked) <= most
            assert len(part.levels) <= 4
            reached += walked
        assert sorted(reached) == everything


def test_scaling_reads_only_c():
    """No operand's buffer is named."""
    made = make_scaling_plan(rows(5, 6), DirectConfig(8, 8, 2, 2, False))
    assert made.steps[0].arguments["k"] == 0
    assert not {"a", "b"} & {
        x.slot if isinstance(x, Element) else x for x in made.steps[0].arguments.values()
    }


def test_a_copy_is_one_launch():
    """Of a stack of any strides."""
    made = make_copy_plan(Layout((3, 4, 5), (100, 1, 4)), PackConfig(panel=1, depth=64, group=8))
    assert kernels(made) == ["pack"]


DIRECT = DirectConfig(items_m=8, items_n=8, work_m=2, width=2, fma=False)
SKINNY = skinny_lanes_config(2, LIMITS)
MANY_ROWS = rows(2**26, 8), rows(8, 2), rows(2**26, 2)
MANY_COLUMNS = rows(2, 8), rows(8, 2**26), rows(2, 2**26)
MANY_MATRICES = rows(3, 4, 2**26), rows(4, 5, 2**26), rows(3, 5, 2**26)


@pytest.mark.parametrize(
    ("config", "pack"),
    [(DIRECT, None), (SKINNY, None), (CONFIG, PACK), (REGISTER, VECTOR_PACK)],
    ids=lambda x: getattr(x, "family", ""),
)
@pytest.mark.parametrize("operands", [MANY_ROWS, MANY_COLUMNS, MANY_MATRICES])
def test_a_launch_has_no_more_work_items_than_every_device_takes(operands, config, pack):
    """Work-groups times their work-items stay below 2**31, and every multiply-add is made once."""
    made = make_plan(*operands, config, pack, LIMITS)
    assert max(step.groups * step.config.items for step in made.steps) < 2**31
    multiplied = [step for step in made.steps if step.config.family == config.family]
    matrices = list(map(matrices_of, multiplied))
    work = list(map(work_of, multiplied))
    m, n, k = operands[2].rows, operands[2].columns, operands[0].columns
    total = m * n * k * math.prod(operands[2].batch)
    assert sum(x * y for x, y in zip(matrices, work, strict=True)) == total


@pytest.mark.parametrize("shape", [(2**26, 2), (2, 2**30), (2**26, 3, 5)])
def test_copies_and_scalings_have_no_more_work_items_than_every_device_takes(shape):
    """Their launches, too, are cut, and none copies or scales what another does."""
    *batch, m, n = shape
    copied = make_copy_plan(rows(m, n, *batch), copy_config(LIMITS))
    scaled = make_scaling_plan(rows(m, n, *batch), DIRECT)
    for made, sizes in ((copied, ("rows", "columns")), (scaled, ("m", "n"))):
        assert max(step.groups * step.config.items for step in made.steps) < 2**31
        elements = [
            math.prod(step.arguments[size] for size in sizes) * matrices_of(step)
            for step in made.steps
        ]
        assert sum(elements) == math.prod(shape)


@pytest.mark.parametrize("family", ["a", "b"])
def test_steps_hold_numbers_and_names_only(family):
    """Nothing of a device: a plan can be kept, compared and hashed."""
    made = planned(rows(7, 8), rows(8, 9), rows(7, 9))
    assert hash(made) == hash(made)
    values = made.steps[0].arguments.values()
    assert all(isinstance(x, int | float | bytes | str | Element) for x in values)
    assert family in made.steps[0 if family == "b" else 1].arguments.values()
