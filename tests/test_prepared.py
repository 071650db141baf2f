"""Products that are prepared once and computed many times."""

from __future__ import annotations

import threading

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import clgemm
from clgemm.core.cache import forget_plans
from clgemm.runtime import workspace

RNG = np.random.default_rng(5)


def whole(*shape):
    """Small whole numbers, whose products are exact."""
    return RNG.integers(-5, 6, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(5, 7, 9), (70, 3, 40), (1, 300, 200), (2, 65, 33, 80)])
def test_each_call_takes_the_contents_of_the_arrays(device, shape):
    """Other products in between use other kernels, with other operands."""
    *batch, m, n, k = shape
    host = whole(*batch, m, k), whole(*batch, k, n)
    a, b = (cl_array.to_device(device.queue, x) for x in host)
    product = clgemm.prepare(a, b)
    for _ in range(3):
        assert product() is product.out
        np.testing.assert_array_equal(product.out.get(), a.get() @ b.get())
        others = [cl_array.to_device(device.queue, whole(*x.shape)) for x in host]
        clgemm.matmul(*others)  # of the same signature
        a += 1
        b.set(whole(*b.shape))


def test_alpha_beta_layouts_and_offsets(device):
    """C may be a part of a larger array, and the operands are transposed views."""
    store = cl_array.to_device(device.queue, whole(40, 50))
    a = cl_array.to_device(device.queue, whole(20, 30)).T
    b = cl_array.to_device(device.queue, whole(10, 20)).T
    out = store[5:35, 7:17]
    before = store.get()
    expected = before.copy()
    product = clgemm.prepare(a, b, out=out, alpha=2.0, beta=-1.0)
    for _ in range(2):
        product()
        expected[5:35, 7:17] = 2 * (a.get() @ b.get()) - expected[5:35, 7:17]
        np.testing.assert_array_equal(store.get(), expected)


@pytest.mark.parametrize("dtype", ["i1", "i4", "u8", "b1", "f2", "f8", "c8"])
def test_other_dtypes(device, dtype):
    """On the device, in slices of a batch, of a symmetric product, and from the host."""
    if dtype == "f8" and not device.cl_device.double_fp_config:
        pytest.skip("it has no float64")
    x, y = (abs(whole(*shape)).astype(dtype) for shape in ((2, 30, 41), (41, 20)))
    a, b = (cl_array.to_device(device.queue, z) for z in (x, y))
    product, square = clgemm.prepare(a, b), clgemm.prepare(a[0], a[0].T)
    gate = cl.UserEvent(device.context)
    product(wait_for=[gate])
    gate.set_status(cl.command_execution_status.COMPLETE)
    for _ in range(2):
        assert product().dtype == x.dtype
        np.testing.assert_array_equal(product.out.get(), np.matmul(a.get(), y))
        np.testing.assert_array_equal(square().get(), np.matmul(a.get()[0], a.get()[0].T))
        clgemm.matmul(cl_array.to_device(device.queue, x[::-1].copy()), b)  # of the same signature
        a.set(a.get()[::-1].copy())
    with clgemm.device(device):
        hosts = clgemm.prepare(x, y, out=np.empty((2, 30, 20), dtype))
        np.testing.assert_array_equal(hosts(), np.matmul(x, y))
        x[...] = 1
        np.testing.assert_array_equal(hosts(), np.matmul(x, y))
    nothing = clgemm.prepare(a[:, :, :0], b[:0])
    np.testing.assert_array_equal(nothing().get(), np.zeros((2, 30, 20), dtype))
    with pytest.raises(ValueError, match=f"alpha=2.0, beta=0.0: products of {x.dtype} have"):
        clgemm.prepare(a, b, alpha=2.0)
    with pytest.raises(ValueError, match="the result"):
        clgemm.prepare(a, b, out=b)
    with pytest.raises(TypeError, match="b is int16: all must be of one dtype"):
        clgemm.prepare(x, np.ones((41, 20), np.int16))


def test_host_arrays_are_multiplied_on_the_device(device):
    """They are read at each call, like those of the device."""
    a, b = whole(30, 20), whole(20, 10)
    with clgemm.device(device):
        product = clgemm.prepare(a, b)
        for _ in range(2):
            np.testing.assert_array_equal(product(), a @ b)
            a += 1


