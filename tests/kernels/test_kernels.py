"""Every kernel family with every shipped config, and odd ones, straight through the planner."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_ins import compile_plainly, skip_on_pocl
from strategies import buffers, integers

import clgemm
from clgemm.core.plan import ceil_div, round_up
from clgemm.core.traits import Limits
from clgemm.kernels import family_named
from clgemm.kernels.blocked import family as blocked
from clgemm.kernels.blocked.family import BlockedConfig, BlockedEstimate, register_config
from clgemm.kernels.cached.family import CachedConfig, cached_configs
from clgemm.kernels.common import panels
from clgemm.kernels.common.family import Choice
from clgemm.kernels.direct.family import DirectConfig
from clgemm.kernels.outer_product.family import DEPTHS, OuterProductConfig
from clgemm.kernels.pack import plan as pack_plan
from clgemm.kernels.pack.plan import PackConfig, VectorPackConfig, copy_config, pack_config
from clgemm.kernels.skinny_cpu.family import SkinnyCpuConfig, skinny_config
from clgemm.kernels.skinny_gpu import family as skinny_plan
from clgemm.kernels.skinny_gpu.family import SkinnyGpuConfig, skinny_lanes_config
from clgemm.kernels.split_k import plan as split_k_plan
from clgemm.kernels.split_k.plan import ReduceConfig
from clgemm.kernels.tiled import plan as tiled_plan
from clgemm.kernels.tiled.family import gpu_configs, lane_configs, nvidia_configs
from clgemm.kernels.tiled.plan import TiledConfig, TiledEstimate
from clgemm.planning import bounded, planner
from clgemm.records.verdicts import Verdict
from clgemm.runtime import readiness
from clgemm.transfer import call_cache, multiply
from clgemm.transfer.multiply import duplicate

ODD_TILES = TiledConfig(
    tile_m=12,
    tile_n=20,
    tile_k=8,
    work_m=3,
    work_n=10,
    width_a=1,
    width_b=2,
    grid_n=2,
    unroll=4,
    buffers=1,
    swizzle=3,
    fma=False,
    in_place=True,
)
TALL = replace(
    ODD_TILES,
    tile_m=24,
    tile_n=8,
    tile_k=4,
    work_m=6,
    work_n=2,
    width_a=2,
    grid_n=1,
    unroll=1,
    buffers=2,
)
FMA = replace(ODD_TILES, tile_n=16, tile_k=8, work_n=4, width_b=4, grid_n=4, unroll=8, fma=True)
WIDE = replace(ODD_TILES, tile_m=16, tile_n=32, work_m=4, work_n=8, width_a=4, width_b=4, grid_n=2)
SHARED = replace(FMA, tile_m=16, tile_k=16, work_m=4, width_a=4, parts=2)
THIRDS = replace(WIDE, tile_k=12, parts=3)
# 15 work-items, which do not divide the 63 loads of a tile of B.
LEFT_OVER = replace(ODD_TILES, tile_m=15, tile_n=18, tile_k=7, work_n=6, grid_n=3, unroll=7)
LOCAL = [
    LEFT_OVER,
    replace(LEFT_OVER, buffers=2),
    ODD_TILES,
    TALL,
    FMA,
    SHARED,
    THIRDS,
    *lane_configs(),
    gpu_configs()[1],
    *nvidia_configs(),
]
ODD_REGISTERS = BlockedConfig(
    work_m=3,
    vectors=1,
    width=2,
    block_m=2,
    block_n=2,
    block_k=7,
    unroll=3,
    prefetch=0,
    prefetch_a=0,
    in_place=False,
    aliasing=0,
    fma=False,
)
REGISTER = [
    ODD_REGISTERS,
    replace(ODD_REGISTERS, in_place=True),
    *(replace(register_config(w, False, False), in_place=w > 4) for w in (2, 4, 8, 16)),
]
CACHED = [
    CachedConfig(12, 20, 3, 10, 1, 2, unroll=4, swizzle=3, fma=True),
    CachedConfig(16, 16, 4, 4, 1, 1, unroll=1, swizzle=1, fma=False),
    *cached_configs(),
]
DIRECT = [
    DirectConfig(items_m=1, items_n=1, work_m=1, width=1, fma=False),
    DirectConfig(items_m=4, items_n=2, work_m=3, width=4, fma=True),
    DirectConfig(items_m=8, items_n=8, work_m=2, width=2, fma=False),
    DirectConfig(items_m=1, items_n=1, work_m=4, width=8, fma=False),
]
OUTER = [
    OuterProductConfig(items_m=2, items_n=3, work_m=4, work_n=3, fma=False),
    OuterProductConfig(items_m=3, items_n=8, work_m=1, work_n=2, fma=True),
]


ODD_SKINNY = SkinnyCpuConfig(rows=3, vectors=2, width=2, strip=12, chunk=5, prefetch=0, fma=False)
SKINNY = [ODD_SKINNY, *(skinny_config(rows, 16, False) for rows in (1, 4))]
GPU = Limits(48 * 1024, 1024, 2**40, 132, 1)
ODD_LANES = SkinnyGpuConfig(rows=3, width=2, group=12, abreast=3, chunk=10, fma=False, ahead=3)
SKINNY += [
    ODD_LANES,
    replace(ODD_LANES, chunk=0),
    # So many parts of a sum are added up in two steps.
    SkinnyGpuConfig(rows=2, width=1, group=40, abreast=1, chunk=40, fma=False, ahead=1),
    *(skinny_lanes_config(rows, GPU) for rows in (1, 3, 8)),
]


def name(config):
    """A config as a short test name."""
    if config is None:
        return "chosen"
    return config.family + "-" + "x".join(str(v) for _, v in config.macros())


def choice_of(config, device):
    """The choice that a database would return for a config."""
    if isinstance(config, (DirectConfig, OuterProductConfig, SkinnyGpuConfig)):
        return Choice(config, None)
    if isinstance(config, SkinnyCpuConfig):
        return Choice(config, (copy_config(device.limits),))
    if isinstance(config, BlockedConfig):
        return Choice(config, (VectorPackConfig.of(config.tile_m, config.prefetch > 0),))
    tiles = config.tile_m, config.tile_n
    return Choice(config, tuple(pack_config(device.limits, t) for t in tiles))


def force(config, device, monkeypatch):
    """Make every product use one config."""
    assert not list(config.problems())
    if isinstance(config, BlockedConfig) and device.kind == "GPU":
        # NVIDIA's compiler loses a step of this family's loop when it is unrolled by three.
        pytest.skip("the register family is for processors: no GPU is given it")
    if isinstance(config, BlockedConfig) and "llvmpipe" in device.name:
        pytest.skip("llvmpipe loses blocks that are drawn by atomic counters; it is given none")
    if problems := list(config.problems_on(device.limits)):
        pytest.skip(f"the device cannot run it: {problems}")
    choose(choice_of(config, device), device, monkeypatch)


def choose(choice, device, monkeypatch):
    """Make every product use one choice, and forget the plans of others."""
    family = family_named(choice.config.family)
    if not family.runs_on(device.traits):
        skip_on_pocl(device)
        compile_plainly(device, monkeypatch)
    monkeypatch.setattr(planner, "choose", lambda *_: (family, choice))
    monkeypatch.setattr(readiness, "judge", lambda *_: Verdict())  # a child would choose otherwise
    plan_anew(monkeypatch)


def plan_anew(monkeypatch):
    """Forget plans, and forget those made from now on at the end."""
    for name in ("plan_of", "make_plan"):
        monkeypatch.setattr(planner, name, lru_cache(getattr(planner, name).__wrapped__))
    monkeypatch.setattr(multiply, "copy_plan", pack_plan.copy_plan.__wrapped__)
    monkeypatch.setattr(call_cache, "_calls", {})


def around(tile):
    """Sizes at and beside a tile's edges."""
    return sorted({1, tile - 1, tile, tile + 1, 2 * tile, 2 * tile + 1} - {0})


