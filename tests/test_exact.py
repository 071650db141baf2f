"""Integers, booleans and float16: NumPy's results bit for bit, by every entrance."""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_records import record
from staged import TINY
from stand_ins import compile_plainly, skip_on_pocl

import clgemm
from clgemm import numpy_rules
from clgemm.core import cache
from clgemm.core.plan import ceil_div, round_up
from clgemm.core.problem import Layout, Problem, Shape
from clgemm.core.threads import RejectedError
from clgemm.hardware.device import Device, identify
from clgemm.kernels import OTHER_DTYPES
from clgemm.kernels.common.family import Choice
from clgemm.kernels.exact import digits, plan
from clgemm.kernels.exact.digits import DigitsProductConfig
from clgemm.kernels.exact.in_place import (
    ExactInPlaceConfig,
    in_place,
    in_place_plan,
    lane_of,
    tiles_that_fit,
)
from clgemm.kernels.exact.plan import (
    ExactDoublesConfig,
    ExactPackConfig,
    ExactProductConfig,
    ExactReduceConfig,
    exact_plan,
    tile_of,
)
from clgemm.kernels.exact.types import DTYPES, LANE_BYTES, RESULTS, Types
from clgemm.records import verdicts
from clgemm.records.verdicts import Verdict
from clgemm.runtime import exact as runtime
from clgemm.runtime import progress
from clgemm.runtime.exact import expected
from clgemm.runtime.operands import layouts_of
from clgemm.runtime.workspace import workspace
from clgemm.side import preparation
from clgemm.transfer import multiply

ALL = sorted(set(RESULTS) - {"f8", "c8", "c16"})


@pytest.fixture
def able(device):
    """A device, also one without vectors and with memory of its own."""
    return device


@pytest.fixture(params=["in place", "through transfers"])
def lanes(request, device, monkeypatch):
    """A device that spreads work-items over lanes, as GPUs do, chosen; it packs its operands."""
    skip_on_pocl(device)
    monkeypatch.setattr(runtime, "judge", lambda *_: verdicts.Verdict())  # of what it is itself
    monkeypatch.setattr(plan, "in_place", lambda *_: None)
    config = TINY if request.param == "through transfers" else None
    like = Device(device.cl_device, transfer=config)
    # With so many units the tiles are small, which compiles fast.
    like.__dict__["limits"] = replace(device.limits, vector_width=1, compute_units=64)
    with clgemm.device(like):
        yield like


@pytest.fixture
def made(monkeypatch):
    """The results that the device has made."""
    found, exactly = [], multiply.multiply_exactly

    def recording(a, b, c, device=None):
        bound = exactly(a, b, c, device)
        found.append(c)
        return bound

    monkeypatch.setattr(multiply, "multiply_exactly", recording)
    return found


def random(rng, shape, dtype):
    """Numbers of the whole range; of float16 and bool those whose sums tell something."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return (rng.integers(-9, 9, shape) + 1j * rng.integers(-9, 9, shape)).astype(dtype)
    if dtype.kind == "f":
        return rng.integers(-20, 21, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.15
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def numpys(name, *arguments, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(np, name)(*arguments, **keywords)


def same(found, wanted):
    assert type(found) is type(wanted)
    assert found.dtype == wanted.dtype
    if wanted.dtype == np.float64:  # a GPU rounds sums of large integers in another order
        largest = np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-9 * largest)
    else:
        np.testing.assert_array_equal(found, wanted)


MIXED = "u1 i1, u2 i2, u4 i4, u8 i8, i1 f2, i2 f2, u8 u1, i8 u4, i2 i8, u1 i4"
PAIRS = [(x, x) for x in ALL] + [("b1", x) for x in ALL] + [x.split() for x in MIXED.split(", ")]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_every_pair_of_dtypes_gives_numpys_result(able, every_size, made, a, b):
    """Promoted as NumPy does; pairs whose result is of another dtype are NumPy's own."""
    rng = np.random.default_rng(3)
    x, y = random(rng, (37, 70), a), random(rng, (70, 45), b)
    result = np.promote_types(a, b)
    same(clgemm.matmul(x, y), numpys("matmul", x, y))
    on_gpu = (
        result == np.float64 and not able.limits.has_vectors and able.cl_device.double_fp_config
    )
    assert len(made) == (result in numpy_rules.EXACT or bool(on_gpu))
    same(clgemm.dot(x, y), numpys("dot", x, y))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1), (5, 1, 300), (1, 40, 64), (8, 32, 32), (9, 33, 31), (130, 70, 257), (16, 20, 9000)],
)
def test_tiles_edges_and_a_long_k(able, every_size, made, dtype, sizes):
    """Around the tiles, in every order of both operands; a k that is cut."""
    m, n, k = sizes
    rng = np.random.default_rng(m + n + k)
    x, y = random(rng, (m, k), dtype), random(rng, (k, n), dtype)
    wanted = expected(x, y, np.dtype(dtype))
    with np.errstate(over="ignore"):
        for a in (x, np.asfortranarray(x)):
            for b in (y, np.asfortranarray(y)):
                np.testing.assert_array_equal(clgemm.matmul(a, b), wanted)
    assert len(made) == 4


