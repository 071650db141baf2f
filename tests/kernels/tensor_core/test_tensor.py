"""Tests of the kernels of tensor cores, on devices that have them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from strategies import GPU_LIMITS as LIMITS
from strategies import rows

import clgemm
from clgemm.kernels.common.family import Choice
from clgemm.kernels.pack.plan import pack_config
from clgemm.kernels.tensor_core import family as tensor
from clgemm.kernels.tensor_core import narrow
from clgemm.kernels.tensor_core import plan as tensor_plan
from clgemm.kernels.tensor_core.family import MMA as MMA_FAMILY
from clgemm.kernels.tensor_core.family import WGMMA, adds_coarsely
from clgemm.kernels.tensor_core.narrow import NARROW as NARROW_FAMILY
from clgemm.kernels.tensor_core.narrow import NarrowConfig
from clgemm.kernels.tensor_core.plan import (
    MmaConfig,
    MmaVariant,
    WgmmaVariant,
)
from clgemm.kernels.tiled.family import TILED, lane_configs
from clgemm.planning import planner
from clgemm.records.verdicts import Verdict
from clgemm.runtime import readiness
from clgemm.runtime.workspace import workspace
from clgemm.testing import gamma
from clgemm.testing.assertions import UNIT_ROUNDOFF
from clgemm.transfer import call_cache

WIDE = WgmmaVariant(swizzle=16, guard=True, tile_n=256, stages=2)
NARROW = WgmmaVariant(swizzle=3, guard=True, tile_n=128, stages=3)
IN_BYTES = replace(WIDE, guard=False, int8=True)
NARROW_IN_BYTES = replace(NARROW, guard=False, int8=True)
FAST = replace(NARROW, guard=False)
MMA = MmaVariant(swizzle=2, guard=True)
FEW = NarrowConfig(columns=64, ahead=2)
FEWER = NarrowConfig(columns=16, ahead=1)
SEVERAL = NarrowConfig(columns=96, ahead=1)
MORE = NarrowConfig(columns=128, ahead=2)
PLAIN = lane_configs()[0]
PACK = (pack_config(LIMITS, PLAIN.tile_m), pack_config(LIMITS, PLAIN.tile_n))


def force(monkeypatch, config):
    """Make every product use this config; a NarrowConfig where it can."""
    family = MMA_FAMILY if isinstance(config, MmaConfig) else WGMMA
    if isinstance(config, NarrowConfig):
        family = NARROW_FAMILY
    else:
        monkeypatch.setattr(type(family), "variant_for", lambda *_: config)

    def chosen(_device, problem):
        if problem.precision == "strict" or not family.fits(problem):
            return TILED, Choice(PLAIN, PACK)
        return family, Choice(config)

    for name in ("plan_of", "make_plan"):
        monkeypatch.setattr(planner, name, lru_cache(getattr(planner, name).__wrapped__))
    monkeypatch.setattr(call_cache, "_calls", {})
    monkeypatch.setattr(planner, "choose", chosen)
    monkeypatch.setattr(readiness, "judge", lambda *_: Verdict())  # a child would choose otherwise


def integers(rng, *shape):
    return rng.integers(-8, 9, shape).astype(np.float32)


@pytest.mark.parametrize(
    "config",
    [
        WIDE,
        NARROW,
        replace(WIDE, guard=False),
        IN_BYTES,
        NARROW_IN_BYTES,
        FAST,
        MMA,
        replace(MMA, guard=False),
        FEW,
        FEWER,
        replace(FEW, columns=32),
        SEVERAL,
        MORE,
    ],
)
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1),
        (127, 129, 63),
        (128, 256, 64),
        (129, 257, 65),
        (300, 100, 200),
        (255, 513, 1),
        (1000, 1900, 128),
    ],
)
def test_integers_are_exact(able, monkeypatch, config, sizes):
    """Around the tiles' edges, in both orders, beta or not; NaN in C where it must not be read."""
    force(monkeypatch, config)
    m, n, k = sizes
    rng = np.random.default_rng(7)
    a, b, c = integers(rng, m, k), integers(rng, k, n), integers(rng, m, n)
    for order in ("C", "F"):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b, order=order), a @ b)
        got = clgemm.sgemm(2.0, a.T.copy(), np.asfortranarray(b), -1.0, c, 1, order=order)
        np.testing.assert_array_equal(got, 2 * (a @ b) - c)
    out = np.full((m, n), np.nan, np.float32)
    clgemm.sgemm(1.0, a, b, 0.0, out, overwrite_c=1)
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("config", [WIDE, NARROW, replace(NARROW, stages=1)])
@pytest.mark.parametrize(
    "sizes", [(127, 129, 63), (129, 257, 65), (300, 100, 200), (900, 1300, 97)]
)
def test_integers_are_exact_in_tf32(able, monkeypatch, config, sizes):
    """Integers are scaled along k, up for A and down for B. Halves cannot hold that."""
    force(monkeypatch, config)
    m, n, k = sizes
    rng = np.random.default_rng(19)
    a, b, c = integers(rng, m, k), integers(rng, k, n), integers(rng, m, n)
    expected = 2 * (a @ b) - c
    scale = np.where(np.arange(k) % 2, 2.0**30, 1).astype(np.float32)
    a, b = a * scale, b / scale[:, None]
    assert listed(able, monkeypatch, a, b) > most_listed(m, n)
    for order in ("C", "F"):
        np.testing.assert_array_equal(clgemm.sgemm(2.0, a, b, -1.0, c, order=order), expected)


