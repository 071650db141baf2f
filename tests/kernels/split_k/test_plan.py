"""Split-k: where a product stores, who adds up, and how long that takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, TWO_CORES, dense, kernels, make_plan, scales

from clgemm.core.costs import H200
from clgemm.core.plan import batch_of
from clgemm.core.problem import batch_levels
from clgemm.kernels.pack.plan import pack_config
from clgemm.kernels.split_k import plan as split_k
from clgemm.kernels.split_k.plan import reduce_us
from clgemm.kernels.tiled import plan as tiled_plan
from clgemm.kernels.tiled.family import lane_configs
from clgemm.kernels.tiled.plan import TiledEstimate


def test_more_elements_and_more_slices_take_longer():
    """The launch has a time of its own, however little it adds up."""
    assert reduce_us(1, 2, H200) >= H200.reduce_us
    times = [
        reduce_us(elements, slices, H200)
        for elements, slices in ((10**4, 2), (10**6, 2), (10**6, 20))
    ]
    assert times == sorted(times)
    assert times[2] > 3 * times[1] > 9 * times[0] > 0


CONFIG = replace(lane_configs()[1], in_place=False)
PACK = (pack_config(LIMITS, CONFIG.tile_m), pack_config(LIMITS, CONFIG.tile_n))


@pytest.mark.parametrize(("pieces", "fused"), [(8, True), (9, False)])
def test_split_k_is_fused_while_there_are_counters(pieces, fused, monkeypatch):
    """Split-k is fused if each tile has a counter. That launch takes alpha, beta and C itself."""
    limits = replace(LIMITS, compute_units=2, fused_split_k=True)
    monkeypatch.setattr(split_k, "COUNTERS", 4)
    monkeypatch.setattr(tiled_plan, "tiled_estimate", lambda *_: TiledEstimate(3, 0.0, True))
    m = 64 * pieces
    a, b, c = dense(m, 3072), dense(3072, 64), dense(m, 64)
    made = make_plan(a, b, c, CONFIG, PACK, limits)
    assert kernels(made)[2:] == ["tiled"] + ["reduce"] * (not fused)
    product = made.steps[2]
    assert product.config.fused_split_k == fused
    if fused:
        assert scales(product) == ("alpha", "beta")
        assert product.arguments["slices_out"] == "partial"
        assert product.arguments["counters"] == "counters"
        assert dict(made.scratch)["partial"] == 4 * 3 * m * 64


def stored(cuts, limits=LIMITS, fused=None, matrices=1, n=70):
    """Return where a product of 100 x n elements is stored, with k in so many slices."""
    c = dense(100, n, *[matrices] * (matrices > 1))
    levels = batch_levels(c, c, c)
    return split_k.target((100, n, cuts), levels, batch_of(levels, 3), "beta", c, 5, limits, fused)


def test_a_sum_in_one_piece_goes_to_c():
    """There is no scratch memory, and the kernel itself scales."""
    found = stored(1)
    assert found.to["c"] == "c"
    assert found.scales == {"alpha": "alpha", "beta": "beta"}
    assert (found.partial_bytes, found.adding) == (0, ())


@pytest.mark.parametrize("matrices", [1, 3])
def test_partial_products_are_dense_and_added_up(matrices):
    """The kernel stores them unscaled; the launch that adds them up scales, and stores in C."""
    found = stored(4, matrices=matrices)
    (adding,) = found.adding
    assert found.partial_bytes == 4 * matrices * 4 * 100 * 70
    assert found.to["c"] == adding.arguments["from"] == "partial"
    assert found.scales == {"alpha": 1.0, "beta": 0.0}
    assert scales(adding) == ("alpha", "beta")
    assert adding.arguments["c"] == "c"
    elements = adding.config.group // adding.config.parts * adding.config.width
    assert adding.groups * elements >= matrices * 100 * 70


def test_many_slices_are_shared_by_work_items():
    """On lanes, several work-items add up one element of many slices; with vectors one does."""
    few, many, most = (stored(cuts).adding[0].config for cuts in (16, 17, 49))
    assert (few.parts, many.parts, most.parts) == (1, 8, 32)
    small = replace(LIMITS, work_group_size=16)
    assert stored(49, small).adding[0].config.parts == 16
    (adding,) = stored(17, TWO_CORES).adding
    assert (adding.config.group, adding.config.width) == (1, TWO_CORES.vector_width)


@pytest.mark.parametrize(("n", "aligned"), [(64, True), (70, False)])
def test_rows_of_whole_vectors_are_loaded_as_such(n, aligned):
    """Other rows begin at any float."""
    assert stored(4, n=n).adding[0].config.aligned == aligned


@pytest.mark.parametrize(
    ("largest", "group"), [(1, 1), (64, 64), (100, 64), (256, 256), (1024, 256)]
)
def test_lanes_add_up_in_work_groups_that_every_device_takes(largest, group):
    """A work-group has the largest power of two of work-items that it may have, 256 at most."""
    limits = replace(LIMITS, vector_width=1, work_group_size=largest)
    (adding,) = stored(20, limits).adding
    assert adding.config.group == group