@pytest.mark.parametrize("dtype", ["i1", "i4", "b1", "f2"])
def test_blocks_of_large_products(able, every_size, made, dtype, monkeypatch):
    """Panels that do not fit into scratch memory, and launches that would take long."""
    monkeypatch.setattr(plan, "PANEL_BYTES", 2**14)
    monkeypatch.setattr(plan, "LAUNCH_WORK", 2**16)
    monkeypatch.setattr(plan, "DEPTH", 40)
    plan.exact_plan.cache_clear()
    rng = np.random.default_rng(8)
    x, y = random(rng, (3, 150, 90), dtype), random(rng, (3, 90, 170), dtype)
    np.testing.assert_array_equal(clgemm.matmul(x, y), expected(x, y, np.dtype(dtype)))
    plan.exact_plan.cache_clear()
    assert made


LAYOUTS = [
    lambda x: x,
    lambda x: np.asfortranarray(x),
    lambda x: np.repeat(x, 2, -1)[..., ::2],
    lambda x: x[..., ::-1].copy()[..., ::-1],
    lambda x: np.repeat(x, 3, -2)[..., ::-3, :][..., ::-1, :],
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_products(able, every_size, data):
    """Of all functions, dtypes, batches and layouts."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    a, b = data.draw(st.sampled_from(ALL)), data.draw(st.sampled_from(ALL))
    m, n, k = (data.draw(st.integers(1, 40)) for _ in range(3))
    batch = data.draw(st.sampled_from([(), (), (3,), (2, 3)]))
    other = data.draw(st.sampled_from([batch, (), batch[1:]]))
    x = data.draw(st.sampled_from(LAYOUTS))(random(rng, (*batch, m, k), a))
    y = data.draw(st.sampled_from(LAYOUTS))(random(rng, (*other, k, n), b))
    name = data.draw(st.sampled_from(["matmul", "dot", "inner", "tensordot"]))
    if name == "inner":
        y = np.ascontiguousarray(y.swapaxes(-1, -2))
    arguments = (x, y, ((-1,), (max(y.ndim - 2, 0),))) if name == "tensordot" else (x, y)
    if name == "dot" and y.ndim == 2 and data.draw(st.booleans()):
        arguments = (x[..., 0, :], y) if data.draw(st.booleans()) else (x, y[:, 0])
    wanted = numpys(name, *arguments)
    same(getattr(clgemm, name)(*arguments), wanted)
    with clgemm.accel.enabled(0):
        same(getattr(np, name)(*arguments), wanted)
        if name == "matmul":
            same(x @ y, wanted)


def test_the_dtype_of_the_loop_is_an_argument(able, every_size, made):
    """int8 by int8 in int32; narrower than the operands, where the casting allows it; and `out`."""
    rng = np.random.default_rng(1)
    x, y = random(rng, (50, 60), "i1"), random(rng, (60, 70), "u1")
    for dtype in (np.int16, np.int32, np.int64, np.int8):
        same(clgemm.matmul(x, y, dtype=dtype), numpys("matmul", x, y, dtype=dtype))
    wide = random(rng, (50, 60), "i4")
    same(clgemm.matmul(wide, y, dtype="i1"), numpys("matmul", wide, y, dtype="i1"))
    assert len(made) == 5
    for dtype, casting in (("i1", "safe"), ("b1", "same_kind"), ("i4", "nonsense")):
        with pytest.raises((TypeError, ValueError)):
            clgemm.matmul(wide, y, dtype=dtype, casting=casting)
    out = np.zeros((50, 70), np.int64)
    assert clgemm.matmul(x, y, out=out) is out  # the loop is int16's, whatever `out` is
    same(out, numpys("matmul", x, y).astype(np.int64))
    places = np.zeros((50, 70), np.int16), np.zeros((70, 50), np.int16).T
    for place in places:
        assert clgemm.matmul(x, y, out=place) is place
        np.testing.assert_array_equal(place, numpys("matmul", x, y))


def test_a_result_may_overlap_an_operand(able, every_size):
    x = random(np.random.default_rng(2), (40, 40), "i4")
    wanted = x @ x
    assert clgemm.matmul(x, x, out=x) is x
    np.testing.assert_array_equal(x, wanted)


def test_chains_and_powers(able, every_size, made):
    """multi_dot, matrix_power and einsum are built on these products."""
    rng = np.random.default_rng(4)
    x, y, z = (random(rng, (40, 40), "i8") for _ in range(3))
    same(clgemm.multi_dot([x, y, z]), np.linalg.multi_dot([x, y, z]))
    assert len(made) == 2
    wanted = np.linalg.matrix_power(x, 5), np.einsum("ij,jk->ik", x, y, optimize=True)
    with clgemm.accel.enabled(0):
        same(np.linalg.matrix_power(x, 5), wanted[0])
        same(np.einsum("ij,jk->ik", x, y, optimize=True), wanted[1])


def test_float16_rounds_once_and_overflows_as_numpys(able, every_size, made):
    """Sums in float32; NaN, infinities and subnormals; NumPy's warnings under accel."""
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((50, 300), (300, 60)))
    exactly = x.astype(np.float64) @ y
    found = clgemm.matmul(x, y).astype(np.float64)
    allowed = 2.0**-11 * abs(exactly) + 2.0**-24 + 300 * 2.0**-24 * (abs(x.astype("d")) @ abs(y))
    assert (abs(found - exactly) <= allowed).all()
    tiny = np.full((40, 40), 2.0**-14, np.float16)
    small = np.full((40, 40), 2.0**-12, np.float16)
    same(clgemm.matmul(tiny, small), numpys("matmul", tiny, small))  # subnormal
    for special in (np.nan, np.inf, -np.inf, 60000):
        x[3, 5] = special
        wanted = numpys("matmul", x, y)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(np.isnan(clgemm.matmul(x, y)), np.isnan(wanted))
    with (
        clgemm.accel.enabled(0),
        pytest.warns(RuntimeWarning, match="overflow encountered in matmul"),
    ):
        np.full((40, 40), 60000, np.float16) @ np.full((40, 40), 2, np.float16)
    assert made


