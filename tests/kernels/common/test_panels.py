"""Products of panels: blocks that fit the scratch memory, long sums, repeated operands."""

from __future__ import annotations

import struct
from dataclasses import replace

from planned import LIMITS, dense, kernels, make_plan, scales, work_of

from clgemm.core.traits import Limits
from clgemm.kernels.common.panels import SCRATCH_BYTES
from clgemm.kernels.pack.plan import pack_config
from clgemm.kernels.tiled.family import lane_configs

CONFIG = replace(lane_configs()[1], in_place=False)
PACK = (pack_config(LIMITS, CONFIG.tile_m), pack_config(LIMITS, CONFIG.tile_n))


def planned(a, b, c, limits=LIMITS):
    return make_plan(a, b, c, CONFIG, PACK, limits)


def test_huge_products_stay_within_the_scratch_budget():
    """k is cut first, then m and n. Beta applies to the first block of k only."""
    n = 100_000
    made = planned(dense(n, n), dense(n, n), dense(n, n))
    assert sum(dict(made.scratch).values()) <= SCRATCH_BYTES
    multiplied = [step for step in made.steps if step.config.family == "tiled"]
    assert {step.arguments["beta"] for step in multiplied} == {"beta", 1.0}
    flops = sum(map(work_of, multiplied))
    assert flops == n**3


def test_long_sums_are_cut():
    """A small C gets slices of k side by side. A large C gets blocks of k, which add up in C."""
    made = planned(dense(64, 20_000), dense(20_000, 64), dense(64, 64))
    assert kernels(made) == ["pack", "pack", "tiled", "reduce"]
    product, adding = made.steps[2:]
    cuts, slice_k = adding.arguments["slices"], product.arguments["slice_k"]
    assert (cuts - 1) * slice_k < 20_000 <= cuts * slice_k
    assert product.groups == cuts >= LIMITS.compute_units
    assert scales(product) == (1.0, 0.0)
    assert scales(adding) == ("alpha", "beta")
    assert dict(made.scratch)["partial"] == 4 * cuts * 64 * 64
    made = planned(dense(1024, 20_000), dense(20_000, 1024), dense(1024, 1024))
    multiplied = [step for step in made.steps if step.config.family == "tiled"]
    assert [step.arguments["k"] for step in multiplied] == [6672, 6672, 6656]
    assert [step.arguments["beta"] for step in multiplied] == ["beta", 1.0, 1.0]


def test_scratch_respects_the_largest_buffer():
    """A device that allocates little gets smaller blocks."""
    small = Limits(48 * 1024, 1024, 2**22, 8, 1)
    made = planned(dense(3000, 3000), dense(3000, 3000), dense(3000, 3000), small)
    assert max(dict(made.scratch).values()) <= 2**22


def test_blocks_of_k_are_whole_tiles_however_little_fits():
    """Every block of k but the last is a multiple of the depth of a tile, here of 12."""
    config = replace(CONFIG, tile_k=12)
    small = replace(LIMITS, allocation_bytes=2**21)
    operands = dense(1000, 4000), dense(4000, 900), dense(1000, 900)
    made = make_plan(*operands, config, PACK, small)
    depths = [step.arguments["k"] for step in made.steps if step.config.family == "tiled"]
    assert len(set(depths)) == 2
    assert {depth % 12 for depth in depths if depth != min(depths)} == {0}


def test_a_repeated_operand_is_packed_once():
    """A batch that shares B packs it once, and reads it with a stride of zero."""
    a, c = dense(100, 70, 9), dense(100, 130, 9)
    b = dense(70, 130).broadcast((9,))
    made = planned(a, b, c)
    assert kernels(made) == ["pack", "pack", "tiled"]
    assert dict(made.scratch) == {"packed_a": 9 * 4 * 128 * 80, "packed_b": 4 * 192 * 80}
    assert struct.unpack("4q", made.steps[-1].arguments["b_strides"])[-1] == 0