@pytest.mark.parametrize("config", [WIDE, NARROW, NARROW_IN_BYTES, FAST, MMA, FEW, MORE])
def test_any_strides_and_guards_beyond_the_edges(able, monkeypatch, config):
    """Operands and results that are views of every kind; elements beside them stay as they are."""
    force(monkeypatch, config)
    rng = np.random.default_rng(8)
    a, b = integers(rng, 401, 900)[1::2, ::3], integers(rng, 300, 301)[:, :0:-1]
    for base in (np.full((203, 307), np.nan, np.float32), np.full((400, 620), 3.0, np.float32)):
        before = base.copy()
        view = base[2:202, 3:303] if base.shape[0] < 400 else base[::2, 1:601:2]
        before[2:202, 3:303] if base.shape[0] < 400 else before[::2, 1:601:2]
        clgemm.sgemm(1.0, a, b, 0.0, view, overwrite_c=1)
        np.testing.assert_array_equal(view, a @ b)
        view[...] = 0
        (before[2:202, 3:303] if base.shape[0] < 400 else before[::2, 1:601:2])[...] = 0
        np.testing.assert_array_equal(base, before)


@pytest.mark.parametrize("config", [NARROW, FAST])
def test_blocks_and_stacks(able, monkeypatch, small_blocks, config):
    """Products too large for the scratch, and stacks of them."""
    force(monkeypatch, config)
    rng = np.random.default_rng(9)
    a, b = integers(rng, 3, 700, 1100), integers(rng, 3, 1100, 500)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    c = integers(rng, 700, 500)
    expected = 2 * (a[0] @ b[1]) + 3 * c
    np.testing.assert_array_equal(clgemm.sgemm(2.0, a[0], b[1], 3.0, c), expected)
    a[0, 5, 7:900] = 1e-20  # one block of k gives way to the plain kernel, the other does not
    got = clgemm.sgemm(1.0, a[0], b[1])
    np.testing.assert_allclose(got, a[0].astype(np.float64) @ b[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("config", [WIDE, NARROW, IN_BYTES, MMA, FEW, SEVERAL, MORE])
@pytest.mark.parametrize(
    ("stack_a", "stack_b"),
    [((5,), (5,)), ((5,), (1,)), ((1,), (5,)), ((3, 4), (4,)), ((2, 1), (3,))],
)
def test_stacks(able, monkeypatch, config, stack_a, stack_b):
    """Matrices that are repeated, reversed or apart, too."""
    force(monkeypatch, config)
    rng = np.random.default_rng(18)
    a, b = integers(rng, *stack_a, 150, 200), integers(rng, *stack_b, 200, 300)
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    np.testing.assert_array_equal(clgemm.matmul(a[::-1], b[..., ::2]), a[::-1] @ b[..., ::2])
    if isinstance(config, NarrowConfig) or config.guard:
        a[-1, ..., 5, 7:30:11] *= 2.0**-30  # listed; and more than may be
        np.testing.assert_allclose(clgemm.matmul(a, b), a @ b, rtol=1e-6, atol=1e-6)
        a[0] *= np.exp(8 * normal(rng, *a[0].shape)).astype(np.float32)
        exact, got = a.astype(np.float64) @ b, clgemm.matmul(a, b)
        allowed = gamma(200 + 128) * (np.abs(a.astype(np.float64)) @ np.abs(b))
        assert (np.abs(got - exact) <= allowed).all()


def normal(rng, *shape):
    return rng.standard_normal(shape)


def ordinary(rng, m, n, k):
    """Kinds of data whose elements are within a few orders of magnitude, zeros apart."""
    yield "normal", normal(rng, m, k), normal(rng, k, n)
    yield "uniform", rng.random((m, k)), rng.random((k, n))
    yield "signed uniform", rng.random((m, k)) - 0.5, rng.random((k, n)) - 0.5
    yield "pixels", rng.integers(0, 256, (m, k)), rng.integers(0, 256, (k, n)) / 255
    yield "ReLU and weights", np.maximum(normal(rng, m, k), 0), normal(rng, k, n) / 50
    yield "row-scaled", normal(rng, m, k) * np.exp(8 * normal(rng, m, 1)), normal(rng, k, n)


def adversarial(rng, m, n, k):
    """Kinds of data that two halves cannot hold."""
    for sigma in (1, 2, 4, 8):
        spread = [np.exp(sigma * normal(rng, *shape)) for shape in ((m, k), (k, n))]
        yield f"log-normal {sigma}", normal(rng, m, k) * spread[0], normal(rng, k, n) * spread[1]
    for sigma in (8, 20):
        scale = np.exp(sigma * np.clip(normal(rng, k), -2, 2))
        yield (
            f"scaled along k {sigma}",
            normal(rng, m, k) * scale,
            normal(rng, k, n) / scale[:, None],
        )
    yield "tiny", normal(rng, m, k) * 1e-38, normal(rng, k, n)
    yield "subnormal", normal(rng, m, k) * 1e-42, normal(rng, k, n) * 1e30
    yield "hardly normal products", normal(rng, m, k) * 2.0**-61, normal(rng, k, n) * 2.0**-61
    yield "tiny beside huge", normal(rng, m, k) * 2.0**-100, normal(rng, k, n) * 2.0**57
    yield "huge", normal(rng, m, k) * 5e37, normal(rng, k, n) * 1e-5
    yield "both huge", normal(rng, m, k) * 1e18, normal(rng, k, n) * 1e17
    yield "row-scaled more", normal(rng, m, k) * np.exp(40 * rng.random((m, 1))), normal(rng, k, n)
    hidden = normal(rng, m, k)
    hidden[:, ::64] *= 2.0**21
    met = normal(rng, k, n)
    met[::64] = 0
    yield "small beside large that meets zeros", hidden, met
    absorbed = np.full((m, k), 2.0**-25)
    absorbed[:, ::64] = 1
    yield "one large, sums of small ones", absorbed, np.ones((k, n))
    yield "one large, sums of what is cut off", absorbed * (4 - 2.0**-20), np.ones((k, n))
    for value in (np.inf, -np.inf, np.nan):
        for where in "ab":
            a, b = normal(rng, m, k), normal(rng, k, n)
            (a if where == "a" else b)[3, 5] = value
            a[7, 5] = b[5, 9] = 0  # infinity times zero
            yield f"one {value} in {where}", a, b
    a, b = normal(rng, m, k), normal(rng, k, n)
    a[3, 5], b[5, 9], a[100, k - 1], b[2, 2] = np.inf, -np.inf, 1e-30, 1e30
    yield "a few of everything", a, b
    a = normal(rng, m, k)
    a[:, 3] = np.nan
    yield "a column of NaN", a, normal(rng, k, n)
    yield "zeros", np.zeros((m, k)), normal(rng, k, n)


def cases(kinds):
    rng = np.random.default_rng(10)
    sizes = [(200, 330, 700), (140, 150, 64), (130, 260, 10)]
    return [
        pytest.param(a, b, id=f"{name}-{m}x{n}x{k}")
        for m, n, k in sizes
        for name, a, b in kinds(rng, m, n, k)
    ]


def excess(c, a, b, alpha=1.0, beta=0.0, c_before=0.0, slack=64):
    """How often c exceeds gamma(k + slack) (|alpha||A||B| + |beta||C|), where that is finite.

    Products and sums that leave float32's range, above or below, are excepted.
    """
    a, b, k = a.astype(np.float64), b.astype(np.float64), a.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        exact = alpha * (a @ b) + beta * c_before
        size = abs(alpha) * (np.abs(a) @ np.abs(b)) + np.abs(beta * c_before)
        finite = np.isfinite(exact)
        assert (size[finite] < 2.0**127).all(), "the test's own data overflow"
        allowed = gamma(k + slack) * size + (k + 2) * 2.0**-149
        return np.max(np.abs(c - exact)[finite] / allowed[finite], initial=0.0)


@pytest.mark.parametrize(
    "config", [WIDE, NARROW, replace(NARROW, stages=1), MMA, FEW, FEWER, SEVERAL, MORE]
)
@pytest.mark.parametrize(("a", "b"), cases(ordinary) + cases(adversarial))
def test_float32_keeps_its_componentwise_bound(able, monkeypatch, config, a, b):
    """Whatever the data; Inf and NaN where IEEE arithmetic has them.

    Below the least k for which a config is chosen: and what is cut off in 64 products.
    """
    force(monkeypatch, config)
    least = {MmaVariant: MMA_FAMILY.least_depth, NarrowConfig: narrow.LEAST_NARROW_DEPTH}
    slack = 64 if a.shape[1] >= least.get(type(config), 0) else 128
    a, b = a.astype(np.float32), b.astype(np.float32)
    got = clgemm.sgemm(1.0, a, b)
    assert excess(got, a, b, slack=slack) <= 1
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    for kind in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(kind(got), kind(exact))
    c = np.random.default_rng(11).standard_normal(got.shape).astype(np.float32)
    got = clgemm.sgemm(-0.75, a, b, 1.5, c)
    assert excess(got, a, b, -0.75, 1.5, c.astype(np.float64), slack) <= 1


@pytest.mark.parametrize("config", [FEW, FEWER, SEVERAL, MORE])
@pytest.mark.parametrize("first", [0, 1, 64, 500, 960, 999])
@pytest.mark.parametrize("rows", [slice(64), slice(64, 128), slice(100, 300), slice(0, None, 50)])
def test_few_rows_go_on_in_tf32_where_they_must(able, monkeypatch, config, first, rows):
    """From any k on, in one of two warp groups or both, and where B alone needs it."""
    force(monkeypatch, config)
    monkeypatch.setattr(narrow, "MOST_SLICES", 1)
    rng = np.random.default_rng(19)
    a, b = normal(rng, 300, 1000), normal(rng, 1000, 50)
    spread = np.exp(5 * normal(rng, 300, 1000))
    a[rows, first:] *= spread[rows, first:]
    for x, y in ((a, b), (normal(rng, 300, 1000), b * spread[:50].T), (a.T.copy().T, b)):
        x, y = x.astype(np.float32), y.astype(np.float32)
        assert excess(clgemm.sgemm(1.0, x, y), x, y) <= 1


@pytest.mark.parametrize("config", [FEW, FEWER, SEVERAL, MORE])
def test_few_elements_that_halves_cannot_hold(able, monkeypatch, config):
    """None, as many as are multiplied plainly, and one more, in any of a chunk's k."""
    force(monkeypatch, config)
    monkeypatch.setattr(narrow, "MOST_SLICES", 1)
    rng = np.random.default_rng(20)
    for count in (0, 1, 4, 5, 64):
        a, b = (normal(rng, *shape).astype(np.float32) for shape in ((200, 640), (640, 40)))
        for chunk in range(0, 640, 64):
            places = chunk + rng.permutation(64)[:count]
            a[rng.integers(0, 200, count), places] *= np.float32(2.0**-40)
            b[places[:1], rng.integers(0, 40)] = 1e30
        assert excess(clgemm.sgemm(1.0, a, b), a, b) <= 1, count


@pytest.mark.parametrize("config", [WIDE, NARROW])
def test_wgmma_keeps_two_bits_more_than_float32(able, monkeypatch, config):
    """Beside a product of 1, those of 2**-25 count; the bound for short k needs this."""
    force(monkeypatch, config)
    for tf32 in (False, True):
        assert adds_coarsely(lambda a, b: clgemm.sgemm(1.0, a, b), tf32) == ""


@pytest.mark.parametrize("config", [WIDE, FAST, MMA])
def test_rows_lose_nothing_to_larger_ones(able, monkeypatch, config):
    """Where rows of A and columns of B are scaled by powers of two, so is the product, exactly."""
    force(monkeypatch, config)
    rng = np.random.default_rng(15)
    a, b = (rng.uniform(0.5, 1, shape).astype(np.float32) for shape in ((200, 700), (700, 300)))
    down = (2.0 ** -(np.arange(200)[:, None] % 19)).astype(np.float32)
    across = (2.0 ** -(np.arange(300) % 17)).astype(np.float32)
    alone = clgemm.sgemm(1.0, a, b)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a * down, b * across), alone * down * across)