def test_float16_that_overflows_stays_on_the_device(able, every_size, made):
    """Infinities are NumPy's, and so are its warnings; NumPy does not compute the product again."""
    x = np.full((50, 300), 60000, np.float16)
    y = np.ones((300, 60), np.float16)
    y[:, 7] = 0
    y[4, 9] = np.inf
    x[3, 4] = 0
    wanted = numpys("matmul", x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(clgemm.matmul(x, y), wanted)
    assert len(made) == 1
    with clgemm.accel.enabled(0), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        same(x @ y, wanted)
    assert len(made) == 2
    with warnings.catch_warnings(record=True) as numpys_own:
        warnings.simplefilter("always")
        x @ y
    assert {str(each.message) for each in seen} == {str(each.message) for each in numpys_own}


def test_what_is_not_plain_is_numpys(able, every_size, made):
    """Subclasses, other byte orders, objects, and shapes that disagree."""
    rng = np.random.default_rng(6)
    x, y = random(rng, (40, 40), "i4"), random(rng, (40, 40), "i4")
    same(clgemm.matmul(x.view(np.matrix), y), np.matmul(x.view(np.matrix), y))
    same(clgemm.matmul(x.astype(">i4"), y), np.matmul(x.astype(">i4"), y))
    same(clgemm.matmul(x.astype(object), y), np.matmul(x.astype(object), y))
    with pytest.raises(ValueError, match="matmul"):
        clgemm.matmul(x, y[1:])
    with pytest.raises(ValueError, match="not aligned"):
        clgemm.dot(x, y[1:])
    assert not made


def test_unaligned_and_read_only_operands(able, every_size, made):
    rng = np.random.default_rng(7)
    x, y = random(rng, (40, 50), "i4"), random(rng, (50, 30), "i4")
    raw = np.empty(x.nbytes + 1, np.uint8)[1:].view(np.int32).reshape(x.shape)
    raw[...] = x
    y.flags.writeable = False
    same(clgemm.matmul(raw, y), np.matmul(x, y))
    assert made
    np.testing.assert_array_equal(raw, x)


def test_a_device_that_computes_wrong_is_not_used(able, every_size, monkeypatch, caplog):
    """The verdict of a trial holds for these dtypes alone; NumPy makes the product."""
    monkeypatch.setattr(runtime.verdicts, "_verdicts", {})
    monkeypatch.setattr(runtime.verdicts, "recall", lambda _: None)
    monkeypatch.setattr(runtime, "judge", lambda *_: runtime.Verdict("it is wrong"))
    x = random(np.random.default_rng(9), (40, 40), "i2")
    same(clgemm.matmul(x, x), np.matmul(x, x))
    with pytest.raises(RejectedError, match=r"int|i2"):
        multiply.multiply_exactly(x, x, np.empty_like(x), able)
    with clgemm.accel.enabled(0):
        same(x @ x, np.matmul(x, x))


def test_small_products_never_reach_the_decision(able, made):
    x = np.ones((63, 63), np.int64)
    before = len(preparation.entries)
    clgemm.matmul(x, x)
    with clgemm.accel.enabled():
        x @ x
    assert len(preparation.entries) == before
    assert not made


def require_float64(device, *dtypes):
    if {"f8", "c16"}.intersection(dtypes) and not device.cl_device.double_fp_config:
        pytest.skip("it has no float64")


@pytest.mark.parametrize("dtype", ["b1", "i1", "i4", "i8", "f2", "f8", "c8", "c16"])
def test_lanes_compute_the_same(lanes, every_size, made, dtype):
    """Work-groups with local memory, in tiles through transfers or where the operands lie."""
    require_float64(lanes, dtype)
    for m, n, k in [(1, 1, 1), (3, 200, 65), (70, 40, 5000)]:
        rng = np.random.default_rng(m + n + k)
        x, y = random(rng, (m, k), dtype), random(rng, (k, n), dtype)
        wanted = expected(x, y, np.dtype(dtype))
        np.testing.assert_array_equal(clgemm.matmul(x, y), wanted)
        np.testing.assert_array_equal(clgemm.matmul(x, np.asfortranarray(y), order="F"), wanted)
    assert len(made) == 6


def test_progress_of_other_dtypes_is_told(lanes, every_size, monkeypatch):
    """At last with all multiply-adds; through transfers also before."""
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    told = []
    x = np.ones((200, 200), np.int32)
    with clgemm.progress(lambda done, total: told.append((done, total))):
        clgemm.matmul(x, x)
    assert told[-1] == (200**3, 200**3)
    assert len(told) > 1 or lanes.transfer is None


@pytest.mark.parametrize("dtype", ["i4", "f8"])
def test_large_tiles_of_lanes(device, dtype, monkeypatch):
    """Those of a GPU that few of them keep busy."""
    skip_on_pocl(device)
    compile_plainly(device, monkeypatch)
    require_float64(device, dtype)
    like = Device(device.cl_device)
    like.__dict__["limits"] = replace(device.limits, vector_width=1, compute_units=1)
    types = Types(dtype, dtype, dtype)
    rng = np.random.default_rng(1)
    x, y = random(rng, (140, 70), dtype), random(rng, (70, 150), dtype)
    np.testing.assert_array_equal(runtime.run(like, types, x, y), expected(x, y, np.dtype(dtype)))


IN_BYTES = "i1 i1 i1, i4 i4 i1, i1 i1 i4, i1 u1 i4, u1 i1 i4"


@pytest.mark.parametrize("types", [x.split() for x in IN_BYTES.split(", ")])
def test_bytes_are_multiplied_four_at_a_time(device, types, monkeypatch):
    """Whatever their signs are, and where k is no multiple of four."""
    skip_on_pocl(device)
    compile_plainly(device, monkeypatch)
    like = Device(device.cl_device)
    # With few registers and many units the tiles are small and not unrolled, which compiles fast.
    limits = replace(device.limits, vector_width=1, compute_units=64, registers=128)
    like.__dict__["limits"] = replace(limits, byte_products=True)
    types = Types(*types)
    rng = np.random.default_rng(2)
    for m, n, k in [(1, 1, 1), (3, 40, 65), (33, 20, 18_003)]:
        x, y = random(rng, (m, k), types.a), random(rng, (k, n), types.b)
        wanted = expected(x, y, np.dtype(types.c))
        np.testing.assert_array_equal(runtime.run(like, types, x, y), wanted)
        found = runtime.run(like, types, np.asfortranarray(x), np.asfortranarray(y))
        np.testing.assert_array_equal(found, wanted)


@pytest.fixture
def on_tensors(device, monkeypatch):
    """A device whose tensor cores multiply bytes; elsewhere, plain loops in their place."""
    if "llvmpipe" in device.name:
        pytest.skip("llvmpipe gets the plain loops wrong; kernels for tensor cores never run there")
    skip_on_pocl(device)
    like = Device(device.cl_device)
    if not device.limits.exact_tensors:
        for kind in (DigitsProductConfig, ExactDoublesConfig):
            others = tuple(x for x in kind.includes if x != "tensor_core/barriers.cl")
            monkeypatch.setattr(kind, "includes", others)
            monkeypatch.setattr(kind, "options", ())
        limits = replace(device.limits, vector_width=1, compute_units=2)
        limits = replace(limits, matrix_products=True, exact_tensors=True)
        like.__dict__["limits"] = limits
    return like


DIGITS = "u1 u1 i4, i1 u1 i8, i2 i2 i2, i4 i4 i4, b1 b1 b1, u8 i2 i8, f2 f2 f2, f8 f8 f8"


@pytest.mark.parametrize("types", [x.split() for x in DIGITS.split(", ")])
def test_digits_on_tensor_cores(on_tensors, types):
    """Extreme numbers in one tile, or at its last step; small ones have fewer digits."""
    require_float64(on_tensors, *types)
    types, rng = Types(*types), np.random.default_rng(5)
    is_fast = on_tensors.kind == "GPU"
    long = 2_000 if types.c == "f2" else 20_000  # of halves, longer sums overflow
    cases = [(140, 260, 130, 0), (140, 260, 130, 129), (300, 520, long, 0)]
    for m, n, k, first in cases[: 2 + is_fast]:
        x, y = random(rng, (m, k), types.a), random(rng, (k, n), types.b)
        if types.a[0] in "iu":
            x[:, :first] %= 100
            y[:first] %= 100
            x[0, first:], y[first:, 0] = np.iinfo(types.a).min, np.iinfo(types.b).max
            x[128:] %= 100
        wanted = expected(x, y, np.dtype(types.c))
        for a in (x, np.asfortranarray(x)) if is_fast else (x,):
            found = runtime.run(on_tensors, types, a, np.asfortranarray(y), True)
            np.testing.assert_array_equal(found, wanted)


def test_digits_in_batches_that_repeat_an_operand(on_tensors, every_size, monkeypatch):
    """With a k that is cut, so that the second part adds; symmetric ones, of which half is made."""
    monkeypatch.setattr(digits, "MOST_K", 200)
    monkeypatch.setattr(runtime, "_is_on_tensors", lambda *_: True)
    monkeypatch.setattr(runtime, "judge", lambda *_: verdicts.Verdict())
    exact_plan.cache_clear()
    runtime._plan.cache_clear()
    rng = np.random.default_rng(6)
    x, y = random(rng, (2, 130, 210), "i4"), random(rng, (210, 30), "i4")
    queue = on_tensors.queue
    a, b = cl_array.to_device(queue, x), cl_array.to_device(queue, y)
    monkeypatch.setattr(multiply, "of_queue", lambda _: on_tensors)
    same(clgemm.matmul(a, b).get(), x @ y)
    same(clgemm.matmul(a[0], a[0].T).get(), x[0] @ x[0].T)
    exact_plan.cache_clear()
    runtime._plan.cache_clear()


def test_repeated_products_of_device_arrays(able, every_size, made):
    """Made again without checks: with other data, other arrays, another dtype of the same bytes."""
    rng = np.random.default_rng(9)
    operands = {}
    for dtype in ("i2", "f2", "u2"):  # i4 and f4, too, have equal strides
        x, y = random(rng, (20, 30), dtype), random(rng, (30, 25), dtype)
        operands[dtype] = (x, y, *(cl_array.to_device(able.queue, z) for z in (x, y)))
    for _ in range(4):
        for x, y, a, b in operands.values():
            same(clgemm.matmul(a, b).get(), numpys("matmul", x, y))
    assert len(made) == 3
    x, y, a, b = operands["i2"]
    out = cl_array.zeros(able.queue, (20, 25), np.int16)
    for _ in range(4):
        clgemm.matmul(a, b, out=out)
        same(out.get(), x @ y)
        a += 1
        x = x + np.int16(1)
    square = cl_array.to_device(able.queue, x[:, :20].copy())
    for _ in range(3):  # an operand that is the result, too, is not repeated
        wanted = numpys("matmul", square.get(), square.get())
        same(clgemm.matmul(square, square, out=square).get(), wanted)


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_complex_products_as_real_ones(on_tensors, every_size, monkeypatch, orders):
    """In all orders of operands, of slices, with an `out` in another order, and symmetric."""
    compile_plainly(on_tensors, monkeypatch)
    types, rng = Types("c8", "c8", "c8", "float32"), np.random.default_rng(7)
    x, y = random(rng, (70, 60), "c8"), random(rng, (60, 90), "c8")
    a, b = (np.asarray(z, order=order) for z, order in zip((x, y), orders, strict=True))
    np.testing.assert_array_equal(runtime.run(on_tensors, types, a, b, True), x @ y)
    monkeypatch.setattr(runtime, "_is_on_tensors", lambda *_: True)
    monkeypatch.setattr(runtime, "judge", lambda *_: verdicts.Verdict())
    monkeypatch.setattr(multiply, "of_queue", lambda _: on_tensors)
    one, other = (cl_array.to_device(on_tensors.queue, z) for z in (a, b))
    out = cl_array.zeros(on_tensors.queue, (70, 90), np.complex64, order="F")
    clgemm.matmul(one, other, out=out)
    np.testing.assert_array_equal(out.get(), x @ y)
    same(clgemm.matmul(one[10:60, 2:], other[2:, 5:]).get(), x[10:60, 2:] @ y[2:, 5:])
    same(clgemm.matmul(one, one.T).get(), x @ x.T)


def made_in_place(device, types, x, y, tile, count, on_tensors):
    """Return the product by a tile in so many slices of k, and what was in C before."""
    c = np.full((2, x.shape[-2], y.shape[-1]), 1, types.c)
    layouts, limits = layouts_of(x, y, c), device.limits
    way = in_place(layouts[0], layouts[2], types, limits, on_tensors)
    words = way.depth * way.slices
    depth = round_up(ceil_div(words, count), 16)
    way = way._replace(swapped=count > 1, tile=tile, depth=depth, slices=ceil_div(words, depth))
    made = in_place_plan(way, *layouts, types, limits, on_tensors)
    config = made.steps[0].config
    assert (config.fused_split_k, config.tensors) == (way.slices > 1, on_tensors)
    space = workspace(device.queue)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    bases = [z if z.base is None else z.base for z in (x, y, c)]
    buffers = [cl.Buffer(device.context, flags, hostbuf=z) for z in bases]
    order = (1, 0, 2) if way.swapped else (0, 1, 2)
    slots = {slot: buffers[i] for slot, i in zip("abc", order, strict=True)}
    adds = 0 if types.c == "f2" else 1
    event = space.enqueue(space.bind(made, device), slots, (1.0, float(adds), 0, 0, 0))
    found = np.empty_like(c)
    cl.enqueue_copy(device.queue, found, buffers[2], wait_for=[event])
    with np.errstate(over="ignore"):
        return found, (c if adds else np.zeros_like(c))


IN_PLACE = (
    "b1 b1 b1, i1 i1 i1, u1 u1 i4, i2 i2 i2, i4 i4 i4, i8 i8 i8, f2 f2 f2, f8 f8 f8, c8 c8 c8"
)


@pytest.mark.parametrize(
    "types", [x.split() for x in f"{IN_PLACE}, c8 c8 c8, c16 c16 c16".split(", ")]
)
@pytest.mark.parametrize("is_on_tensors", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_products_in_place(on_tensors, types, is_on_tensors, count, monkeypatch):
    """By every tile and in all orders. Batches are added to what was there, in slices of k."""
    require_float64(on_tensors, *types)
    types, limits = Types(*types), on_tensors.limits
    _, uses_tensors = lane_of(types, limits, is_on_tensors)
    if uses_tensors != is_on_tensors:
        return
    compile_plainly(on_tensors, monkeypatch)
    if count > 1 and not limits.fused_split_k:
        pytest.skip("work-groups do not see what others have written")
    rng, is_fast = np.random.default_rng(10), on_tensors.kind == "GPU"
    _, tiles = tiles_that_fit(types, limits, is_on_tensors)
    assert tiles
    if not is_fast:  # what is not unrolled compiles fast
        on_tensors.__dict__["limits"] = replace(limits, registers=128)
    for tile in tiles if is_fast else tiles[:1]:
        m, n, k = 2 * tile.rows - 5, tile.columns + 3, 301
        x, y = random(rng, (2, m, k), types.a), random(rng, (2, k, n), types.b)
        for order in ("CC", "CF", "FC", "FF") if is_fast else ("FC",):
            a, b = (
                z if way == "C" else np.ascontiguousarray(z.swapaxes(1, 2)).swapaxes(1, 2)
                for z, way in zip((x, y), order, strict=True)
            )
            found, before = made_in_place(on_tensors, types, a, b, tile, count, uses_tensors)
            wanted = expected(x, y, np.dtype(types.c))
            wanted = wanted | before if types.c == "b1" else wanted + before
            np.testing.assert_array_equal(found, wanted.astype(types.c))


def test_few_rows_and_small_products_are_made_in_place(on_tensors):
    """Others are packed first."""
    limits = replace(on_tensors.limits, compute_units=132)
    for dtype, (m, n, k), is_expected in [
        *[(dtype, (100, 100, 100), True) for dtype in ("i4", "f2", "f8", "c8", "b1")],
        *[(dtype, (3, 5000, 5000), True) for dtype in ("i4", "f2", "f8", "c8")],
        *[(dtype, (4000, 4000, 4000), False) for dtype in ("i4", "f2", "f8", "c8", "b1")],
    ]:
        if dtype == "f8" and not on_tensors.cl_device.double_fp_config:
            continue
        layouts = [Layout(shape, (shape[1], 1)) for shape in ((m, k), (k, n), (m, n))]
        steps = exact_plan(*layouts, Types(dtype, dtype, dtype), limits).plan.steps
        assert isinstance(steps[0].config, ExactInPlaceConfig) == is_expected, (dtype, m)
    mixed = exact_plan(*layouts, Types("i1", "i2", "i2"), limits, is_in_place=True)
    assert len(mixed.plan.steps) > 1  # both operands are of one dtype


SLICED = "i1 i1 i1, u2 u2 u2, i4 i4 i4, i8 i8 i8, b1 b1 b1, f2 f2 f2, f8 f8 f8, c8 c8 c8, i1 u1 i4"


@pytest.mark.parametrize("types", [x.split() for x in SLICED.split(", ")])
@pytest.mark.parametrize("is_on_tensors", [False, True])
def test_few_tiles_of_a_long_k_are_made_in_slices(on_tensors, types, is_on_tensors):
    """Of unequal length, added up with what was there; a result in either order."""
    require_float64(on_tensors, *types)
    limits = on_tensors.limits
    if is_on_tensors and types[0][0] == "c":
        return
    if on_tensors.kind == "CPU":  # with small tiles, which compile fast
        limits = on_tensors.__dict__["limits"] = replace(limits, compute_units=64)
    types, rng = Types(*types), np.random.default_rng(8)
    k = (
        1001 if is_on_tensors and on_tensors.kind == "CPU" else 5001
    )  # its loops stand for the cores
    x, y = random(rng, (20, k), types.a), random(rng, (k, 30), types.b)
    if types.c == "b1":
        x &= rng.random(x.shape) < 0.01
    layouts = layouts_of(x, y, np.empty((20, 30), types.c))
    found = exact_plan(*layouts, types, limits, on_tensors=is_on_tensors, is_in_place=False)
    steps = found.plan.steps
    in_bits = types.c == "b1" and not is_on_tensors  # 32 of k in a step
    assert isinstance(steps[-1].config, ExactReduceConfig) != in_bits
    wanted = expected(x, y, np.dtype(types.c))
    np.testing.assert_array_equal(runtime.run(on_tensors, types, x, y, is_on_tensors), wanted)


def test_large_products_of_integers_go_to_tensor_cores(device):
    """Where they are expected to be faster: not small ones, and none of other numbers."""
    limits = replace(device.limits, vector_width=1, compute_units=132)
    limits = replace(limits, matrix_products=True, exact_tensors=True)
    for dtype, n, is_expected in [
        *[(dtype, 4096, True) for dtype in ("i1", "u2", "i4", "u8")],
        *[("i4", 64, False), ("f2", 4096, False), ("c8", 4096, False)],
    ]:
        layout, types = Layout((n, n), (n, 1)), Types(dtype, dtype, dtype)
        steps = exact_plan(layout, layout, layout, types, limits).plan.steps
        found = any(isinstance(step.config, DigitsProductConfig) for step in steps)
        assert found == is_expected, dtype


CONVERTED = "i1 i1 i4, u1 i2 i2, f4 i4 f8, c8 f4 c8, i2 c8 c16"


@pytest.mark.parametrize("types", [x.split() for x in CONVERTED.split(", ")])
def test_lanes_convert_operands(lanes, every_size, made, types, monkeypatch):
    """Operands of other dtypes than the product's, in a batch."""
    compile_plainly(lanes, monkeypatch)
    require_float64(lanes, *types)
    rng = np.random.default_rng(4)
    x, y = (rng.integers(0, 99, (3, 60, 60)).astype(each) for each in types[:2])
    same(clgemm.matmul(x, y, dtype=types[2]), np.matmul(x, y, dtype=types[2]))
    assert made


@pytest.mark.parametrize("dtype", ["f8", "c8", "c16"])
def test_what_a_blas_has_is_numpys_on_a_processor(able, every_size, made, dtype):
    """It is as fast there."""
    if not able.limits.has_vectors:
        pytest.skip("it has no vectors")
    x = np.random.default_rng(2).random((50, 50)).astype(dtype)
    same(clgemm.matmul(x, x), np.matmul(x, x))
    assert not made


@pytest.mark.parametrize("dtype", ["b1", "i1", "u2", "i4", "i8", "f2", "f8", "c8", "c16"])
def test_device_arrays(able, dtype):
    """Their products are enqueued, in the same dtype; every function takes them."""
    require_float64(able, dtype)
    rng, queue = np.random.default_rng(5), able.queue
    x, y = random(rng, (70, 40), dtype), random(rng, (40, 90), dtype)
    a, b = (cl_array.to_device(queue, each) for each in (x, y))
    wanted = expected(x, y, np.dtype(dtype))
    for product in (clgemm.matmul, clgemm.dot, lambda p, q: clgemm.tensordot(p, q, 1)):
        same(product(a, b).get(), wanted)
    same(clgemm.inner(a, a).get(), expected(x, x.T, np.dtype(dtype)))
    same(clgemm.matmul(a.T, a[:, 1::2]).get(), expected(x.T, x[:, 1::2], np.dtype(dtype)))
    out = cl_array.zeros(queue, (70, 90), np.dtype(dtype))
    assert clgemm.matmul(a, b, out=out) is out
    same(out.get(), wanted)


def test_device_arrays_in_another_dtype(able):
    """As NumPy's ufunc has it: `dtype` chooses the loop, `casting` what it may convert."""
    rng = np.random.default_rng(6)
    x = random(rng, (30, 30), "i1")
    a = cl_array.to_device(able.queue, x)
    same(clgemm.matmul(a, a, dtype=np.int32).get(), np.matmul(x, x, dtype=np.int32))
    same(clgemm.matmul(a, cl_array.to_device(able.queue, x.astype("i8"))).get(), x @ x.astype("i8"))
    with pytest.raises(TypeError, match="cannot cast a from int8 to uint8"):
        clgemm.matmul(a, a, dtype=np.uint8, casting="safe")
    z = cl_array.to_device(able.queue, x.astype(np.complex64))
    with pytest.raises(TypeError, match="complex64"):
        clgemm.matmul(z, z, dtype=np.int8, casting="unsafe")
    with pytest.raises(TypeError, match="int8: only float32"):
        clgemm.matmul(a, cl_array.to_device(able.queue, x.astype("f4")))


def test_a_device_array_may_be_its_own_result(able):
    """An operand that the result overwrites is copied first, whatever its strides."""
    x = random(np.random.default_rng(7), (40, 40), "i4")
    a = cl_array.to_device(able.queue, x)
    clgemm.matmul(a, a.T, out=a)
    same(a.get(), x @ x.T)


@pytest.mark.parametrize("dtype", ["b1", "i4", "f2", "f8", "c8"])
def test_an_empty_sum_on_the_device_is_zero(able, dtype):
    """A k of 0, with a result that is new or has strides of its own."""
    require_float64(able, dtype)
    a, b = (cl_array.zeros(able.queue, shape, np.dtype(dtype)) for shape in ((5, 0), (0, 4)))
    zero = np.zeros((5, 4), dtype)
    same(clgemm.matmul(a, b).get(), zero)
    same(clgemm.inner(a, b.T).get(), zero)
    whole = cl_array.to_device(able.queue, np.ones((5, 8), dtype))
    clgemm.matmul(a, b, out=whole[:, ::2])
    np.testing.assert_array_equal(whole.get(), np.tile(np.array([0, 1], dtype), (5, 4)))


def test_device_arrays_without_a_queue(able):
    """The queue of another operand is that of the product."""
    x = random(np.random.default_rng(8), (20, 20), "i4")
    a, out = cl_array.to_device(able.queue, x), cl_array.zeros(able.queue, (20, 20), np.int32)
    bare = out.with_queue(None)
    assert clgemm.matmul(a, a, out=bare) is bare
    same(bare.with_queue(able.queue).get(), x @ x)
    same(clgemm.matmul(a.with_queue(None), a).get(), x @ x)


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "c16"])
def test_a_product_of_a_tenth_of_a_second_answers_signals(device, dtype):
    """It is launched in parts, and wide lanes and complex numbers take longer."""
    require_float64(device, dtype)
    limits, types = device.limits, Types(dtype, dtype, dtype)
    if not limits.has_vectors:
        pytest.skip("its launches are longer")
    work = LANE_BYTES[RESULTS[dtype][0]] * (4 if dtype == "c16" else 1)  # of a multiply-add
    for n, is_long in (
        (512, False),
        (int((2**32 * limits.compute_units / work) ** (1 / 3)) + 9, True),
    ):
        layout = Layout((n, n), (n, 1))
        bound = runtime.bind((layout,) * 3, types, device, workspace(device.queue))
        assert bound.is_long == is_long
    size = 2**13
    layout = Layout((size, size), (size, 1))
    steps = exact_plan(layout, layout, layout, types, limits).plan.steps
    assert sum("c" in step.arguments for step in steps) >= size**3 * work // 2**34


