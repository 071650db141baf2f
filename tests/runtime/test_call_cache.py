"""Tests of the call cache: repeated calls give right results and are not planned again."""

from __future__ import annotations

import collections

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from injection import TRANSFER
from whole_numbers import whole

import clgemm
from clgemm import accel, blas, products
from clgemm.core import caches
from clgemm.runtime import call_cache, launch

FUNCTIONS = {
    "matmul": lambda a, b, out: clgemm.matmul(a, b, out=out),
    "dot": lambda a, b, out: clgemm.dot(a, b, out=out),
    "sgemm": lambda a, b, out: clgemm.sgemm(1.0, a, b, 0.0, out, overwrite_c=1, order="C"),
}


@pytest.fixture(params=["host", "device"])
def placed(request, device):
    """Return a function that puts an array on the host or on the device."""
    if request.param == "host":
        if not device.shares_host_memory:
            pytest.skip("what goes through transfers is planned each time")
        return lambda x: x
    return lambda x: cl_array.to_device(device.queue, x)


def got(x):
    """Return the values of a result as a NumPy array."""
    return x.get() if isinstance(x, cl_array.Array) else x


@pytest.mark.parametrize("given", [False, True], ids=["new", "out"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_repeated_call_multiplies_other_data(planned, placed, function, given):
    """Repeated calls share one plan, and each has its own operands and result."""
    results, expected = [], []
    for _ in range(3):
        a, b = whole(50, 70), whole(70, 30)
        out = placed(np.full((50, 30), np.nan, np.float32)) if given else None
        result = FUNCTIONS[function](placed(a), placed(b), out)
        assert out is None or result is out
        results.append(result)
        expected.append(a @ b)
    assert len(planned) == 1
    for result, exact in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got(result), exact)


def test_every_layout_has_a_signature_of_its_own(planned, placed):
    """Each layout of operands is planned once and multiplied right: orders, batches, vectors."""
    a, b, stack = whole(40, 40), whole(40, 40), whole(3, 40, 40)
    cases = [
        (a, b), (a, np.asfortranarray(b)), (np.asfortranarray(a), b), (stack, b), (a, stack),
        (a[0].copy(), b), (a, b[0].copy()),
    ]  # fmt: skip
    for _ in range(2):
        for x, y in cases:
            np.testing.assert_array_equal(got(clgemm.matmul(placed(x), placed(y))), x @ y)
    assert len(planned) == len(cases)


def test_an_offset_is_the_calls_own(planned, device):
    """Views that begin at other elements with the same alignment share a signature."""
    x, y = whole(6, 32, 48), whole(48, 16)
    on_device, b = (cl_array.to_device(device.queue, z) for z in (x, y))
    for i in (0, 3, 1):
        np.testing.assert_array_equal(clgemm.matmul(on_device[i], b).get(), x[i] @ y)
    assert len(planned) == 1


def test_scales_are_the_calls_own(planned, placed):
    """Calls with other alpha and beta share a signature and use their own values."""
    a, b, c = whole(20, 30), whole(30, 10), whole(20, 10)
    for alpha, beta in ((1.0, 0.0), (2.0, -1.0), (1.0, 0.0), (-3.0, 1.0)):
        result = placed(c.copy())
        clgemm.sgemm(alpha, placed(a), placed(b), beta, result, overwrite_c=1)
        np.testing.assert_array_equal(got(result), alpha * (a @ b) + beta * c)
    assert len(planned) == 1


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_overlap_is_seen_each_time(planned, placed, function):
    """A repeated call whose result overlaps an operand is right."""
    a, b = whole(24, 24), whole(24, 24)
    FUNCTIONS[function](placed(a), placed(b), placed(np.empty_like(a)))
    for first in (True, False):
        x, y = placed(a.copy()), placed(b.copy())
        result = FUNCTIONS[function](x, y, x if first else y)
        np.testing.assert_array_equal(got(result), a @ b)
    assert len(planned) == 3


def test_errors_come_as_the_first_time(planned, device):
    """Wrong operands raise the same errors after a call with right operands was cached."""
    a, b, out = (cl_array.to_device(device.queue, whole(16, 16)) for _ in range(3))
    clgemm.matmul(a, b, out=out)
    with pytest.raises(TypeError, match="mixed"):
        clgemm.matmul(a, b.get(), out=out)
    doubles = cl_array.to_device(device.queue, whole(16, 16).astype(np.float64))
    with pytest.raises(TypeError, match="float64"):
        clgemm.matmul(a, doubles, out=out)
    with pytest.raises(ValueError, match="out is"):
        clgemm.matmul(a, b, out=out[:8])
    context = cl.Context([device.cl_device])  # which on Intel's runtime a queue does not keep alive
    elsewhere = cl_array.to_device(cl.CommandQueue(context), whole(16, 16))
    with pytest.raises(ValueError, match="context"):
        clgemm.matmul(a, elsewhere, out=out)
    assert len(planned) == 1


def test_precision_belongs_to_the_signature(planned, placed, monkeypatch):
    """Each call looks at the precision of the block and of the environment."""
    a, b = placed(whole(16, 16)), placed(whole(16, 16))
    clgemm.matmul(a, b)
    with clgemm.precision("strict"):
        clgemm.matmul(a, b)
    assert [problem.precision for _, problem in planned] == ["float32", "strict"]
    monkeypatch.setenv("CLGEMM_PRECISION", "half")
    with pytest.raises(ValueError, match="'half'"):
        clgemm.matmul(a, b)


def test_the_threshold_is_looked_at_in_each_call(planned, device, monkeypatch):
    """A cached call stays on the host once it is below a new threshold."""
    a, b = whole(40, 40), whole(40, 40)
    clgemm.matmul(a, b)
    monkeypatch.setenv("CLGEMM_THRESHOLD", str(41**3))
    monkeypatch.setattr(call_cache, "allocated", None)  # a product on the device would need it
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)


