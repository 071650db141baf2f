"""Tests of the call cache: which calls share a plan, and what it keeps."""

from __future__ import annotations

import gc
import os
import weakref

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from whole_numbers import FUNCTIONS, got, whole

import clgemm
from clgemm.core import cache
from clgemm.transfer import call_cache
from clgemm.transfer import multiply as transfer_multiply


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
    # NumPy's functions copy such a result from a new array: a product that is known.
    is_known = isinstance(x, np.ndarray) and function != "sgemm"
    assert len(planned) == (1 if is_known else 3)


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
    cache.forget_plans()
    clgemm.matmul(a, b)
    assert len(planned) == 2


def test_only_so_many_calls_are_kept(planned, placed, monkeypatch):
    """The call cache keeps at most MOST_CALLS calls, and all products are right."""
    monkeypatch.setattr(call_cache, "MOST_CALLS", 3)
    for _ in range(2):
        for n in (4, 5, 6, 7):
            a, b = whole(n, n), whole(n, n)
            np.testing.assert_array_equal(got(clgemm.matmul(placed(a), placed(b))), a @ b)
            assert len(call_cache._calls) <= 3


def repeated(device, *arrays, times=4):
    """Multiply device arrays so often that the call is found by their identities."""
    for _ in range(times):
        clgemm.matmul(*arrays[:2], out=arrays[2])
    assert id(arrays[2]) in call_cache._same


def arrays_of(device, n=16):
    """Return two random matrices and zeros, on the device."""
    return [
        cl_array.to_device(device.queue, x)
        for x in (whole(n, n), whole(n, n), np.zeros((n, n), "f"))
    ]


@pytest.mark.parametrize("change", ["memory of a", "memory of c", "place of b", "strides of b"])
def test_the_same_arrays_may_have_changed(device, change):
    """A call of the same arrays is made anew where one of them has another memory or layout."""
    a, b, c = arrays_of(device)
    repeated(device, a, b, c)
    other = cl_array.to_device(device.queue, whole(20, 20))
    if change == "memory of a":
        a.base_data = other.base_data
    elif change == "memory of c":
        c.base_data = a.base_data
    elif change == "place of b":
        b.base_data, b.offset = other.base_data, 16
    else:
        b.strides = b.strides[::-1]
    x, y = a.get(), b.get() if change != "strides of b" else b.get().copy()
    clgemm.matmul(a, b, out=c)
    np.testing.assert_array_equal(c.get(), x @ y)


def test_the_same_arrays_have_other_scales_data_and_precisions(device):
    """What a call of the same arrays does not depend on is each call's own."""
    a, b, c = arrays_of(device)
    for i in range(6):
        a.set(whole(16, 16))
        clgemm.sgemm(float(i), a, b, 0.0, c, overwrite_c=1, precision=("strict", "fast")[i % 2])
        np.testing.assert_array_equal(c.get(), i * (a.get() @ b.get()))


def test_a_call_of_the_same_arrays_does_not_keep_them(device):
    """When one of the arrays is deleted, the cache lets go of the memory of all."""
    a, b, c = arrays_of(device)
    repeated(device, a, b, c)
    entry = weakref.ref(b)
    kept = len(call_cache._same)
    del b
    gc.collect()
    assert entry() is None
    assert len(call_cache._same) == kept - 1


def test_calls_of_the_same_arrays_are_forgotten_and_bounded(device, monkeypatch):
    """forget_plans drops them, and at most MOST_SAME are kept."""
    monkeypatch.setattr(call_cache, "MOST_SAME", 2)
    several = [arrays_of(device) for _ in range(4)]
    for arrays in several:
        repeated(device, *arrays)
        assert len(call_cache._same) <= 2
    cache.forget_plans()
    assert not call_cache._same


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_same_arrays_in_a_forked_process_are_refused(device):
    """The error of the first call comes, not a product on the parent's device."""
    a, b, c = arrays_of(device)
    repeated(device, a, b, c)
    child = os.fork()
    if not child:
        status = 1
        try:
            clgemm.matmul(a, b, out=c)
        except RuntimeError as error:
            status = 0 if "forked" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_result_of_changing_operands_is_right(device):
    """The call that is kept for a result is only that of its last operands."""
    a, b, c = arrays_of(device)
    d, _, _ = arrays_of(device)
    repeated(device, a, b, c)
    for x in (d, a, a, d, d, d, a):
        clgemm.matmul(x, b, out=c)
        np.testing.assert_array_equal(c.get(), x.get() @ b.get())


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


def test_another_device_in_mid_call_is_not_kept_for_the_first(planned, device, monkeypatch):
    """A call is not cached if a signal handler chose another device after its signature."""
    if not device.shares_host_memory:
        pytest.skip("what goes through transfers is not kept")
    other = clgemm.Device(device.cl_device)
    multiply = transfer_multiply.multiply

    def choosing(*arguments, **keywords):
        with clgemm.device(other):
            return multiply(*arguments, **keywords)

    monkeypatch.setattr(transfer_multiply, "multiply", choosing)
    a, b = whole(16, 16), whole(16, 16)
    np.testing.assert_array_equal(clgemm.sgemm(1.0, a, b), a @ b)
    assert not call_cache._calls