@pytest.mark.parametrize(("a", "b"), cases(ordinary))
def test_ordinary_data_need_no_fallback(able, monkeypatch, a, b):
    """They stay on the tensor cores: the plain kernel could not tell their zeros from its own."""
    force(monkeypatch, WIDE)
    taken = listed(able, monkeypatch, a.astype(np.float32), b.astype(np.float32))
    assert taken <= most_listed(a.shape[0], b.shape[1])


def most_listed(m, n):
    """Return how many elements a product may list."""
    panels = tensor_plan._panels(rows(1, m, 1), rows(1, 1, n), WIDE)
    return tensor_plan.LISTED_PER_PANEL * panels


def listed(able, monkeypatch, a, b):
    """Return how many elements a product lists, of device arrays in the device's own queue."""
    space = workspace(able.queue)
    a, b = (cl.array.to_device(space.queue, np.ascontiguousarray(x)) for x in (a, b))
    clgemm.sgemm(1.0, a, b)  # makes the counters
    count = np.empty(1, np.uint32)
    counter = space._memory.outlier_counters()[0]
    clgemm.sgemm(1.0, a, b)
    cl.enqueue_copy(space.queue, count, counter)
    return int(count[0])


@pytest.mark.parametrize("config", [replace(WIDE, guard=False), FAST, IN_BYTES, NARROW_IN_BYTES])
@pytest.mark.parametrize(("a", "b"), cases(ordinary))
def test_fast_keeps_its_normwise_bound(able, monkeypatch, config, a, b):
    """By blocks of 64 of k; bytes what is allowed from the least k on that they are chosen for."""
    force(monkeypatch, config)
    a, b = a.astype(np.float32), b.astype(np.float32)
    got = clgemm.sgemm(1.0, a, b)
    exact = a.astype(np.float64) @ b
    allowed = np.zeros_like(exact)
    for p in range(0, a.shape[1], 64):
        part_a, part_b = np.abs(a[:, p : p + 64]), np.abs(b[p : p + 64])
        allowed += 64 * np.outer(part_a.max(1).astype(np.float64), part_b.max(0))
    k = max(a.shape[1], config.int8 * tensor.LEAST_INT8_DEPTH)
    assert (np.abs(got - exact) <= gamma(k + 128) * allowed).all()


