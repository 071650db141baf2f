"""Plans of the blocked family: blocks, packing of A, and the work of each core."""

from __future__ import annotations

from dataclasses import replace

from planned import LIMITS, TWO_CORES, dense, kernels, make_plan, work_of

from clgemm.core.plan import ceil_div, round_up
from clgemm.kernels.blocked.family import NEAR, is_faster_transposed, register_config
from clgemm.kernels.pack.plan import VectorPackConfig

REGISTER = register_config(16, True, False)
VECTOR_PACK = (VectorPackConfig.of(REGISTER.tile_m, True),)


def planned_for_vectors(m, n, k):
    return make_plan(dense(m, k), dense(k, n), dense(m, n), REGISTER, VECTOR_PACK, LIMITS)


def test_a_product_by_vectors_is_one_launch_however_deep():
    """Blocks of k have nearly one size, a multiple of what packing transposes at once."""
    for k, block_k in ((64, 64), (1000, 1008), (1032, 528), (5000, 1008)):
        made = planned_for_vectors(3000, 100, k)
        assert kernels(made) == ["blocked"]
        assert made.steps[-1].arguments["block_k"] == block_k
        # A block of B for each compute unit.
        columns = round_up(made.steps[-1].arguments["block_n"], REGISTER.tile_n)
        assert dict(made.scratch) == {"packed_b": 4 * LIMITS.compute_units * columns * block_k}


def test_rows_that_share_a_set_of_the_cache_are_packed():
    """So are rows that are not contiguous along k."""
    made = planned_for_vectors(1024, 1024, 1024)
    assert kernels(made) == ["blocked"]
    assert made.steps[0].config.packs
    assert dict(made.scratch)["packed_a"] == 4 * 1024 * 1024
    columns = dense(70, 100).transposed()
    made = make_plan(columns, dense(70, 90), dense(100, 90), REGISTER, VECTOR_PACK, LIMITS)
    assert dict(made.scratch)["packed_a"] == 4 * round_up(100, REGISTER.tile_m) * 70


def test_the_launch_that_multiplies_packs_an_a_that_the_caches_hold():
    """Otherwise a launch packs A first. It stores past the caches if it copies a large A."""

    def made(transposed, m, n, k, *batch):
        a = dense(k, m, *batch).transposed() if transposed else dense(m, k, *batch)
        plan = make_plan(a, dense(k, n, *batch), dense(m, n, *batch), REGISTER, VECTOR_PACK, LIMITS)
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


def test_a_is_packed_while_it_is_multiplied_if_prefetching_works():
    """A's columns are contiguous and do not share sets of a cache, and no work-group waits long."""

    def meanwhile(a, n):
        b, c = dense(a.columns, n), dense(a.rows, n)
        product = make_plan(a, b, c, REGISTER, VECTOR_PACK, TWO_CORES).steps[-1]
        return product.config.packs and product.arguments["meanwhile"]

    assert meanwhile(dense(1000, 1000).transposed(), 1000)
    assert not meanwhile(dense(512, 512).transposed(), 512)
    assert not meanwhile(dense(300, 1024), 300)
    assert not meanwhile(dense(1000, 1).transposed(), 1000)


def test_every_block_is_packed_whole_whatever_its_depth():
    """The launches that pack have a work-group for each part of each block, its last one too."""
    short_parts, limits = 0, replace(LIMITS, compute_units=3)
    for k in range(40, 1500, 20):
        operands = dense(k, 1024).transposed(), dense(k, 777), dense(1024, 777)
        made = make_plan(*operands, REGISTER, VECTOR_PACK, limits)
        for step in (x for x in made.steps if x.config.family == "pack_vectors"):
            sizes = step.arguments
            panels = ceil_div(sizes["rows"], step.config.panel)
            parts = ceil_div(sizes["block_k"], sizes["cut_columns"])
            blocks = ceil_div(sizes["columns"], sizes["block_k"])
            assert step.groups == ceil_div(panels, sizes["cut_panels"]) * parts * blocks
            short_parts += sizes["block_k"] % sizes["cut_columns"] > 0
    assert short_parts


def test_few_rows_that_share_a_set_of_the_cache_are_read_in_place():
    """Eight rows fill the set and are packed. Six, as with AVX2, leave room for B."""
    six = register_config(8, True, True)
    assert six.tile_m == 6
    for config, in_place in ((REGISTER, False), (six, True)):
        packs = (VectorPackConfig.of(config.tile_m, True),)
        operands = dense(1024, 1024), dense(1024, 1024), dense(1024, 1024)
        product = make_plan(*operands, config, packs, TWO_CORES).steps[-1]
        assert product.config.in_place == in_place


def test_a_is_multiplied_while_the_cache_holds_it():
    """Each launch takes as much of A as the last cache holds: a block of k, or some matrices."""

    def made(transposed, m, n, k, *batch):
        a = dense(k, m, *batch).transposed() if transposed else dense(m, k, *batch)
        b, c = dense(k, n, *batch), dense(m, n, *batch)
        return make_plan(a, b, c, REGISTER, VECTOR_PACK, TWO_CORES)

    near = 4 * NEAR * TWO_CORES.compute_units
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
    # The same holds for A in place, if more than one column of blocks reads it.
    assert kernels(made(False, 1000, 777, 3000)) == 3 * ["blocked"]
    assert kernels(made(False, 1000, 100, 3000)) == ["blocked"]
    assert kernels(made(False, 64, 64, 20_000)) == ["blocked", "reduce"]


def test_operands_are_exchanged_where_that_costs_less():
    """A is the smaller operand or the one in place, unless C would be stored along its columns."""

    def changes(m, n, k, transposed=""):
        a = dense(k, m).transposed() if "a" in transposed else dense(m, k)
        b = dense(n, k).transposed() if "b" in transposed else dense(k, n)
        return is_faster_transposed(a, b, dense(m, n), REGISTER, TWO_CORES)

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
    """Square, tall, wide and deep products occupy all cores; the deep one by split-k."""
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
    """So a work-group packs B once for all of them, whatever the layout of A."""
    a, c = dense(70, 100, 5, 3).transposed(), dense(100, 90, 5, 3)
    for batch, sharing in (((5, 3), 1), ((3,), 1), ((5, 1), 3), ((), 15)):
        b = dense(70, 90, *batch).broadcast((5, 3))
        made = make_plan(a, b, c, REGISTER, VECTOR_PACK, LIMITS)
        assert made.steps[-1].arguments["matrices"] == 15
        assert made.steps[-1].arguments["sharing"] == sharing


def test_20000_x_20000_by_vectors_fits_a_gibibyte():
    """It is packed in blocks, and every multiply-add is done once."""
    n = 20_000
    made = planned_for_vectors(n, n, n)
    assert sum(dict(made.scratch).values()) <= 2**30
    multiplied = [step for step in made.steps if step.config.family == "blocked"]
    assert sum(map(work_of, multiplied)) == n**3