TILES = {
    True: [(3, 8, 4, 2, 1, 1), (1, 32, 16, 4, 1, 1)],
    False: [(16, 16, 1, 1, 4, 4), (16, 16, 1, 1, 4, 8, True, 4)],
}


@pytest.mark.parametrize("dtype", ["int8", "int64", "complex64"])
@pytest.mark.parametrize("has_vectors", [True, False])
def test_tiles_that_a_record_may_hold(device, dtype, has_vectors):
    """The launches have this tile, in batches, too, and with a k that is cut."""
    family, limits = OTHER_DTYPES[dtype], device.limits
    require_float64(device, family.types.c)
    like = device
    if has_vectors and not limits.has_vectors:
        pytest.skip("work-items have no vectors")
    if not has_vectors:
        skip_on_pocl(device)
        like = Device(device.cl_device)
        like.__dict__["limits"] = replace(limits, vector_width=1, compute_units=64)
    for values in TILES[has_vectors]:
        choice = Choice(family.config(*values))
        assert not list(family.problems(choice, like.limits))
        layouts = Problem.of(Shape(40, 50, 60), "strict").layouts
        made = exact_plan(*layouts, family.types, like.limits, tile=choice.config)
        assert tile_of(made.plan) == plan.ExactTile(*values[:7])
        sizes = Shape(40, 33, 70), Shape(19, 5, 4500, 3)
        assert not runtime.wrong(like, family.types, choice=choice, sizes=sizes), values
        point = family.search_space(choice, like.traits).read(choice)
        assert family.search_space(choice, like.traits).make(point) == choice