@pytest.mark.parametrize("config", [IN_BYTES, NARROW_IN_BYTES])
@pytest.mark.parametrize("scale", [1, 4.2, 8])
def test_low_parts_in_bytes(able, monkeypatch, config, scale):
    """Normal data keeps a bound of the whole result, and elements of eleven bits lose nothing."""
    force(monkeypatch, config)
    rng = np.random.default_rng(16)
    a, b = (scale * normal(rng, *shape).astype(np.float32) for shape in ((300, 2100), (2100, 400)))
    exact = a.astype(np.float64) @ b
    error = clgemm.sgemm(1.0, a, b) - exact
    assert np.linalg.norm(error) <= 7e-6 * np.linalg.norm(exact)
    a, b = (x.astype(np.float16).astype(np.float32) for x in (a, b))
    assert excess(clgemm.sgemm(1.0, a, b), a, b) <= 1


@pytest.mark.parametrize("config", [FAST, NARROW_IN_BYTES])
@pytest.mark.parametrize("value", [np.inf, np.nan, 1e30])
def test_fast_keeps_what_it_cannot_hold_to_its_row(able, monkeypatch, config, value):
    """And to its column; all other elements are as right as they would be without it."""
    force(monkeypatch, config)
    rng = np.random.default_rng(17)
    a, b = normal(rng, 200, 300).astype(np.float32), normal(rng, 300, 250).astype(np.float32)
    expected = a.astype(np.float64) @ b
    a[3, 5], b[70, 9] = value, -value
    got = clgemm.sgemm(1.0, a, b)
    apart = np.zeros(got.shape, bool)
    apart[3], apart[:, 9] = True, True
    assert not np.isfinite(got[apart]).any()
    np.testing.assert_allclose(got[~apart], expected[~apart], rtol=0, atol=1e-3)