def test_what_is_found_out_since_counts(planned, placed):
    """forget_plans empties the call cache."""
    a, b = placed(whole(16, 16)), placed(whole(16, 16))
    clgemm.matmul(a, b)
    caches.forget_plans()
    clgemm.matmul(a, b)
    assert len(planned) == 2


@pytest.fixture
def counted(monkeypatch):
    """Count how often a call resolves its precision and makes its signature."""
    counts = collections.Counter()

    def counting(name, function):
        def call(*arguments):
            counts[name] += 1
            return function(*arguments)

        return call

    for module in (blas, products, launch):
        for name in ("chosen_precision", "call_signature"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    monkeypatch.setattr(call_cache, "_calls", {})
    return counts


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_call_resolves_its_precision_once_and_has_one_signature(counted, placed, function):
    """First and repeated calls resolve the precision once and make one signature."""
    a, b, out = placed(whole(20, 30)), placed(whole(30, 10)), placed(whole(20, 10))
    for target in (None, None, out, out):
        counted.clear()
        FUNCTIONS[function](a, b, target)
        assert counted == {"chosen_precision": 1, "call_signature": 1}


def test_calls_that_are_never_repeated_resolve_their_precision_once(counted, placed):
    """Calls without a cache (inner, flat mode, overlaps, scaling) resolve precision once."""
    a, b = placed(whole(20, 20)), placed(whole(20, 20))
    flat = placed(whole(400))
    calls = (
        lambda: clgemm.inner(a, b),
        lambda: clgemm.tensordot(a, b, 1),
        lambda: clgemm.matmul(a, b, out=a),
        lambda: clgemm.sgemm(0.0, a, b),
        lambda: clgemm.sgemm(1.0, flat, flat, m=20, n=20, k=20, lda=20),
    )
    for call in calls:
        counted.clear()
        call()
        assert counted["chosen_precision"] == 1


def test_tiles_and_accelerated_products_resolve_their_precision_once(counted, device):
    """Products through transfers and products of accelerated NumPy resolve it once."""
    a, b = whole(300, 300), whole(300, 300)
    with clgemm.device(clgemm.Device(device.cl_device, transfer=TRANSFER)):
        clgemm.sgemm(1.0, a, b)
    assert counted["chosen_precision"] == 1
    with clgemm.device(device), accel.enabled(threshold=0):
        for product in (lambda: a @ b, lambda: np.dot(a, b), lambda: np.inner(a, b)):
            counted.clear()
            product()
            assert counted["chosen_precision"] == 1


def test_another_device_in_mid_call_is_not_kept_for_the_first(planned, device, monkeypatch):
    """A call is not cached if a signal handler chose another device after its signature."""
    if not device.shares_host_memory:
        pytest.skip("what goes through transfers is not kept")
    other = clgemm.Device(device.cl_device)
    multiply = blas.multiply

    def choosing(*arguments, **keywords):
        with clgemm.device(other):
            return multiply(*arguments, **keywords)

    monkeypatch.setattr(blas, "multiply", choosing)
    a, b = whole(16, 16), whole(16, 16)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert not call_cache._calls


def test_results_on_the_device_are_arrays_like_any(device):
    """Device results equal pyopencl's own arrays, each with its own memory and events."""
    queue = device.queue
    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
    a = cl_array.to_device(queue, whole(12, 9), allocator=pool)
    b = cl_array.to_device(queue, whole(9, 5))
    for order in ("C", "F"):
        plain = cl_array.empty(queue, (12, 5), np.float32, order, allocator=pool)
        one, other = (clgemm.sgemm(1.0, a, b, order=order) for _ in range(2))
        for result in (one, other):
            for name in ("shape", "strides", "dtype", "size", "nbytes", "offset", "allocator"):
                assert getattr(result, name) == getattr(plain, name), name
            assert result.queue == queue
            assert result.context == queue.context
            assert result.flags.f_contiguous == (order == "F")
            assert type(result.base_data) is type(plain.base_data)
        assert one.base_data != other.base_data
        assert one.events is not other.events
        np.testing.assert_array_equal((one + other).get(), 2 * (a.get() @ b.get()))


def test_only_so_many_calls_are_kept(planned, placed, monkeypatch):
    """The call cache keeps at most MOST_CALLS calls, and all products are right."""
    monkeypatch.setattr(call_cache, "MOST_CALLS", 3)
    for _ in range(2):
        for n in (4, 5, 6, 7):
            a, b = whole(n, n), whole(n, n)
            np.testing.assert_array_equal(got(clgemm.matmul(placed(a), placed(b))), a @ b)
            assert len(call_cache._calls) <= 3