def test_degenerate_products(device):
    """Nothing is read where alpha or k is 0, and nothing is stored where C is empty."""
    queue = device.queue
    a, b = (cl_array.to_device(queue, whole(*s)) for s in ((4, 5), (5, 6)))
    c = cl_array.to_device(queue, whole(4, 6))
    former = c.get()
    clgemm.prepare(a, b, out=c, alpha=0.0, beta=3.0)()
    np.testing.assert_array_equal(c.get(), 3 * former)
    nothing = cl_array.zeros(queue, (4, 0), np.float32), cl_array.zeros(queue, (0, 6), np.float32)
    np.testing.assert_array_equal(clgemm.prepare(*nothing)().get(), np.zeros((4, 6)))
    assert clgemm.prepare(cl_array.zeros(queue, (0, 5), np.float32), b)().shape == (0, 6)


def test_arguments_are_not_set_again(device, monkeypatch):
    """A call sets no operand, and still does after the plans were forgotten."""
    a, b = (cl_array.to_device(device.queue, whole(9, 9)) for _ in range(2))
    product = clgemm.prepare(a, b)
    product()
    forget_plans()
    launches = product._call.plan.kernels.launches
    assert not any(launch.buffers for launch in launches)
    called = []
    for launch in launches:
        monkeypatch.setattr(launch, "set_argument", lambda *given: called.append(given))
    product()
    assert len(called) == sum(len(launch.outlier_counters) for launch in launches)
    np.testing.assert_array_equal(product.out.get(), a.get() @ b.get())


def test_an_interrupted_call_does_no_harm(device, monkeypatch):
    """The next call has new kernels, whose operands are set again."""
    a, b = (cl_array.to_device(device.queue, whole(9, 9)) for _ in range(2))
    product = clgemm.prepare(a, b)
    expected = product().get()

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(workspace.BoundKernels, "scalars", property(fail), raising=False)
        with pytest.raises(KeyboardInterrupt):
            product()
    product.out.fill(np.float32(np.nan))
    for _ in range(2):
        np.testing.assert_array_equal(product().get(), expected)


def test_threads_prepare_and_call(device):
    """Each has its own product on one queue."""
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        a, b = (rng.integers(-5, 6, (20, 20)).astype(np.float32) for _ in range(2))
        x, y = (cl_array.to_device(device.queue, each) for each in (a, b))
        product = clgemm.prepare(x, y)
        wrong.extend(seed for _ in range(20) if not np.array_equal(product().get(), a @ b))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_events_are_waited_for(device):
    """A user's event, and the one that each call leaves with the result."""
    a, b = (cl_array.to_device(device.queue, whole(9, 9)) for _ in range(2))
    gate = cl.UserEvent(device.context)
    product = clgemm.prepare(a, b)
    product(wait_for=[gate])
    assert product.out.events
    gate.set_status(cl.command_execution_status.COMPLETE)
    np.testing.assert_array_equal(product.out.get(), a.get() @ b.get())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([[1.0]], np.ones((1, 1), "f")), TypeError, "a is a list"),
        ((np.ones((2, 3)), np.ones((3, 4), "f")), TypeError, "a is float64"),
        ((np.ones(3, "f"), np.ones((3, 4), "f")), ValueError, r"a has shape \(3,\)"),
        ((np.ones((2, 3), "f"), np.ones((4, 5), "f")), ValueError, "k disagrees"),
    ],
)
def test_what_cannot_be_prepared_is_refused(arguments, error, message):
    """A copy would not follow later changes, so nothing is converted."""
    with pytest.raises(error, match=message):
        clgemm.prepare(*arguments)


def test_an_out_that_does_not_fit_is_refused():
    """By its shape, because it overlaps an operand, or because it is missing."""
    a = np.ones((3, 3), np.float32)
    with pytest.raises(ValueError, match="share elements"):
        clgemm.prepare(a, a, out=a)
    with pytest.raises(ValueError, match="needs out"):
        clgemm.prepare(a, a, beta=1.0)
    with pytest.raises(ValueError, match=r"\(3, 4\)"):
        clgemm.prepare(a, a, out=np.ones((3, 4), np.float32))
    with pytest.raises(ValueError, match="precision"):
        clgemm.prepare(a, a, precision="double")
