"""A matrix times its own transpose: symmetric as NumPy's result is, or one triangle, as ssyrk's."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyopencl.array as cl_array
import pytest
import symmetry
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from injection import TRANSFER
from strategies import integers

import clgemm
from clgemm.core.cache import forget_plans
from clgemm.planning import cut, planner
from clgemm.runtime.operands import own_transpose, same_memory
from clgemm.testing import gamma

SIZES = [(7, 70), (130, 33), (401, 257), (64, 5000), (777, 300)]


def data(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def products(x, out):
    """Products by all entrances, of the host or the device."""
    yield "matmul", clgemm.matmul(x, x.T)
    yield "matmul, out", clgemm.matmul(x, x.T, out=out)
    yield "dot", clgemm.dot(x, x.T)
    yield "inner", clgemm.inner(x, x)
    yield "tensordot", clgemm.tensordot(x, x, ((1,), (1,)))
    yield "multi_dot", clgemm.multi_dot([x, x.T])
    yield "sgemm", clgemm.sgemm(1.0, x, x, trans_b=1)
    yield "sgemm, C", clgemm.sgemm(-2.5, x.T, x.T, 0.0, out, 1, 0, order="C", overwrite_c=1)
    yield "prepared", clgemm.prepare(x, x.T, out=out)()


# Tiles of rows, or whole ones; and the tiles of one triangle, whose blocks of A serve twice.
TRIANGLE = replace(TRANSFER, memory_bytes=2**26, tile_bytes=2**10, triangle=3)
TRANSFERS = {"tiles": TRANSFER, "triangle": TRIANGLE}


def bounds_of(x):
    """The product in float64, and how far from it one in float32 may be."""
    y = x.astype(np.float64)
    exact, sizes = (each @ each.swapaxes(-1, -2) for each in (y, abs(y)))
    return exact, gamma(y.shape[-1] + 128) * sizes


def check(name, found, bounds, alpha=1.0):
    exact, allowed = bounds
    np.testing.assert_array_equal(found, found.swapaxes(-1, -2), err_msg=name)
    assert (abs(found - alpha * exact) <= abs(alpha) * allowed).all(), name


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("where", ["host", "device", "tiles", "triangle"])
def test_every_entrance_gives_a_symmetric_result(device, n, k, where):
    """In row-major and column-major order; on the host seen for the first time and again."""
    if "Oclgrind" in device.name and n * n * k > 10**6:
        pytest.skip("this takes Oclgrind minutes")
    used = device
    if where in TRANSFERS:
        used = clgemm.Device(device.cl_device, transfer=TRANSFERS[where])
    for x in (data(n, k), data(k, n).T):
        out, bounds = np.zeros((n, n), np.float32), bounds_of(x)
        with clgemm.device(used):
            for _ in range(2 if where == "host" else 1):
                on_device = where == "device"
                y = cl_array.to_device(device.queue, x) if on_device else x
                z = cl_array.to_device(device.queue, out) if on_device else out
                for name, found in products(y, z):
                    got = found.get() if on_device else found
                    check(name, got, bounds, -2.5 if name == "sgemm, C" else 1.0)


def test_a_batch_is_symmetric(device):
    for x in (
        data(3, 2, 40, 30),
        data(2, 769, 256),
        np.broadcast_to(data(770, 256), (2, 770, 256)),
    ):
        check("matmul", clgemm.matmul(x, x.swapaxes(-1, -2)), bounds_of(x))


def test_what_is_added_is_not_made_symmetric(device):
    """With beta, C is; the same call without beta before and after changes nothing."""
    x, c = data(150, 90), data(150, 150)
    for array in (lambda each: each, lambda each: cl_array.to_device(device.queue, each.copy())):
        y, z = array(x), array(c)
        for beta in (0.0, 2.0, 0.0, 2.0):
            found = clgemm.sgemm(1.0, y, y, beta, z, trans_b=1, order="C")
            found = found if isinstance(found, np.ndarray) else found.get()
            wide = x.astype(np.float64)
            expected = wide @ wide.T + beta * c
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
            assert np.array_equal(found, found.T) == (beta == 0)


def test_another_array_of_the_same_layout_gets_no_mirror(device):
    """Calls of one kind are remembered; those by another array are other ones."""
    x, y = data(120, 60), data(60, 120)
    for array in (lambda each: each, lambda each: cl_array.to_device(device.queue, each)):
        a, b, c = array(x), array(np.asfortranarray(y)), array(np.zeros((120, 120), np.float32))
        for second, expected in ((a.T, x @ x.T), (b, x @ y), (a.T, x @ x.T)):
            for out in (None, c):
                found = clgemm.matmul(a, second, out=out)
                found = found if isinstance(found, np.ndarray) else found.get()
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_only_views_of_one_array_are_its_transpose(device):
    """A copy, a shifted view and another shape are not."""
    x = data(9, 9)
    assert own_transpose(x, x.T)
    assert own_transpose(x[1:5], x[1:5].T)
    assert own_transpose(x[::2, ::-1], x[::2, ::-1].T)
    assert not own_transpose(x, x)
    assert not own_transpose(x, x.T.copy())
    assert not own_transpose(x[1:5], x[2:6].T)
    assert not own_transpose(x[:, 0], x[:, 0])
    assert same_memory(x, x)
    assert same_memory(x, x.T)
    assert same_memory(x.T, x)
    assert not same_memory(x, x[1:])
    y = cl_array.to_device(device.queue, x)
    assert own_transpose(y, y.T)
    assert not own_transpose(y, y.copy().T)


@pytest.fixture
def small_blocks(monkeypatch):
    """Triangles are computed in blocks of 32 rows and more, whatever pays."""
    sizes = {"PACKED_ROWS": 1, "TRIANGLE_GRAIN": 32, "TRIANGLE_DEPTH": 1}
    for name, size in sizes.items():
        monkeypatch.setattr(planner, name, size)
    forget_plans()
    yield
    monkeypatch.undo()
    forget_plans()


@pytest.fixture(params=["host", "device", "tiles", "triangle", "parts"])
def place(request, device, monkeypatch):
    """Where the operands are: a function that puts an array there, and one that fetches it."""
    used = device
    if request.param in TRANSFERS:
        used = clgemm.Device(device.cl_device, transfer=TRANSFERS[request.param])
    if request.param == "parts":  # of products that take longer than the device may
        monkeypatch.setattr(cut, "PART_WORK", 2**12)
        monkeypatch.setattr(cut, "PART_WORK_IF_SLOW", 2**14)
        monkeypatch.setattr(cut, "LEAST_SIDE", 32)
        forget_plans()
    with clgemm.device(used):
        if request.param == "device":
            yield lambda x: x if x is None else on_device(device, x)
        else:
            yield lambda x: x
    monkeypatch.undo()
    forget_plans()


def on_device(device, x):
    """A device array of the same memory order: the transpose of one that is row-major, or not."""
    if x.flags.c_contiguous:
        return cl_array.to_device(device.queue, x)
    return cl_array.to_device(device.queue, np.ascontiguousarray(x.T)).T


def fetched(x):
    return x if isinstance(x, np.ndarray) else x.get()


ORDERS = st.sampled_from("CF")
# The fixtures stay as they are from one example to the next.
SAME_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SAME_FIXTURES
@given(data=st.data(), n=st.integers(1, 150), k=st.integers(0, 70))
def test_ssyrk_updates_one_triangle(data, n, k, place, small_blocks):
    """It neither reads nor writes the other one, nor reads C when beta is 0."""
    trans, lower = data.draw(st.sampled_from([0, 1, 2])), data.draw(st.sampled_from([0, 1]))
    alpha, beta = (data.draw(st.sampled_from([0.0, 1.0, -2.0])) for _ in "ab")
    rng = np.random.default_rng(n)
    x = integers(rng, (n, k))
    own = np.tri(n, dtype=np.bool_)
    own = own if lower else own.T
    c = np.where(own, integers(rng, (n, n)) if beta else np.nan, np.nan).astype(np.float32)
    c = np.array(c, order=data.draw(ORDERS))
    updated = alpha * (x @ x.T) + (beta * c if beta else 0)
    if alpha == 0:
        x[...] = np.nan
    a = place(np.array(x.T if trans else x, order=data.draw(ORDERS)))
    expected = np.where(own, updated, np.nan)
    options = {"trans": trans, "lower": lower}
    found = clgemm.ssyrk(alpha, a, beta, given := place(c), **options)
    np.testing.assert_array_equal(fetched(found), expected)
    np.testing.assert_array_equal(fetched(given), c)
    assert clgemm.ssyrk(alpha, a, beta, given, overwrite_c=1, **options) is given
    np.testing.assert_array_equal(fetched(given), expected)
    if beta == 0:
        found = clgemm.ssyrk(alpha, a, **options, order=data.draw(ORDERS))
        np.testing.assert_array_equal(fetched(found), np.where(own, updated, 0))


@SAME_FIXTURES
@given(data=st.data(), n=st.integers(1, 150), k=st.integers(1, 70))
def test_sgemm_adds_to_each_element_its_own(data, n, k, place, small_blocks):
    """The product is symmetric; with beta, C need not be."""
    trans, beta = data.draw(st.booleans()), data.draw(st.sampled_from([0.0, 1.0, -0.5]))
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, k)).astype(np.float32)
    c = np.array(integers(rng, (n, n)), order=data.draw(ORDERS))
    a, target = place(np.array(x.T if trans else x, order=data.draw(ORDERS))), place(c.copy("K"))
    found = clgemm.sgemm(1.0, a, a, beta, target, trans, not trans, overwrite_c=1)
    found, wide = fetched(found), x.astype(np.float64)
    bound = gamma(k + 128) * (abs(wide) @ abs(wide).T + abs(beta * c))
    assert (abs(found - (wide @ wide.T + beta * c)) <= bound).all()
    if beta == 0:
        np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("n", [300, 800])
def test_a_triangle_of_usual_size(n, beta, place):
    """With the blocks that pay, and sentinels in the other triangle."""
    x, c = integers(np.random.default_rng(n), (n, 260)), np.full((n, n), 7, np.float32)
    expected = np.where(np.tri(n, dtype=np.bool_), x @ x.T + 7 * beta, 7)
    for order in "CF":
        z = place(np.array(c, order=order))
        assert clgemm.ssyrk(1.0, place(x), beta, z, lower=1, overwrite_c=1) is z
        np.testing.assert_array_equal(fetched(z), expected)


@pytest.mark.parametrize("on", ["host", "device"])
def test_calls_of_ssyrk_are_repeated(device, on):
    """The same arrays with another triangle, another beta and other values are another product."""
    rng, n = np.random.default_rng(6), 70
    x, c = integers(rng, (n, 30)), integers(rng, (n, n))
    put = (lambda each: each) if on == "host" else (lambda each: on_device(device, each))
    a, z, expected = put(x), put(c.copy()), c.astype(np.float64)
    for lower, beta in ((0, 0), (0, 0), (0, 0), (1, 0), (1, 1), (0, 1), (0, 0), (1, 0), (1, 0)):
        own = np.tri(n, dtype=np.bool_)
        own = own if lower else own.T
        assert clgemm.ssyrk(2.0, a, beta, z, lower=lower, overwrite_c=1) is z
        expected[own] = (2 * x @ x.T + beta * expected)[own]
        np.testing.assert_array_equal(fetched(z), expected)
        x += 1
        if on == "device":
            a += 1
    other = put(integers(rng, (n, 30)))
    found = fetched(clgemm.ssyrk(1.0, other, 0.0, z, overwrite_c=1))
    y = fetched(other)
    np.testing.assert_array_equal(np.triu(found), np.triu(y @ y.T))


def test_random_products_are_symmetric(device, every_size):
    """Of all functions, dtypes, batches and layouts; tests/helpers/symmetry.py has more."""
    if "Oclgrind" in device.name:
        pytest.skip("each call builds kernels")
    seed = time.time_ns() % 10**12
    made, faults = symmetry.search(range(seed, seed + 20), 600, 300)
    assert not faults
    assert sum(made.values()) >= 60


def test_ssyrk_may_overwrite_its_operand(device):
    """A is read from a copy where C would overwrite it."""
    x = integers(np.random.default_rng(5), (90, 90))
    expected = np.where(np.tri(90, dtype=np.bool_), x @ x.T + 2 * x, x)
    assert clgemm.ssyrk(1.0, x, 2.0, x, lower=1, overwrite_c=1) is x
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "f2", "b1"])
def test_other_dtypes_are_symmetric(dtype, device, small_blocks):
    """In batches and views, as NumPy computes them; two dtypes in one memory are no transposes."""
    for shape in ((130, 40), (2, 97, 33)):
        x = integers(np.random.default_rng(1), shape).astype(dtype)
        for each in (x, x[..., ::-1, ::2], x.swapaxes(-1, -2)):
            other = each.swapaxes(-1, -2)
            found = clgemm.matmul(each, other)
            np.testing.assert_array_equal(found, np.matmul(each, other))
            np.testing.assert_array_equal(found, found.swapaxes(-1, -2))
    if dtype != "b1":
        unlike = x.swapaxes(-1, -2).view(dtype.replace("i", "u"))
        np.testing.assert_array_equal(clgemm.matmul(x, unlike), np.matmul(x, unlike))


@pytest.mark.parametrize("shape", [(1, 300, 40), (2, 130, 50), (2, 1, 90, 40)])
@pytest.mark.parametrize("order", ["C", "F", "batch last"])
def test_a_batch_in_tiles_of_one_triangle(device, shape, order):
    """Each tile's mirror image is its transpose, in whatever order C lies in memory."""
    x = integers(np.random.default_rng(3), shape)
    size = (*shape[:-1], shape[-2])
    out = np.zeros(size, np.float32, "F" if order == "F" else "C")
    if order == "batch last":
        out = np.zeros((*size[1:], size[0]), np.float32).transpose(-1, *range(len(size) - 1))
    used = clgemm.Device(device.cl_device, transfer=TRANSFERS["triangle"])
    with clgemm.device(used):
        clgemm.matmul(x, x.swapaxes(-1, -2), out=out)
    np.testing.assert_array_equal(out, np.matmul(x, x.swapaxes(-1, -2)))


@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_result_with_strides_of_any_signs(device, order, signs, small_blocks):
    """The triangle that is computed is the one that is kept."""
    x = integers(np.random.default_rng(4), (200, 60))
    views = tuple(slice(None, None, sign) for sign in signs)
    out = np.zeros((200, 200), np.float32, order)[views]
    clgemm.matmul(x, x.T, out=out)
    np.testing.assert_array_equal(out, x @ x.T)
    clgemm.sgemm(1.0, x, x, 0.0, out, trans_b=1, overwrite_c=1)
    np.testing.assert_array_equal(out, x @ x.T)