@pytest.mark.parametrize("config", [*LOCAL, *CACHED, *REGISTER, *DIRECT], ids=name)
def test_exact_around_every_tile_edge(config, device, monkeypatch):
    """One less, exactly, and one more than one and two tiles, in every dimension."""
    force(config, device, monkeypatch)
    rng = np.random.default_rng(7)
    if isinstance(config, TiledConfig):
        tiles = config.tile_m, config.tile_n, config.tile_k
    elif isinstance(config, BlockedConfig):
        tiles = config.work_m * config.block_m, config.tile_n, config.block_k
    elif isinstance(config, CachedConfig):
        tiles = config.tile_m, config.tile_n, config.unroll
    else:
        tiles = config.items_m * config.work_m, config.items_n * config.width, 2
    sizes = [around(tile) for tile in tiles]
    # Every size of each dimension at least once, and all corners of the middle ones.
    longest = max(map(len, sizes))
    cases = {tuple(s[min(i, len(s) - 1)] for s in sizes) for i in range(longest)}
    cases |= set(product(*(s[1:4:2] for s in sizes)))
    for m, n, k in sorted(cases):
        a, b, c = integers(rng, (m, k)), integers(rng, (k, n)), integers(rng, (m, n))
        expected = 2 * (a @ b) - c
        clgemm.sgemm(2.0, a, b, -1.0, c, overwrite_c=1)
        np.testing.assert_array_equal(c, expected, err_msg=f"{(m, n, k)}")