def test_the_tile_of_a_record_is_used_and_one_that_is_wrong_is_not(device, alone, monkeypatch):
    """It is tried first. Unsigned integers have the record of signed ones; a C by columns, too."""
    family = OTHER_DTYPES["int32"]
    default = family.defaults(Shape(300, 20, 30), device.traits)[0].config
    tile = replace(default, rows=16, columns=16, unroll=2, in_place=False)
    if not device.limits.has_vectors:
        tile = replace(tile, items_m=4, items_n=4)
    who = identify(device)
    alone(*(record(who, tile, name) for name in ("tall", "tiny")))
    rng = np.random.default_rng(12)
    x, y = random(rng, (300, 30), "u4"), random(rng, (30, 20), "u4")
    types, space = Types("u4", "u4", "u4"), workspace(device.queue)

    def bound(order):
        layouts = layouts_of(x, y, np.empty((300, 20), np.uint32, order))
        return runtime.bind(layouts, types, device, space).plan.plan

    tried = []
    judge = runtime.judge
    monkeypatch.setattr(runtime, "judge", lambda *asked: tried.append(asked[3]) or judge(*asked))
    assert default != tile
    for _ in range(2):
        assert tile_of(bound("C")) == plan.ExactTile(**asdict(tile))
    assert tile_of(bound("F")) != plan.ExactTile(**asdict(tile))  # that is a wide one
    assert [choice for choice in tried if choice] == [Choice(tile)]
    c = np.zeros((300, 20), np.uint32)
    multiply.multiply_exactly(x, y, c, device)
    np.testing.assert_array_equal(c, x @ y)
    verdicts.store(runtime.about(device, types, choice=Choice(tile)), Verdict("it is wrong"))
    cache.forget_plans()
    assert tile_of(bound("C")) == plan.ExactTile(**asdict(default))


def test_configs_name_their_constraints():
    assert not list(ExactPackConfig(0, 0, 8, 64).problems())
    assert list(ExactPackConfig(0, 0, 0, 64).problems())
    assert list(ExactProductConfig(0, 0, 8, 2, 3).problems())
    assert set(RESULTS) < set(DTYPES)


def test_float16_with_a_k_beyond_the_panels_is_numpys(able):
    """Its sum may not be cut."""
    k = 2**23
    layouts = Layout((1, k), (k, 1)), Layout((k, 1), (1, 1)), Layout((1, 1), (1, 1))
    types = Types("f2", "f2", "f2")
    assert exact_plan(*layouts, types, able.limits, is_in_place=False) is None
    if able.limits.has_vectors:  # a tile of a record may have wider panels than the default
        layouts = [x._replace(shape=tuple(min(y, 2**18) for y in x.shape)) for x in layouts]
        assert exact_plan(*layouts, types, able.limits, tile=plan.ExactTile(4, 96, 16)) is not None
    assert exact_plan(*layouts, Types("i2", "i2", "i2"), able.limits) is not None
