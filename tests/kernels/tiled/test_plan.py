"""Plans of the tiled family: which operands are packed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from planned import LIMITS, dense, kernels, make_plan

from clgemm.core.problem import Layout
from clgemm.kernels.pack.plan import pack_config
from clgemm.kernels.tiled.family import lane_configs, nvidia_configs
from clgemm.kernels.tiled.plan import make_tiled_plan, reads_narrowly

CONFIG = replace(lane_configs()[1], in_place=False)
IN_PLACE = lane_configs()[1]
PACK = (pack_config(LIMITS, CONFIG.tile_m), pack_config(LIMITS, CONFIG.tile_n))


def test_a_product_packs_both_operands_and_multiplies_once():
    """There are three launches. Scratch memory holds the operands, padded to whole tiles."""
    made = make_plan(dense(100, 70), dense(70, 130), dense(100, 130), CONFIG, PACK, LIMITS)
    assert kernels(made) == ["pack", "pack", "tiled"]
    assert dict(made.scratch) == {"packed_a": 4 * 128 * 80, "packed_b": 4 * 192 * 80}


def test_contiguous_operands_are_not_packed():
    """Contiguous rows or columns are read in place, by the widest loads that the layout allows."""

    def read(a, b):
        made = make_plan(a, b, dense(64, 128), IN_PLACE, PACK, LIMITS)
        config = made.steps[-1].config
        return (
            kernels(made),
            (config.transpose_a, config.load_a),
            (config.transpose_b, config.load_b),
        )

    a, b = dense(64, 64)._replace(alignment_bytes=16), dense(64, 128)._replace(alignment_bytes=16)
    b_along_k = Layout((64, 128), (1, 64), 16)
    assert read(a, b) == (["tiled"], (True, 4), (False, 4))
    assert read(a, b_along_k) == (["tiled"], (True, 4), (True, 4))
    assert read(a, Layout((64, 128), (128, 1), 8)) == (["tiled"], (True, 4), (False, 2))
    assert read(a, Layout((64, 128), (130, 1), 64)) == (["tiled"], (True, 4), (False, 2))
    assert read(a, Layout((64, 128), (131, 1), 64)) == (["tiled"], (True, 4), (False, 1))
    assert read(Layout((64, 64), (128, 2), 64), b) == (["pack", "tiled"], (False, 4), (False, 4))


def test_work_items_full_of_sums_read_in_place_by_vectors_alone():
    """Others are packed even where launches are dear, unless copies need no registers."""
    large = next(each for each in nvidia_configs() if each.work_m * each.work_n > 64)
    copied = replace(large, asynchronous=True, buffers=3)
    limits = replace(LIMITS, asynchronous_copies=True)
    b, c = dense(512, 512)._replace(alignment_bytes=16), dense(512, 512)
    for columns, config, packs in ((512, large, 0), (514, large, 1), (514, copied, 0)):
        a = Layout((512, 512), (columns, 1), 16)
        plan = make_tiled_plan(a, b, c, config, PACK, limits, math.inf)
        assert kernels(plan).count("pack") == packs


def test_what_is_loaded_float_by_float_is_packed_where_that_is_expected_to_pay():
    """Packing takes launches, and so pays in large products; those of a fallback count more."""

    def packs(side, depth, is_fallback=False):
        a, b, c = dense(side, depth), dense(depth, side), dense(side, side)
        return kernels(make_plan(a, b, c, IN_PLACE, PACK, LIMITS, is_fallback)).count("pack")

    assert packs(63, 101) == 0
    assert packs(4001, 4001) == 2
    sides = range(500, 4000, 100)
    least = [min(side for side in sides if packs(side + 1, 1001, kind)) for kind in (False, True)]
    assert least[0] < least[1]


@pytest.mark.parametrize("k", [5, 5001])
@pytest.mark.parametrize(("more_m", "more_n"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_an_operand_is_packed_if_more_tiles_than_allowed_read_it(more_m, more_n, k):
    """Tiles along n read A, and tiles along m read B, whatever k is."""
    m, n = 3 * IN_PLACE.tile_m + more_m, 3 * IN_PLACE.tile_n + more_n
    operands = [x._replace(alignment_bytes=4) for x in (dense(m, k), dense(k, n), dense(m, n))]
    made = make_tiled_plan(*operands, IN_PLACE, PACK, LIMITS, most_reads=3)
    packed = {name for name, _ in made.scratch} & {"packed_a", "packed_b"}
    assert packed == set(more_n * ["packed_a"] + more_m * ["packed_b"])


@pytest.mark.parametrize("is_often_read", [False, True])
@pytest.mark.parametrize("transposes", [False, True])
def test_what_is_transposed_is_packed_where_that_takes_long(transposes, is_often_read):
    """On GPUs of other makers than NVIDIA, if many tiles read it; B is read along its rows."""
    limits = replace(LIMITS, transposes_tiles=transposes)
    n = (4 + is_often_read) * IN_PLACE.tile_n
    operands = [x._replace(alignment_bytes=64) for x in (dense(n, 64), dense(64, n), dense(n, n))]
    made = make_tiled_plan(*operands, IN_PLACE, PACK, limits, most_reads=4)
    packed = {name for name, _ in made.scratch} & {"packed_a", "packed_b"}
    assert packed == ({"packed_a"} if is_often_read and not transposes else set())


def test_operands_of_narrow_loads_are_packed_where_that_is_compared():
    """Rows of an even length allow loads of two floats: in place by rule, packed if all are."""
    operands = dense(300, 102), dense(102, 302), dense(300, 302)
    for most_reads, packed in ((16, 0), (math.inf, 0), (0, 2)):
        made = make_tiled_plan(*operands, IN_PLACE, PACK, LIMITS, most_reads)
        assert [step.config.family for step in made.steps].count("pack") == packed


def test_which_operands_are_read_narrowly():
    """Those are contiguous, but their sizes, strides or alignment allow no wide vectors."""
    vectors, apart = Layout((100, 128), (128, 1), 64), Layout((100, 128), (256, 2), 64)
    wide, narrow, even = (Layout((128, n), (n, 1), 64) for n in (64, 63, 62))
    assert not reads_narrowly(vectors, wide, IN_PLACE)
    assert not reads_narrowly(wide.transposed(), wide, IN_PLACE)
    assert not reads_narrowly(apart, wide, IN_PLACE)  # packed, by whatever loads
    assert reads_narrowly(vectors, narrow, IN_PLACE)
    assert reads_narrowly(narrow.transposed(), wide, IN_PLACE)
    assert reads_narrowly(Layout((100, 128), (128, 1), 4), wide, IN_PLACE)
    assert reads_narrowly(vectors, even, IN_PLACE)  # loads of two floats


@pytest.mark.parametrize("shape", [(64, 64, 64), (65, 63, 67)])
def test_asynchronous_copies_transpose_float_by_float(shape):
    """An operand that is contiguous along k is read in place, however it is aligned."""
    config = next(c for c in nvidia_configs() if c.asynchronous and c.tile_m == 64)
    m, n, k = shape
    a, b, c = (dense(*each)._replace(alignment_bytes=16) for each in ((m, k), (k, n), (m, n)))
    limits = replace(LIMITS, asynchronous_copies=True)
    step = make_tiled_plan(a, b, c, config, PACK, limits, math.inf).steps[0]
    assert (step.config.transpose_a, step.config.load_a) == (True, 1)
    assert (step.config.transpose_b, step.config.load_b) == (False, 4 if n % 4 == 0 else 1)


@pytest.mark.parametrize(
    ("c", "depth", "stores"),
    [
        (Layout((128, 128), (128, 1), 16), 999, {"aligned", "whole"}),
        (Layout((128, 100), (128, 1), 16), 999, {"aligned"}),
        (Layout((100, 100), (100, 1), 16), 999, {"aligned"}),
        (Layout((100, 100), (100, 1), 8), 999, set()),
        (Layout((100, 99), (100, 1), 16), 999, set()),
        (Layout((100, 100), (101, 1), 16), 999, set()),
        (Layout((100, 100), (101, 1), 16), 99, {"runs"}),
        (Layout((100, 100), (1, 101), 16), 999, {"down"}),
        (Layout((100, 100), (1, 101), 16), 99, {"down"}),
        (Layout((100, 100), (202, 2), 16), 99, set()),
        (Layout((3, 100, 100), (10001, 100, 1), 16), 999, set()),
        (Layout((3, 100, 100), (10004, 100, 1), 16), 999, {"aligned"}),
    ],
)
def test_c_is_stored_as_fast_as_its_layout_allows(c, depth, stores):
    """Vectors need alignment, batch and all; a short k makes it worth looking for shorter ones."""
    a, b = dense(c.rows, depth, *c.batch), dense(depth, c.columns, *c.batch)
    limits = replace(LIMITS, compute_units=1)  # so that k is not cut
    config = make_plan(a, b, c, CONFIG, PACK, limits).steps[-1].config
    assert {x for x in ("aligned", "whole", "down", "runs") if getattr(config, x)} == stores


def test_partial_products_are_stored_by_vectors_wherever_c_lies():
    """They are dense and aligned, whatever the strides of C are, if a row is whole vectors."""
    config = next(each for each in nvidia_configs() if each.parts == 2)
    limits = replace(LIMITS, compute_units=132, fused_split_k=False)
    pack = (pack_config(limits, config.tile_m), pack_config(limits, config.tile_n))
    for columns, is_aligned in ((40, True), (41, False)):
        c = Layout((48, columns), (1, 51), 4)
        plan = make_plan(dense(48, 9000), dense(9000, columns), c, config, pack, limits)
        assert kernels(plan)[-2:] == ["tiled", "reduce"]
        found = plan.steps[-2].config
        assert (found.aligned, found.down) == (is_aligned, False)