def check_any_strides(data, m, n, k):
    """Multiply views of any stride, with guards around the result.

    Return the source of random numbers, A, B and their product.
    """
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    a = data.draw(buffers(integers(rng, (m, k))))
    b = data.draw(buffers(integers(rng, (k, n))))
    c = data.draw(buffers(np.full((m, n), np.nan, np.float32), guard=3.0))
    expected = a.view @ b.view
    clgemm.sgemm(1.0, a.view, b.view, 0.0, c.view, overwrite_c=1)
    np.testing.assert_array_equal(c.view, expected)
    assert c.untouched_outside(c.view)
    return rng, a.view, b.view, expected


@pytest.mark.parametrize(
    "config",
    [ODD_TILES, lane_configs()[-1], CACHED[0], ODD_REGISTERS, *DIRECT[:2]],
    ids=name,
)
@settings(max_examples=15)  # each may compile kernels
@given(data=st.data(), m=st.integers(1, 50), n=st.integers(1, 50), k=st.integers(1, 30))
def test_any_strides(config, data, m, n, k, device):
    """Views of any stride and direction, the result one too, guards around it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        force(config, device, monkeypatch)
        check_any_strides(data, m, n, k)


@pytest.mark.parametrize("config", [ODD_TILES, lane_configs()[-1]], ids=name)
def test_operands_that_fit_are_read_in_place(config, device, monkeypatch):
    """Whole aligned tiles of the right order: a launch, and no packing."""
    force(config, device, monkeypatch)
    plans, made = [], planner.make_plan

    def recorded(*arguments):
        plans.append(made(*arguments))
        return plans[-1]

    monkeypatch.setattr(planner, "make_plan", recorded)
    rng = np.random.default_rng(7)
    m, n, k = 2 * config.tile_m, 2 * config.tile_n, 2 * config.tile_k
    host_a, host_b = integers(rng, (k, m)), integers(rng, (k, n))
    # Device memory begins at a multiple of every vector's size; NumPy's does by chance only.
    a, b = (cl.array.to_device(device.queue, x) for x in (host_a, host_b))
    for step, families in ((1, ["tiled"]), (2, ["pack", "tiled"])):
        result = clgemm.sgemm(1.0, a[:, ::step], b, trans_a=1, order="C")
        np.testing.assert_array_equal(result.get(), host_a[:, ::step].T @ host_b)
        assert [step.config.family for step in plans[-1].steps] == families


@pytest.mark.parametrize("config", [ODD_TILES, TALL, WIDE], ids=name)
@given(data=st.data(), m=st.integers(1, 50), n=st.integers(1, 50), k=st.integers(1, 50))
def test_device_operands_are_read_where_they_lie(config, data, m, n, k, device):
    """In either order, any leading dimension, from any element on: loads as wide as that allows."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        force(config, device, monkeypatch)
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        operands = []
        for rows, columns in ((m, k), (k, n)):
            turned, first = data.draw(st.booleans()), data.draw(st.integers(0, 4))
            shape = (columns, rows) if turned else (rows, columns)
            leading = shape[1] + data.draw(st.integers(0, 4))
            values = integers(rng, shape)
            memory = np.full(first + shape[0] * leading, np.nan, np.float32)
            memory[first:].reshape(-1, leading)[:, : shape[1]] = values
            view = cl.array.Array(
                device.queue,
                shape,
                np.float32,
                strides=(4 * leading, 4),
                data=cl.array.to_device(device.queue, memory).base_data,
                offset=4 * first,
            )
            operands.append((view.T, values.T) if turned else (view, values))
        (a, host_a), (b, host_b) = operands
        c = cl.array.to_device(device.queue, np.full((m, n), np.nan, np.float32))
        clgemm.sgemm(2.0, a, b, 0.0, c, overwrite_c=1)
        np.testing.assert_array_equal(c.get(), 2 * (host_a @ host_b))
        clgemm.sgemm(1.0, a, b, -1.0, c, overwrite_c=1)
        np.testing.assert_array_equal(c.get(), -(host_a @ host_b))


