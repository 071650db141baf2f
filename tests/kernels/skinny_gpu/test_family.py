"""The skinny_gpu family: which products have few rows, its configs and its plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planned import LIMITS, dense, make_plan, traits_with

from clgemm.core.config import variant_of
from clgemm.core.plan import Plan, expected_us
from clgemm.core.problem import Problem, Shape
from clgemm.kernels.skinny_gpu.family import (
    SKINNY_GPU,
    SkinnyGpuVariant,
    skinny_lanes_config,
)

GPU, NVIDIA = traits_with(LIMITS), traits_with(LIMITS, is_nvidia=True)


@pytest.mark.parametrize(
    ("shape", "suits"),
    [
        ((2, 1000, 1000), True),
        ((1000, 2, 1000), True),
        ((3, 1000, 1000), False),  # tiles in local memory are faster
        ((1, 64, 64), False),
    ],
)
def test_one_or_two_rows_or_columns_suit(shape, suits):
    """Its kernels can make up to eight, but tiles make three faster."""
    problem = Problem.of(Shape(*shape), "strict")
    assert SKINNY_GPU.suits(problem, GPU) == suits
    assert SKINNY_GPU.fits(problem)


def test_nvidias_caches_serve_few_rows():
    """A is read in place there, with so many loads in flight for all rows together."""
    (plain,) = SKINNY_GPU.defaults(Shape(2, 900, 900), GPU)
    (nvidia,) = SKINNY_GPU.defaults(Shape(2, 900, 900), NVIDIA)
    assert plain.config.chunk > 0
    assert nvidia.config.chunk == 0
    (one,) = SKINNY_GPU.defaults(Shape(1, 900, 900), NVIDIA)
    assert one.config.rows * one.config.ahead == nvidia.config.rows * nvidia.config.ahead


def test_edge_shapes_are_beside_what_is_loaded_at_a_time():
    """Without a chunk of A in local memory, that is as much as is in flight."""
    for traits in (GPU, NVIDIA):
        (choice,) = SKINNY_GPU.defaults(Shape(2, 900, 900), traits)
        config = choice.config
        depth = config.chunk or config.ahead * config.width
        shapes = SKINNY_GPU.edge_shapes(config)
        assert {depth - 1, depth, 2 * depth + 1} <= {shape.k for shape in shapes}
        assert all(shape.work for shape in shapes)


CONFIG = skinny_lanes_config(2, LIMITS)


def test_a_strip_lies_along_the_lanes():
    """With contiguous columns, the work-items that share a column are the ones along k."""
    along_n = variant_of(SkinnyGpuVariant, CONFIG)
    along_k = variant_of(SkinnyGpuVariant, CONFIG, along_k=True)
    assert along_n.strip == CONFIG.abreast * CONFIG.width
    assert along_k.strip == CONFIG.group // CONFIG.abreast


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk": 0}, "along_k needs a chunk of A in local memory, not chunk=0"),
        ({"along_k": False, "unaligned": True}, "unaligned needs along_k"),
        ({"chunk": 1000}, "chunk=1000 columns of A are no multiple of the 512"),
    ],
)
def test_broken_variants_say_why(changes, message):
    """Loads divide a chunk, and only columns begin anywhere."""
    variant = variant_of(SkinnyGpuVariant, replace(CONFIG, abreast=32, chunk=1024), along_k=True)
    assert not list(variant.problems())
    (problem,) = replace(variant, **changes).problems()
    assert problem.startswith(message)


def test_columns_that_begin_anywhere_take_more_local_memory():
    """Their last load meets elements of A behind those of a chunk."""
    aligned = variant_of(SkinnyGpuVariant, CONFIG, along_k=True)
    unaligned = replace(aligned, unaligned=True)
    more = unaligned.local_memory_bytes - aligned.local_memory_bytes
    assert more == 4 * CONFIG.rows * CONFIG.width


@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize(("size", "memory"), [(64, 2**14), (1024, 2**14), (1024, 2**16)])
def test_work_groups_fit_every_device(rows, size, memory):
    """They are smaller where there is little local memory, and serve all rows at once."""
    limits = replace(LIMITS, work_group_size=size, local_memory_bytes=memory)
    config = skinny_lanes_config(rows, limits)
    assert not list(config.problems_on(limits))
    assert config.rows >= rows
    assert config.group * 16 <= memory // 2


def test_two_rows_have_larger_work_groups_than_three():
    """From three rows on a work-item needs more registers."""
    assert skinny_lanes_config(2, LIMITS).group > skinny_lanes_config(3, LIMITS).group


@pytest.mark.parametrize("n", [1024, 1536, 2048, 2560, 3072])
def test_slices_of_few_rows_run_side_by_side(n):
    """There are no more work-groups than the compute units hold, and more than half as many."""
    limits = replace(LIMITS, compute_units=132)
    lanes = skinny_lanes_config(1, limits)
    a, b = (x._replace(alignment_bytes=16) for x in (dense(1, n), dense(n, n)))
    for operands in ((a, b, dense(1, n)), (b.transposed(), a.transposed(), dense(n, 1))):
        step = make_plan(*operands, lanes, None, limits).steps[0]
        assert 66 < step.groups * step.config.items / 1024 <= 132


@pytest.mark.parametrize(("group", "along_k"), [(64, 64), (256, 256), (1024, 256)])
def test_work_groups_are_smaller_where_columns_are_contiguous(group, along_k):
    """Those along k have at most 256 work-items, and no more than the config has."""
    config = replace(skinny_lanes_config(1, LIMITS), group=group, chunk=64)
    for b, items in ((dense(512, 512), group), (dense(512, 512).transposed(), along_k)):
        step = make_plan(dense(1, 512), b, dense(1, 512), config, None, LIMITS).steps[0]
        assert step.config.items == items


@pytest.mark.parametrize("chunk", [0, 64, 4096])
@pytest.mark.parametrize(("k", "alignment"), [(2464, 256), (2463, 256), (2464, 4)])
def test_columns_may_begin_anywhere(k, alignment, chunk):
    """They are read by the same loads, which divide a chunk of A."""
    config = replace(skinny_lanes_config(1, LIMITS), chunk=chunk)
    b = dense(900, k).transposed()._replace(alignment_bytes=alignment)
    found = make_plan(dense(1, k), b, dense(1, 900), config, None, LIMITS).steps[0].config
    assert found.width == config.width
    assert found.unaligned == (k % config.width > 0 or alignment < 16)
    assert not list(found.problems_on(LIMITS))
    assert found.chunk <= max(chunk or 4096, found.step)


@pytest.mark.parametrize(
    ("n", "k", "abreast"),
    [(7493, 13869, 128), (9001, 700, 128), (15667, 487, 64), (5911, 459, 32), (300, 100, 8)],
)
def test_work_items_read_long_runs_of_a_row_if_all_compute_units_have_some(n, k, abreast):
    """Rows of an odd length are read float by float: by more work-items side by side."""
    limits = replace(LIMITS, compute_units=132)
    config = replace(skinny_lanes_config(1, limits), group=256, abreast=32, chunk=0)
    b = dense(k, n)._replace(alignment_bytes=16)
    found = make_plan(dense(1, k), b, dense(1, n), config, None, limits).steps[0].config
    assert (found.width, found.abreast) == (4 if n % 4 == 0 else 2 if n % 2 == 0 else 1, abreast)


@pytest.mark.parametrize("group", [12, 24, 64, 256])
def test_any_work_group_reads_columns(group):
    """Whatever size of work-group a record has."""
    config = replace(skinny_lanes_config(1, LIMITS), group=group, chunk=0)
    b = dense(900, 3001).transposed()
    step = make_plan(dense(1, 3001), b, dense(1, 900), config, None, LIMITS).steps[0]
    assert not list(step.config.problems())
    assert step.config.group <= group


def test_the_last_cache_keeps_a_part_of_a_larger_matrix():
    """Loads have a hint for the part that fits; none has one if all of it fits, or hardly any."""
    limits = replace(LIMITS, compute_units=132, persisting_cache_bytes=2**25)
    lanes = replace(skinny_lanes_config(1, limits), ahead=8)

    def kept(n, k, *batch, one_b=False, limits=limits, transposed=False, alignment=16):
        b = dense(k, n) if one_b else dense(k, n, *batch)
        a, b, c = dense(1, k, *batch), b.broadcast(batch), dense(1, n, *batch)
        if transposed:
            a, b, c = (x.transposed() for x in (b, a, c))
        a, b = (x._replace(alignment_bytes=alignment) for x in (a, b))
        return make_plan(a, b, c, lanes, None, limits).steps[0].config.cached_loads

    assert kept(4096, 4096) == kept(4096, 4096, transposed=True) == 4
    assert kept(4096, 4096, alignment=8) == 0
    assert [kept(2**11 << i, 4096) for i in range(6)] == [0, 4, 2, 1, 0, 0]
    assert kept(1024, 4096, 4) == 4
    assert kept(1024, 4096, 4, one_b=True) == 0
    assert kept(4096, 4096, limits=replace(limits, persisting_cache_bytes=0)) == 0


def test_a_work_group_takes_as_long_for_fewer_columns():
    """Where B's columns are contiguous: a batch of 17 columns counts as one of 32."""

    def expected(n):
        a, b, c = dense(7, 165, 594), dense(n, 165, 594), dense(7, n, 594)
        turned = b._replace(shape=(594, 165, n), strides=(n * 165, 1, 165))
        step = make_plan(a, turned, c, skinny_lanes_config(7, LIMITS), None, LIMITS).steps[0]
        assert step.config.along_k
        return expected_us(Plan((step,)), LIMITS, 0.0)

    assert expected(16) < expected(17) == expected(32)


SPACE = SKINNY_GPU.search_space(SKINNY_GPU.plainest(GPU), GPU)


def test_a_points_chunk_suits_the_rows():
    """In the coarse grid, more rows have shorter chunks: A's part of local memory stays the same.

    All of them leave configs that the largest work-groups can run.
    """
    point = {name: values[0] for name, values in SPACE.values.items()} | {"group": 1024}
    pairs = SPACE.coarse["rows", "chunk"]
    assert {rows * chunk for rows, chunk in pairs} == {1024, 4096}
    for rows, chunk in pairs:
        choice = SPACE.make(point | {"rows": rows, "chunk": chunk, "abreast": 8})
        assert not list(choice.config.problems())


def test_the_hints_of_a_launch_are_not_searched():
    """Which loads the last cache keeps depends on the product: a plan decides it."""
    assert {"cached_loads", "along_k", "fused_split_k"}.isdisjoint(SPACE.values)
    assert "ahead" in SPACE.values