@pytest.mark.parametrize(("a", "b"), cases(ordinary)[:2] + cases(adversarial)[:8])
def test_strict_keeps_the_bound_of_ieee_arithmetic(able, a, b):
    """Multiply-adds only: gamma(k + 2)."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    assert excess(clgemm.sgemm(1.0, a, b, precision="strict"), a, b) <= 1


@pytest.mark.parametrize("config", [WIDE, NARROW])
def test_a_call_after_the_fallback_counts_from_zero(able, monkeypatch, config):
    """Products alternate between two counters, and leave the next one and all others at zero."""
    force(monkeypatch, config)
    space = workspace(able.queue)
    counters = np.empty(space._memory.atomic_counters.size // 4, np.uint32)
    rng = np.random.default_rng(12)
    wide = (normal(rng, 300, 300) * np.exp(8 * normal(rng, 300, 300))).astype(np.float32)
    wider = np.where(rng.random((300, 300)) < 0.9, wide, np.nan).astype(np.float32)
    plain = normal(rng, 300, 300).astype(np.float32)
    most = most_listed(300, 300)
    for _ in range(3):
        for data in (wide, wider):  # tf32 holds the first
            assert listed(able, monkeypatch, data, data) > most
            cl.enqueue_copy(space.queue, counters, space._memory.atomic_counters)
            assert not counters.any()
        assert listed(able, monkeypatch, plain, plain) <= most
        cl.enqueue_copy(space.queue, counters, space._memory.atomic_counters)
        assert not counters.any()


@pytest.mark.parametrize("config", [WIDE, NARROW])
@pytest.mark.parametrize(
    "sizes", [(129, 140, 9000), (1, 300, 5000), (900, 900, 2500), (1700, 2600, 1500)]
)
@pytest.mark.parametrize("kind", ["plain", "listed", "wide"])
def test_slices_of_k_add_up(able, monkeypatch, config, sizes, kind):
    """Few tiles, or those of a last round; outliers, the fallback too, beta, and C either way."""
    force(monkeypatch, config)
    m, n, k = sizes
    tiles = config.cuts(config.tiles(1, m, n), k, able.traits.limits)
    assert tiles.slices > 1
    rng = np.random.default_rng(17)
    a, b, c = (normal(rng, *shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
    if kind == "listed":
        a[::50, 5:9] = 1e-20
    elif kind == "wide":
        a *= np.exp(8 * normal(rng, m, k)).astype(np.float32)
    for order in ("C", "F"):
        for _ in range(2):
            assert excess(clgemm.sgemm(1.0, a, b, order=order), a, b) <= 1
    exact = 2.0 * (a.astype(float) @ b) - c
    got = clgemm.sgemm(2.0, a, b, -1.0, c)
    size = 2 * (abs(a).astype(float) @ abs(b)) + abs(c)
    assert np.all(abs(got - exact) <= (gamma(k + 2) + 4 * UNIT_ROUNDOFF) * size)


@pytest.mark.parametrize("config", [WIDE, IN_BYTES, FAST, FEW, MORE])
def test_results_repeat_bit_by_bit(able, monkeypatch, config):
    """Nothing is added up in an order that chance decides, the mended elements neither."""
    force(monkeypatch, config)
    rng = np.random.default_rng(13)
    a, b = normal(rng, 700, 2900).astype(np.float32), normal(rng, 2900, 800).astype(np.float32)
    a[::100, 5:9] = 1e-20
    b[5:9, ::100] = 1e-20
    first = clgemm.sgemm(1.0, a, b)
    for _ in range(5):
        np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), first)
    space = workspace(able.queue)
    counters = np.ones(space._memory.atomic_counters.size // 4, np.uint32)
    cl.enqueue_copy(space.queue, counters, space._memory.atomic_counters)
    assert not counters.any()


@pytest.mark.parametrize("config", [NARROW, FEW, MORE])
def test_threads_and_queues(able, monkeypatch, config):
    """Each queue has counters of its own; calls that share one do not mix."""
    force(monkeypatch, config)
    rng = np.random.default_rng(14)
    wide = np.exp(4 * normal(rng, 300, 400))
    a = [(normal(rng, 300, 400) * (wide if i % 2 else 1)).astype(np.float32) for i in range(4)]
    b = normal(rng, 400, 500).astype(np.float32)
    expected = [clgemm.sgemm(1.0, x, b) for x in a]
    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    for properties in (0, out_of_order):
        queue = cl.CommandQueue(able.context, properties=properties)
        x = [cl.array.to_device(queue, z) for z in a]
        y = cl.array.to_device(queue, b)
        queue.finish()
        with ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda i, x=x, y=y: clgemm.sgemm(1.0, x[i % 4], y), range(40)))
        for i, c in enumerate(got):
            np.testing.assert_array_equal(c.get(), expected[i % 4])


def test_unit_roundoff():
    """The bounds above are in units of float32's."""
    assert np.finfo(np.float32).eps / 2 == UNIT_ROUNDOFF
