"""A matrix times its own transpose is exactly symmetric, as NumPy's result is."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array
import pytest
from injection import TRANSFER
from strategies import gamma

import clgemm
from clgemm.runtime.operands import own_transpose, same_memory

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


def check(name, found, x, alpha=1.0):
    y = x.astype(np.float64)
    np.testing.assert_array_equal(found, found.swapaxes(-1, -2), err_msg=name)
    allowed = gamma(y.shape[-1] + 128) * abs(alpha) * (abs(y) @ abs(y).swapaxes(-1, -2))
    assert (abs(found - alpha * (y @ y.swapaxes(-1, -2))) <= allowed).all(), name


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("where", ["host", "device", "host, again", "tiles"])
def test_every_entrance_gives_a_symmetric_result(device, n, k, where):
    """In row-major and column-major order, seen for the first time and again."""
    if "Oclgrind" in device.name and n * n * k > 10**6:
        pytest.skip("this takes Oclgrind minutes")
    used = device
    if where == "tiles":
        used = clgemm.Device(device.cl_device, transfer=TRANSFER)
    for x in (data(n, k), data(k, n).T):
        out = np.zeros((n, n), np.float32)
        with clgemm.device(used):
            for _ in range(2 if "again" in where else 1):
                on_device = where == "device"
                y = cl_array.to_device(device.queue, x) if on_device else x
                z = cl_array.to_device(device.queue, out) if on_device else out
                for name, found in products(y, z):
                    got = found.get() if on_device else found
                    check(name, got, x, -2.5 if name == "sgemm, C" else 1.0)


def test_a_batch_is_symmetric(device):
    for x in (
        data(3, 2, 40, 30),
        data(2, 769, 256),
        np.broadcast_to(data(770, 256), (2, 770, 256)),
    ):
        check("matmul", clgemm.matmul(x, x.swapaxes(-1, -2)), x)


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