@pytest.mark.parametrize("config", OUTER, ids=name)
@given(
    data=st.data(),
    m=st.integers(1, 40),
    n=st.integers(1, 40),
    k=st.integers(1, DEPTHS[-1]),
    matrices=st.integers(1, 3),
)
def test_a_short_k_in_any_strides(config, data, m, n, k, matrices, device):
    """Outer products of every depth: views of any stride, guards around the result, batches."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        force(config, device, monkeypatch)
        rng, a, b, expected = check_any_strides(data, m, n, k)
        before = integers(rng, (m, n))
        result = clgemm.sgemm(2.0, a, b, -3.0, before)
        np.testing.assert_array_equal(result, 2 * expected - 3 * before)
        stack = integers(rng, (matrices, k, m)).swapaxes(-1, -2)
        np.testing.assert_array_equal(clgemm.matmul(stack, b), stack @ b)


SLICED = [ODD_TILES, lane_configs()[-1], *nvidia_configs()]
GATHERING = [ODD_TILES, SHARED, nvidia_configs()[2]]


@pytest.mark.parametrize(
    ("config", "fused_split_k", "stack"),
    [
        *((config, False, ()) for config in SLICED),
        *((config, True, ()) for config in GATHERING),
        *((ODD_TILES, is_fused, (3,)) for is_fused in (False, True)),
    ],
    ids=lambda x: name(x) if isinstance(x, TiledConfig) else str(x),
)
def test_deep_tiles_in_slices(config, fused_split_k, stack, device, monkeypatch):
    """Few tiles of C and a long sum: slices of k side by side, the last shorter, then added up.

    By a launch of its own, or by the last work-group of each tile.
    """
    if fused_split_k and not device.limits.fused_split_k:
        pytest.skip("work-groups cannot see what others have written")
    spread = TiledEstimate(5, 0.0, fused_split_k)
    monkeypatch.setattr(tiled_plan, "tiled_estimate", lambda *_: spread)
    force(config, device, monkeypatch)
    rng = np.random.default_rng(7)
    for m, n in ((9, 21), (config.tile_m, config.tile_n)):
        a, b = integers(rng, (*stack, m, 230)), integers(rng, (*stack, 230, n))
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
        if not stack:
            c = integers(rng, (m, n))
            for order in "CF":
                result = clgemm.sgemm(2.0, a, b, 3.0, c, order=order)
                np.testing.assert_array_equal(result, 2 * (a @ b) + 3 * c)


@pytest.mark.parametrize(
    "config",
    [ReduceConfig(group=12, parts=3, width=2), ReduceConfig(group=16, parts=8, width=4)],
    ids=name,
)
@pytest.mark.parametrize("n", [16, 21])
def test_slices_added_up_by_several_work_items(config, n, device, monkeypatch):
    """Work-items of one group share the slices of an element, on devices with vectors too."""
    monkeypatch.setattr(split_k_plan, "_reduce_config", lambda *_: config)
    monkeypatch.setattr(tiled_plan, "tiled_estimate", lambda *_: TiledEstimate(20, 0.0, False))
    force(ODD_TILES, device, monkeypatch)
    rng = np.random.default_rng(7)
    a, b, c = integers(rng, (9, 230)), integers(rng, (230, n)), integers(rng, (9, n))
    for order in "CF":
        result = clgemm.sgemm(2.0, a, b, 3.0, c, order=order)
        np.testing.assert_array_equal(result, 2 * (a @ b) + 3 * c)


@pytest.mark.parametrize("config", [ODD_TILES, CACHED[0], ODD_REGISTERS], ids=name)
@pytest.mark.parametrize("stack", [(), (5,), (2, 3)])
def test_products_in_blocks(config, stack, device, monkeypatch):
    """Packed operands larger than the scratch budget: blocks of k, m, n and of the stack."""
    monkeypatch.setattr(panels, "SCRATCH_BYTES", 2 * 24 * 16 * 4)
    monkeypatch.setattr(panels, "SMALLEST_DEPTH", 8)
    monkeypatch.setattr(blocked, "TRANSPOSED", 8)
    monkeypatch.setattr(panels, "LAST_GROUP", 30)
    force(config, device, monkeypatch)
    rng = np.random.default_rng(7)
    a, b = integers(rng, (*stack, 31, 22)), integers(rng, (*stack, 22, 27))
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    if not stack:
        c = integers(rng, (31, 27))
        np.testing.assert_array_equal(clgemm.sgemm(2.0, a, b, 3.0, c), 2 * (a @ b) + 3 * c)


@pytest.mark.parametrize("shape", [(10, 7), (5, 2, 7), (2, 3, 3, 300)])
def test_copies_in_several_launches(shape, device, monkeypatch):
    """A copy of more rows or matrices than one launch may have holds all of them."""
    monkeypatch.setattr(pack_plan, "LAST_ITEM", 8 * copy_config(device.limits).items)
    plan_anew(monkeypatch)
    *batch, m, n = shape
    stored = np.arange(np.prod(shape), dtype=np.float32).reshape(*batch, n, m)
    axes = (*range(len(batch)), len(batch) + 1, len(batch))
    turned = cl.array.to_device(device.queue, stored).transpose(axes)
    copy = duplicate(turned, "C", device.queue).get()
    np.testing.assert_array_equal(copy, stored.transpose(axes))


@pytest.mark.parametrize("config", [ODD_TILES, ODD_REGISTERS, DIRECT[2], None], ids=name)
@pytest.mark.parametrize("stack", [(), (5,), (2, 3)])
def test_products_in_launches_of_few_work_items(config, stack, device, monkeypatch):
    """What has more work-items than a launch may have is cut by rows, columns and matrices."""
    for module in (bounded, pack_plan):
        monkeypatch.setattr(module, "LAST_ITEM", 700)
    monkeypatch.setattr(bounded, "GRAIN", 8)
    plan_anew(monkeypatch)
    if config is not None:
        force(config, device, monkeypatch)
    rng = np.random.default_rng(7)
    shapes = ((97, 2),) if config is None and stack else ((71, 47), (97, 2), (2, 97))
    for m, n in shapes:
        a, b = integers(rng, (*stack, m, 22)), integers(rng, (*stack, 22, n))
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
        on_device = [cl.array.to_device(device.queue, x) for x in (a, b)]
        np.testing.assert_array_equal(clgemm.matmul(*on_device).get(), a @ b)
        if not stack:
            c = integers(rng, (m, n))
            for order in "CF":
                result = clgemm.sgemm(2.0, a, b, 3.0, c, order=order)
                np.testing.assert_array_equal(result, 2 * (a @ b) + 3 * c)
            result = clgemm.sgemm(2.0, *on_device, 3.0, cl.array.to_device(device.queue, c))
            np.testing.assert_array_equal(result.get(), 2 * (a @ b) + 3 * c)
            np.testing.assert_array_equal(clgemm.sgemm(0.0, a, b, 3.0, c), 3 * c)


@pytest.mark.parametrize(("depth", "group"), [(1, 1), (7, 3), (64, 1), (16, 32)])
def test_packing_any_depth_and_group(depth, group, device, monkeypatch):
    """Blocks deeper than the matrix, and work-items that do not divide them."""
    packs = tuple(PackConfig(panel=t, depth=depth, group=group) for t in (12, 20))
    choose(Choice(ODD_TILES, packs), device, monkeypatch)
    rng = np.random.default_rng(7)
    a, b = integers(rng, (31, 17)), integers(rng, (17, 45))
    for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b)), (a[:, ::-1], b[::-1])):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, x, y), x @ y)


@pytest.mark.parametrize("stack", [(), (3,)])
def test_operands_that_repeat_in_memory(stack, device, monkeypatch):
    """Blocks of B that begin at one place and differ in depth, or in nothing at all."""
    force(ODD_REGISTERS, device, monkeypatch)
    rng = np.random.default_rng(7)
    row, column = integers(rng, (1, 11)), integers(rng, (23, 1))
    for m, b in product((1, 31), (row, column)):
        a = integers(rng, (*stack, m, 23))
        repeated = np.broadcast_to(b, (23, 11))
        np.testing.assert_array_equal(clgemm.matmul(a, repeated), a @ repeated)


@pytest.fixture
def spread_out(monkeypatch):
    """What sets how blocks of `register` spread: so many slices of k, in so many lists."""

    def spread(cuts, lists):
        def chosen(config, m, n, k, matrices, block_k, units):
            slice_k = round_up(ceil_div(k, cuts), block_k)
            return BlockedEstimate(1, config.tile_n, slice_k, min(lists, units))

        monkeypatch.setattr(blocked, "register_spread", chosen)

    return spread


@pytest.mark.parametrize("config", REGISTER, ids=name)
@pytest.mark.parametrize("stack", [(), (3,)])
def test_deep_products_in_slices(config, stack, device, monkeypatch, spread_out):
    """Slices of k side by side, the last one shorter, then added up."""
    spread_out(cuts=3, lists=2)
    force(replace(config, block_k=min(config.block_k, 16)), device, monkeypatch)
    rng = np.random.default_rng(7)
    a, b = integers(rng, (*stack, 9, 100)), integers(rng, (*stack, 100, 21))
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    if not stack:
        c = integers(rng, (9, 21))
        for order in "CF":
            result = clgemm.sgemm(2.0, a, b, 3.0, c, order=order)
            np.testing.assert_array_equal(result, 2 * (a @ b) + 3 * c)


@pytest.mark.parametrize("lists", [1, 2, 3])
def test_blocks_in_lists(lists, device, monkeypatch, spread_out):
    """Each once, by whichever work-group: more of them than lists, and fewer; B shared or not."""
    spread_out(cuts=1, lists=lists)
    force(ODD_REGISTERS, device, monkeypatch)
    rng = np.random.default_rng(7)
    a = integers(rng, (2, 3, 8, 9)).swapaxes(-1, -2)
    for stack in ((), (3,), (2, 1), (2, 3)):
        b = integers(rng, (*stack, 8, 5))
        for _ in range(2):  # the first has left the counters as they were
            np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)


@pytest.mark.parametrize("config", [ODD_REGISTERS, REGISTER[-1]], ids=name)
@pytest.mark.parametrize("near", [0, blocked.PACKED_NEAR])
def test_packing_by_who_multiplies_or_before(near, config, device, monkeypatch, spread_out):
    """Blocks of A and of k, matrices with an A of their own or shared, slices; A as it may lie."""
    monkeypatch.setattr(blocked, "PACKED_NEAR", near)
    monkeypatch.setattr(blocked, "PACKED_MEANWHILE", 0)
    spread_out(cuts=2, lists=2)
    force(replace(config, block_k=16, in_place=False), device, monkeypatch)
    rng = np.random.default_rng(7)
    m, n, k = config.tile_m + 1, 3, 35
    for stack_a, stack_b in (((), ()), ((), (3,)), ((2, 1), (2,))):
        a, b = integers(rng, (*stack_a, m, k)), integers(rng, (*stack_b, k, n))
        turned = np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
        for _ in range(2):  # the first has left the counters as they were
            np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
            np.testing.assert_array_equal(clgemm.matmul(turned, b), a @ b)


@pytest.mark.parametrize("config", [ODD_REGISTERS, REGISTER[-1]], ids=name)
@pytest.mark.parametrize("cuts", [(1, 16), (2, 32), (3, 16), (3, 32)])
def test_packing_in_parts(cuts, config, device, monkeypatch, spread_out):
    """A launch packs A in parts of so many panels and columns of a block, the last ones smaller."""
    monkeypatch.setattr(blocked, "PACKED_NEAR", 0)
    monkeypatch.setattr(blocked.RegisterPanels, "_cuts", lambda *_: cuts)
    spread_out(cuts=1, lists=1)
    force(replace(config, block_k=48, in_place=False), device, monkeypatch)
    rng = np.random.default_rng(7)
    m, n, k = 4 * config.tile_m + 1, 3, 83
    a, b = integers(rng, (2, m, k)), integers(rng, (k, n))
    for turned in (a, np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)):
        np.testing.assert_array_equal(clgemm.matmul(turned, b), a @ b)


@pytest.mark.parametrize("config", [ODD_REGISTERS, REGISTER[-1]], ids=name)
@pytest.mark.parametrize("most", [0, blocked.PACKED_MEANWHILE])
def test_packing_while_multiplying(most, config, device, monkeypatch, spread_out):
    """Rows of A that are neighbours; whole panels and edges of A and B; blocks of k, slices."""
    monkeypatch.setattr(blocked, "PACKED_MEANWHILE", most)
    spread_out(cuts=2, lists=2)
    force(replace(config, block_k=16, in_place=False), device, monkeypatch)
    rng = np.random.default_rng(7)
    m, k = device.limits.compute_units * config.tile_m + 1, 67
    for n in (config.tile_n - 1, config.tile_n, 2 * config.tile_n + 1):
        a, b, c = integers(rng, (k, m)).T, integers(rng, (k, n)), integers(rng, (m, n))
        for order in "CF":
            result = clgemm.sgemm(2.0, a, b, 3.0, c, order=order)
            np.testing.assert_array_equal(result, 2 * (a @ b) + 3 * c, err_msg=f"{(n, order)}")


@pytest.mark.parametrize("config", REGISTER, ids=name)
def test_blocks_stored_along_their_columns(config, device, monkeypatch):
    """C' = B' A', operands in each other's place: whole vectors, edges, what C was before."""
    monkeypatch.setattr(blocked, "is_faster_transposed", lambda *_: True)
    force(replace(config, block_k=16), device, monkeypatch)
    rng = np.random.default_rng(7)
    k, tile_m, tile_n = 19, config.tile_m, config.tile_n
    for m, n in product((tile_n - 1, tile_n, 2 * tile_n + 1), (tile_m - 1, tile_m, tile_m + 1)):
        a, b, c = integers(rng, (m, k)), integers(rng, (k, n)), integers(rng, (m, n))
        for beta in (0.0, -1.0):
            result = clgemm.sgemm(2.0, a, b, beta, c)
            np.testing.assert_array_equal(result, 2 * (a @ b) + beta * c, err_msg=f"{(m, n)}")


@pytest.mark.parametrize("panel", [2, 3, 4, 6, 8, 12, 16, 24, 48])
@given(data=st.data(), rows=st.integers(1, 60), columns=st.integers(1, 40))
def test_packing_by_vectors(panel, data, rows, columns, device):
    """Panels of every kind of piece, from any strides, as C gets them from a product with I."""
    config = replace(ODD_REGISTERS, work_m=panel, width=8, vectors=1, block_k=32)
    with pytest.MonkeyPatch.context() as monkeypatch:
        force(config, device, monkeypatch)
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        a = data.draw(buffers(integers(rng, (rows, columns))))
        identity = np.eye(columns, dtype=np.float32)
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a.view, identity), a.view)


@pytest.mark.parametrize(
    "config",
    [
        replace(ODD_LANES, width=4, chunk=36),
        replace(ODD_LANES, width=4, chunk=0),
        *(skinny_lanes_config(rows, GPU) for rows in (1, 3)),
        replace(skinny_lanes_config(1, GPU), chunk=0, ahead=8),
    ],
    ids=name,
)
@pytest.mark.parametrize("kept", [1, 2])
def test_part_of_a_matrix_stays_in_the_cache(config, kept, device, monkeypatch):
    """The same result, whichever loads are told to leave first; on H200s they are told."""
    if config.group > 40 and device.kind == "CPU":
        pytest.skip("as in test_skinny_products")
    if "NVIDIA" in device.platform and not device.limits.persisting_cache_bytes:
        pytest.skip("its assembly may not have the hints")
    monkeypatch.setattr(
        skinny_plan,
        "loads_to_cache",
        lambda fit, *_: min(kept, fit.ahead - 1) if fit.width == 4 else 0,
    )
    choose(choice_of(config, device), device, monkeypatch)
    rng = np.random.default_rng(5)
    for m, n, k in ((1, 300, 1004), (3, 4, 600), (2, 1028, 8), (3, 96, 4096)):
        a, b = integers(rng, (m, k)), integers(rng, (k, n))
        turned = np.ascontiguousarray(b.T).T
        for _ in range(2):
            np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
            np.testing.assert_array_equal(clgemm.matmul(a, turned), a @ b)
            np.testing.assert_array_equal(clgemm.matmul(b.T, a.T), (a @ b).T)


@pytest.mark.parametrize("config", SKINNY, ids=name)
@given(
    data=st.data(),
    m=st.integers(1, 8),
    n=st.sampled_from([1, 2, 11, 12, 13, 70, 300, 1025]),
    k=st.sampled_from([1, 7, 33, 600]),
    stack=st.sampled_from([(), (3,)]),
)
def test_skinny_products(config, data, m, n, k, stack, device):
    """Few rows, or few columns, in any orders: sums, scalar products and slices of k."""
    if isinstance(config, SkinnyGpuConfig) and config.group > 40 and device.kind == "CPU":
        pytest.skip("no processor is given it: PoCL 3.1 breaks down on work-groups this large")
    with pytest.MonkeyPatch.context() as monkeypatch:
        choose(choice_of(config, device), device, monkeypatch)
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        a, b = integers(rng, (*stack, m, k)), integers(rng, (*stack, k, n))
        if data.draw(st.booleans()):
            a, b = (np.ascontiguousarray(x.swapaxes(-1, -2)) for x in (b, a))
        a, b = (
            np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if turned else x
            for x, turned in zip(
                (a, b), data.draw(st.tuples(st.booleans(), st.booleans())), strict=True
            )
        )
        np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
        if not stack:
            c = integers(rng, (a.shape[0], b.shape[1]))
            order = data.draw(st.sampled_from("CF"))
            result = clgemm.sgemm(2.0, a, b, -1.0, c, order=order)
            np.testing.assert_array_equal(result, 2 * (a @ b) - c)


@pytest.mark.parametrize("config", SKINNY, ids=name)
def test_skinny_products_inside_larger_buffers(config, device, monkeypatch):
    """A, B and C may begin at any element of a buffer; nothing around C is written."""
    if isinstance(config, SkinnyGpuConfig) and config.group > 40 and device.kind == "CPU":
        pytest.skip("as in test_skinny_products")
    choose(choice_of(config, device), device, monkeypatch)
    rng = np.random.default_rng(7)

    def placed(values, first):
        memory = np.full(first + values.size + 9, np.nan, np.float32)
        memory[first : first + values.size] = values.ravel()
        whole = cl.array.to_device(device.queue, memory)
        view = cl.array.Array(
            device.queue, values.shape, np.float32, data=whole.base_data, offset=4 * first
        )
        return whole, view

    for m, n, k in ((2, 70, 33), (3, 12, 600)):
        a, b, c = integers(rng, (m, k)), integers(rng, (k, n)), integers(rng, (m, n))
        (_, x), (_, y), (whole, z) = placed(a, 5), placed(b, 4), placed(c, 7)
        clgemm.sgemm(2.0, x, y, -1.0, z, overwrite_c=1, order="C")
        np.testing.assert_array_equal(z.get(), 2 * (a @ b) - c)
        around = np.delete(whole.get(), np.s_[7 : 7 + c.size])
        assert np.isnan(around).all()
        (_, x), (_, y) = placed(np.ascontiguousarray(a.T), 3), placed(np.ascontiguousarray(b.T), 2)
        np.testing.assert_array_equal(clgemm.matmul(x.T, y.T).get(), a @ b)
