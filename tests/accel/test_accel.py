"""Tests of accelerated NumPy: its products, its errors, and its state after uninstall."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from strategies import gamma

import clgemm
from clgemm import products
from clgemm.accel import enabled, hooks, install, places, report, routing, session, uninstall
from clgemm.accel.crossover import measure
from clgemm.planning import crossovers, selection
from clgemm.planning.crossovers import Measured, Work, kind_of
from clgemm.runtime import call_cache

RANDOM = np.random.default_rng(0)
TYPE_CALL = 128  # the offset of __call__'s slot in CPython's PyTypeObject
VERSION = 1 << 19  # a flag that CPython sets on types when it looks up a method
NUMPY_2 = np.lib.NumpyVersion(np.__version__) >= "2.0.0"


def integers(*shape):
    """Return an array of small positive integers, whose sums are exact in any order."""
    return RANDOM.integers(1, 9, shape).astype(np.float32)


A, B = integers(30, 20), integers(20, 40)
EXACT = A.astype(np.float64) @ B.astype(np.float64)


@contextlib.contextmanager
def offloading(calls=None):
    """Accelerate products of all sizes, and assert how many ran on the device."""
    with enabled(threshold=0):
        yield
    offloaded = report().offloaded
    assert offloaded == calls if calls is not None else offloaded > 0, report()


def places_of_numpy():
    """Return the contents of all patched places, including pointers and C slots."""
    offset = ctypes.c_ssize_t.from_address(id(np.ufunc) + places.TYPE_VECTORCALL_OFFSET).value
    pointers = [
        ctypes.c_void_p.from_address(address).value
        for address in (id(np.matmul) + offset, id(np.add) + offset, id(np.ufunc) + TYPE_CALL)
    ]
    descriptors = [
        owner.__dict__[name]
        for owner, name in (
            (np.ndarray, "__matmul__"),
            (np.ndarray, "dot"),
            (np.ufunc, "__call__"),
        )
    ]
    slots = [
        id(x)
        for kind in (np.ndarray, np.memmap, np.matrix, np.ma.MaskedArray)
        for x in (kind.__matmul__, kind.dot)
    ]
    functions = [np.dot, np.dot._implementation, np.inner, np.inner._implementation, np.matmul]
    flags = [kind.__flags__ & ~VERSION for kind in (np.ndarray, np.ufunc)]
    return pointers, descriptors, slots, functions, sys.unraisablehook, flags


@pytest.fixture(autouse=True)
def numpy_as_it_was():
    """Assert that every test leaves NumPy with the same objects, pointers and flags."""
    before = places_of_numpy()
    yield
    uninstall()
    assert places_of_numpy() == before
    assert not hasattr(cl.array.Array, "__matmul__")


# What is intercepted.


CALLS = {
    "operator": lambda a, b: a @ b,
    "matmul": np.matmul,
    "dot": np.dot,
    "method": lambda a, b: a.dot(b),
    "method with keyword": lambda a, b: np.ndarray.dot(a, b, out=None),
    "inner": lambda a, b: np.inner(a, b.T),
    "tensordot": lambda a, b: np.tensordot(a, b, 1),
    "multi_dot": lambda a, b: np.linalg.multi_dot([a, b]),
    "einsum": lambda a, b: np.einsum("ij,jk->ik", a, b, optimize=True),
    "keywords": lambda a, b: np.matmul(a, b, dtype=np.float32, casting="no", order="F"),
    "axes": lambda a, b: np.matmul(a.T, b, axes=[(1, 0), (0, 1), (0, 1)]),
    "C's number protocol": lambda a, b: __import__("operator").matmul(a, b),
    "in place": lambda a, b: np.matmul(a, b, out=np.full((30, 40), np.nan, np.float32)),
    "dot in place": lambda a, b: np.dot(a, b, np.full((30, 40), np.nan, np.float32)),
    "wider result": lambda a, b: np.matmul(a, b, out=np.empty((30, 40))),
    "narrower operand": lambda a, b: a.astype(np.float16) @ b,
    "list": lambda a, b: a.tolist() @ b if not NUMPY_2 else np.matmul(a, b),
}
if NUMPY_2:
    CALLS["linalg.matmul"] = lambda a, b: np.linalg.matmul(a, b)
    CALLS["linalg.tensordot"] = lambda a, b: np.linalg.tensordot(a, b, axes=1)
del CALLS["list"]  # NumPy makes float64 of it


@pytest.mark.parametrize("name", CALLS)
def test_products_are_offloaded(name, device):
    """Each NumPy function that multiplies in float32 runs on the device, with NumPy's result."""
    expected = CALLS[name](A, B)
    with offloading(1):
        found = CALLS[name](A, B)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, EXACT)


def test_powers_and_chains(device):
    """A matrix power or a chain runs on the device as several products."""
    square = integers(5, 5)
    with offloading():
        power, chain = np.linalg.matrix_power(square, 3), np.linalg.multi_dot([A, B, B.T])
        assert report().offloaded >= 4
    exact = np.linalg.matrix_power(square.astype(np.float64), 3)
    np.testing.assert_array_equal(power, exact)
    np.testing.assert_array_equal(chain, EXACT @ B.T)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (integers(3, 30, 20), integers(3, 20, 9)),
        (integers(2, 1, 30, 20), integers(5, 20, 9)),
        (integers(30, 20), integers(4, 20, 9)),
        (integers(4, 30, 20)[::-1, ::2, ::-1], integers(20, 9)),
        (integers(30, 40)[:, ::2], integers(9, 40)[::-1, 20:].T),
        (np.asfortranarray(integers(30, 20)), integers(20)),
        (integers(20), integers(20, 9)),
        (integers(20), integers(20)),
        (np.broadcast_to(integers(1, 20), (30, 20)), integers(20, 9)),
    ],
    ids=lambda x: "x".join(map(str, x.shape)),
)
def test_any_shape_and_strides(left, right, device):
    """Products of batches, broadcasts, vectors, reversed and strided views are right."""
    products = [np.matmul, lambda a, b: a @ b]
    if left.ndim < 3 and right.ndim < 3:
        products += [np.dot, lambda a, b: a.dot(b)]
    for product in products:
        expected = product(left.astype(np.float64), right.astype(np.float64))
        with offloading():
            found = product(left, right)
        assert type(found) is (np.float32 if not expected.ndim else np.ndarray)
        np.testing.assert_array_equal(found, expected)


def test_dot_of_stacks(device):
    """np.dot and np.inner of batches multiply all pairs of matrices, as NumPy's do."""
    x, y = integers(3, 6, 5), integers(2, 5, 4)
    with offloading(2):
        dot, inner = np.dot(x, y), np.inner(x, y.swapaxes(1, 2))
    np.testing.assert_array_equal(dot, np.dot(x.astype(float), y.astype(float)))
    np.testing.assert_array_equal(inner, dot)


def test_overlapping_results(device):
    """A product is right if `out` is an operand or a view of one."""
    for out in (lambda x: x, lambda x: x.T, lambda x: x[::-1]):
        square = integers(12, 12)
        expected = square.astype(np.float64) @ square.astype(np.float64).T
        with offloading():
            found = np.matmul(square, square.T, out=out(square))
        np.testing.assert_array_equal(found, expected)
    square = integers(12, 12)
    expected = square.astype(np.float64) @ B[:12, :12].astype(np.float64)
    with enabled(threshold=0):
        assert np.dot(square, np.ascontiguousarray(B[:12, :12]), out=square) is square
    np.testing.assert_array_equal(square, expected)


@pytest.mark.parametrize("n", [7, 130, 600])
def test_products_by_the_own_transpose_are_symmetric(n, device):
    """A product of a matrix by its own transpose is symmetric bit for bit, as in NumPy."""
    a = RANDOM.standard_normal((n, 70)).astype(np.float32)
    stack = RANDOM.standard_normal((3, 20, 15)).astype(np.float32)
    with offloading(6):
        for x in (a @ a.T, np.dot(a.T, a), a.dot(a.T), np.inner(a, a), np.matmul(a.T, a)):
            np.testing.assert_array_equal(x, x.T)
        x = stack @ stack.swapaxes(1, 2)
    np.testing.assert_array_equal(x, x.swapaxes(1, 2))
    wide = stack.astype(np.float64)
    exact, sizes = (y @ y.swapaxes(1, 2) for y in (wide, abs(wide)))
    assert (abs(x - exact) <= gamma(15 + 2) * sizes).all()


# Products that NumPy makes.


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.complex64, np.float16, bool, object])
def test_other_dtypes(dtype, device):
    """Products of other dtypes are NumPy's own, and none goes to the device."""
    a, b = A.astype(dtype), B.astype(dtype)
    plain = [a @ b, np.matmul(a, b), np.dot(a, b), a.dot(b), np.inner(a, b.T)]
    with offloading(0):
        for found, expected in zip(
            [a @ b, np.matmul(a, b), np.dot(a, b), a.dot(b), np.inner(a, b.T)], plain, strict=True
        ):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    assert report().stayed["dtype"] == 4


BAD = {
    "shapes": lambda: A @ A,
    "matmul's shapes": lambda: np.matmul(A, A),
    "dot's shapes": lambda: np.dot(A, A),
    "the method's shapes": lambda: A.dot(A),
    "inner's shapes": lambda: np.inner(A, B),
    "a scalar": lambda: A @ np.float32(3),
    "no dimension": lambda: A @ np.array(3, np.float32),
    "out's shape": lambda: np.matmul(A, B, out=np.empty((3, 3), np.float32)),
    "out's dtype": lambda: np.dot(A, B, out=np.empty((30, 40))),
    "out's order": lambda: np.dot(A, B, out=np.empty((30, 40), np.float32, "F")),
    "out's casting": lambda: np.matmul(A, B, out=np.empty((30, 40), np.int8)),
    "a read-only out": lambda: np.matmul(A, B, out=np.broadcast_to(A[0, 0], (30, 40))),
    "no argument": lambda: A.dot(),
    "an unknown argument": lambda: A.dot(B, outt=None),
    "too few arguments": lambda: np.dot(A),
    "where": lambda: np.matmul(A, B, where=True),
    "None": lambda: A @ None,
}


@pytest.mark.parametrize("name", BAD)
def test_errors(name, device):
    """A wrong call raises NumPy's exception with NumPy's message."""
    with pytest.raises(Exception) as plain:  # noqa: PT011 - whatever NumPy raises
        BAD[name]()
    with offloading(0), pytest.raises(type(plain.value)) as ours:
        BAD[name]()
    assert str(ours.value) == str(plain.value)


class Overriding:
    """An object that overrides products by NEP 13 and NEP 18."""

    def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
        return ufunc is np.matmul and "ufunc"

    def __array_function__(self, function, types, arguments, keywords):
        return function in (np.dot, np.inner, np.tensordot) and "function"


class Deferring:
    """An object to which NumPy leaves the operator by Python's own protocol."""

    __array_ufunc__ = None

    def __rmatmul__(self, other):
        return "reflected"

    def __matmul__(self, other):
        return "own"


class Plain(np.ndarray):
    pass


class Subclass(np.ndarray):
    def __rmatmul__(self, other):
        return "subclass"


def test_overriding(device):
    """Objects that override products are asked, with NumPy's functions, as in plain NumPy."""
    with offloading(0):
        assert A @ Overriding() == np.matmul(A, Overriding()) == "ufunc"
        assert np.dot(A, Overriding()) == np.inner(Overriding(), A) == "function"
        assert np.tensordot(A, Overriding()) == "function"
        assert A @ Deferring() == "reflected"
        assert Deferring() @ A == "own"
        assert A @ B.view(Subclass) == "subclass"
        with pytest.raises(TypeError):
            np.matmul(A, Deferring())


def test_subclasses(device):
    """Products of array subclasses have the types, masks and values of plain NumPy."""
    matrix, masked = A.view(np.matrix), np.ma.masked_equal(A, 3)

    def products():
        return matrix @ B, matrix.dot(B), np.ma.dot(masked, B), np.matmul(A.view(Plain), B)

    plain = products()
    with offloading():
        found = products()

        class Late(np.ndarray):  # CPython fills in its C slots while ndarray's are patched
            pass

        late = A.view(Late) @ B
    for ours, theirs in zip((*found, late), (*plain, A.view(Late) @ B), strict=True):
        assert type(ours) is type(theirs)
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
        np.testing.assert_array_equal(np.ma.getmask(ours), np.ma.getmask(theirs))


def test_small_products_stay(device):
    """A product below the threshold is NumPy's own, bit for bit, and is counted."""
    a, b = (RANDOM.standard_normal((50, 50)).astype(np.float32) for _ in range(2))
    plain = a @ b
    with enabled(threshold=50**3 + 1):
        for found in (a @ b, np.matmul(a, b)):
            np.testing.assert_array_equal(found, plain)
        np.dot(a, b), a.dot(b), np.inner(a, b)
    assert report().offloaded == 0
    assert report().stayed == {"size": 5}
    assert "0 products on the device; on the host: 5 (size)" in str(report())


def test_aliased_and_empty_products(device):
    """Empty products are zeros and do not go to the device."""
    with offloading(0):
        for m, k, n in ((0, 5, 3), (4, 0, 3), (4, 5, 0), (0, 0, 0)):
            x, y = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
            for found in (x @ y, np.matmul(x, y), np.dot(x, y), x.dot(y)):
                np.testing.assert_array_equal(found, np.zeros((m, n)))


# Floating-point errors.


def overflowing():
    return np.full((40, 40), 3e38, np.float32), np.full((40, 40), 2, np.float32)


def invalid():
    x = integers(40, 40)
    x[3, 5] = np.inf
    return x, np.zeros((40, 40), np.float32)


def harmless():
    x = integers(40, 40)
    x[3, 5], x[4, 7] = np.inf, np.nan
    return x, integers(40, 40)


PRODUCTS = {"matmul": np.matmul, "operator": lambda a, b: a @ b, "dot": np.dot}


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("operands", [overflowing, invalid, harmless])
def test_floating_point_warnings(product, operands, device):
    """A product on the device gives the same floating-point warnings as NumPy's."""
    a, b = operands()

    def warned():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            PRODUCTS[product](a, b)
        return {str(warning.message) for warning in caught}

    expected = warned()
    with offloading(1):
        assert warned() == expected


def test_the_error_state(device):
    """np.errstate works for products on the device; with underflow reported NumPy multiplies."""
    a, b = overflowing()
    with offloading(3):
        with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
            a @ b
        calls = []
        with np.errstate(over="call", call=lambda *error: calls.append(error)):
            np.matmul(a, b)
        assert len(calls) == 1
        with np.errstate(all="ignore"):
            assert np.isinf(a @ b).all()
        with np.errstate(under="warn"):
            integers(20, 20) @ integers(20, 20)
    assert report().stayed == {hooks.UNDERFLOW: 1}


# Exceptions during a product.


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_failing_device(product, device, monkeypatch, caplog):
    """After a failure on the device NumPy multiplies, with one warning for all later products."""

    def fail(*arguments, **keywords):
        raise cl.RuntimeError("planted")

    monkeypatch.setattr(hooks, "multiply", fail)
    monkeypatch.setattr(hooks, "contracted", fail)
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(PRODUCTS[product](A, B), EXACT)
    assert len(caplog.records) == 1
    assert report().stayed == {routing.FAILED: 3}


def test_a_failing_device_that_is_merely_full(device, monkeypatch):
    """A device that was out of memory makes the next product."""
    multiply = hooks.multiply

    def fail(*arguments, **keywords):
        monkeypatch.setattr(hooks, "multiply", multiply)
        raise MemoryError

    monkeypatch.setattr(hooks, "multiply", fail)
    with offloading(1):
        np.testing.assert_array_equal(A @ B, EXACT)
        np.testing.assert_array_equal(A @ B, EXACT)


class PlantedError(Exception):
    pass


def test_an_interruption_of_a_loop_is_raised(device, monkeypatch):
    """An interruption of np.matmul into `out` is raised after the result is complete."""
    out = np.zeros((30, 40), np.float32)

    def interrupt(*arguments, **keywords):
        raise PlantedError

    monkeypatch.setattr(hooks, "multiply", interrupt)
    with enabled(threshold=0):
        with pytest.raises(PlantedError):  # noqa: PT012 - soon after it
            np.matmul(A, B, out=out)
            for _ in range(5000):
                time.sleep(1e-3)
        np.testing.assert_array_equal(out, EXACT)
        monkeypatch.undo()
        np.testing.assert_array_equal(A @ B, EXACT)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals by timer are POSIX's")
@pytest.mark.filterwarnings("default")  # a lost exception is printed and is no warning
def test_no_signal_is_lost_in_a_loop(device):
    """A signal handler's exception always reaches the program, and all results are complete."""
    a, b = integers(8, 8), integers(8, 8)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    raised, handled = 0, []

    def handler(number, frame):
        handled.append(number)
        raise PlantedError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with enabled(threshold=10**9):
            for i in range(100):
                deadline = time.monotonic() + 5
                out = np.empty((8, 8), np.float32)
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + i % 30))
                    while time.monotonic() < deadline:
                        for _ in range(50):
                            out[:] = np.nan
                            np.matmul(a, b, out=out)
                            assert (out == exact).all()
                        time.sleep(2e-3)
                except PlantedError:
                    raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert raised == len(handled) == 100


# Installing and uninstalling.


def test_blocks_nest(device):
    """The innermost enabled block is in force, and outside of all blocks `install` is."""
    install(threshold=10**12)
    with contextlib.suppress(PlantedError), enabled(threshold=0):
        A @ B
        with enabled(threshold=10**12):
            A @ B
        A @ B
        raise PlantedError
    A @ B
    assert report().offloaded == 2
    assert report().stayed == {"size": 2}
    uninstall()
    uninstall()
    A @ B
    assert report().stayed == {"size": 2}


def test_a_decorator(device):
    """A decorated function is accelerated, also in recursive calls."""

    @enabled(threshold=0)
    def product(depth):
        return product(depth - 1) if depth else A @ B

    np.testing.assert_array_equal(product(3), EXACT)
    np.testing.assert_array_equal(product(0), EXACT)
    assert report().offloaded == 1  # since the outermost call


def test_a_device_can_be_named(device):
    """enabled and install take a device and a threshold, and refuse wrong ones."""
    with enabled(threshold=0, device=device):
        A @ B
    assert report().device == device.name
    with pytest.raises(ValueError, match="names no OpenCL device"):
        install(device="no such")
    for threshold in (-1, "many", 1.5):
        with pytest.raises(ValueError, match="not a whole number"):
            install(threshold=threshold)
    with enabled(threshold=1e6):  # a whole float is allowed
        pass


def test_threads(device):
    """Products are right if many threads multiply and enter blocks at once."""
    failures = []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(15):
            x, y = (random.integers(-9, 9, (20, 20)).astype(np.float32) for _ in range(2))
            with enabled(threshold=0):
                results = x @ y, np.dot(x, y), np.matmul(x, y), x.dot(y)
            if any((z != x.astype(float) @ y.astype(float)).any() for z in results):
                failures.append(seed)

    with offloading():
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_profile_counts_everything(device):
    """A profile counts and times small products and other dtypes, too, by function."""
    with enabled(threshold=10**9, profile=True):
        A @ B, np.dot(A, B), np.inner(A, A), A.dot(B)
        A.astype(float) @ B.astype(float), np.dot(np.eye(3), np.eye(3)), np.arange(3) @ np.arange(3)
    counted = {(row.function, row.reason): row.calls for row in report().rows}
    assert counted[("matmul", "dtype")] == 2
    assert counted[("dot", "dtype")] == 1
    for name in ("matmul", "dot", "inner", "ndarray.dot"):
        assert counted[(name, "size")] == 1
    assert all(row.seconds is not None for row in report().rows)


def test_device_arrays_stay_on_the_device(device):
    """The operator ``@`` of pyopencl's arrays returns a device array; host operands raise."""
    queue = device.queue
    x, w1, w2 = (cl.array.to_device(queue, z) for z in (A, B, np.ascontiguousarray(B.T)))
    with enabled():
        result = x @ w1 @ w2
        with pytest.raises(TypeError, match="host and device operands are mixed"):
            x @ B
    assert isinstance(result, cl.array.Array)
    np.testing.assert_array_equal(result.get(), EXACT @ B.T)


# Unsupported Pythons and NumPys, no device, and forked processes.


def test_no_device(monkeypatch, caplog):
    """Without a device, NumPy makes all products, with one warning."""

    def none():
        raise RuntimeError("no OpenCL device was found")

    monkeypatch.setattr(routing, "get_device", none)
    with caplog.at_level(logging.WARNING, "clgemm"), enabled(threshold=0):
        for _ in range(3):
            np.testing.assert_array_equal(A @ B, EXACT)
            np.testing.assert_array_equal(np.dot(A, B), EXACT)
    assert [record.message for record in caplog.records] == [
        "NumPy is not accelerated: no OpenCL device was found"
    ]
    assert report().stayed == {routing.NO_DEVICE: 6}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"sys.implementation": type("Other", (), {"name": "pypy"})}, "64-bit CPython"),
        ({"sysconfig.get_config_var": lambda _: 1}, "free-threaded"),
        ({"UFUNC_COUNTS_OFFSET": 24}, "not laid out as expected"),
        ({"UFUNC_LOOPS_OFFSET": 40, "UFUNC_DATA_OFFSET": 32}, "an unexpected loop"),
        ({"MATMUL": "(m,n),(n,p)->(m,p)"}, "not laid out as expected"),
        ({"TYPE_FLAGS_OFFSET": 176}, "does not lay out types as expected"),
    ],
)
def test_unknown_pythons_and_numpys_are_refused(broken, message, monkeypatch):
    """An unsupported Python or NumPy is refused before anything is patched."""
    for name, value in broken.items():
        owner, _, attribute = name.rpartition(".")
        monkeypatch.setattr(getattr(places, owner) if owner else places, attribute, value)
    with pytest.raises(RuntimeError, match=message):
        session._Places()
    np.testing.assert_array_equal(A @ B, EXACT)


def test_a_function_of_another_make_is_refused():
    """A function that does not store its implementation as NumPy's do is refused."""
    with pytest.raises(RuntimeError, match="does not store its implementation"):
        places.Implementation(len)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_numpy(device):
    """A forked child has plain NumPy, even if another thread held locks, and sgemm says why."""
    locks = [session._state.lock, clgemm.runtime.workspace.workspace(device.queue).lock]
    held, done = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            done.wait(20)

    before = places_of_numpy()
    with enabled(threshold=0):
        A @ B
        threading.Thread(target=hold).start()
        held.wait(20)
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                assert places_of_numpy() == before
                assert (A @ B == EXACT).all()
                with enabled(threshold=0):
                    assert (A @ B == EXACT).all()
                    assert (np.dot(A, B) == EXACT).all()
                assert report().stayed == {routing.NO_DEVICE: 2}
                with pytest.raises(RuntimeError, match="forked"):
                    clgemm.sgemm(1.0, A, B)
                code = 0
            os._exit(code)
        deadline = time.monotonic() + 20
        ended, status = 0, 0
        while not ended and time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        done.set()
    assert ended, "the child hangs"
    assert os.waitstatus_to_exitcode(status) == 0
    np.testing.assert_array_equal(A @ B, EXACT)


# Routing.


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (Work(600, 600, 600), "block"),
        (Work(600, 600, 600, symmetric=True), "symmetric"),
        (Work(600, 600, 100, symmetric=True), None),
        (Work(600, 600, 200), "shallow-128"),
        (Work(600, 40, 600), "narrow-32"),
        (Work(40, 600, 600), "narrow-32"),
        (Work(130, 200, 600, 9), "stack-128"),
        (Work(600, 600, 600, 9), "block"),
        (Work(10_000, 31, 10_000), None),
        (Work(1, 10_000, 10_000), None),
    ],
)
def test_kinds_of_products(work, kind):
    """The kind of a product depends on its shortest side."""
    assert kind_of(work) == kind


@pytest.fixture
def measured(device, monkeypatch):
    """Set measured crossovers: only the kind "block" pays, from 600^3 on."""
    found = dict.fromkeys(measure_kinds())
    found["block"] = 600**3
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(routing, "measured", lambda _: Measured(found, "2026-11-21"))
    monkeypatch.setattr(routing, "OPENING_SECONDS", 0.0)


def measure_kinds():
    return ["block", "symmetric"] + [
        f"{name}-{band}" for name in ("narrow", "shallow", "stack") for band in (32, 128)
    ]


def test_measured_crossovers_are_used(measured):
    """Products go to the device from the measured crossover of their kind on."""
    x, y = np.ones((600, 600), np.float32), np.ones((599, 599), np.float32)
    with enabled():
        x @ x, np.dot(x, x)
        y @ y, np.dot(x, x.T), x[:, :500] @ x[:500], x[:, :20] @ x[:20], y.dot(y)
    assert report().offloaded == 2
    assert report().stayed == {"size": 5}


def test_a_device_is_opened_and_measured_once_it_pays(device, monkeypatch):
    """A device is opened and measured only after enough time in large products."""
    found, asked = dict.fromkeys(measure_kinds(), 1), []
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(routing, "measured", lambda _: None)
    monkeypatch.setattr(routing, "measure", lambda *given: asked.append(given) or found)
    monkeypatch.setattr(routing, "OPENING_SECONDS", 0.5)
    monkeypatch.setattr(routing, "MEASURING_SECONDS", 1.0)
    router = routing.Router(routing.Settings(), np.matmul)
    for reason in (routing.UNOPENED, routing.UNMEASURED):
        assert router.choose(Work(200, 200, 200)) == reason
        router.stayed(reason, 0.7)
    assert router.choose(Work(200, 200, 200)) is clgemm.get_device()
    assert len(asked) == 1
    x = np.ones((200, 200), np.float32)
    with enabled():
        x @ x
    assert report().stayed == {routing.UNOPENED: 1}


def test_measuring(device, monkeypatch, tmp_path):
    """measure finds a crossover or None for each kind of product, stores them and applies them."""
    from clgemm.accel import crossover

    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CLGEMM_THRESHOLD")
    monkeypatch.setattr(crossover, "HOST_SECONDS", 0.0)
    monkeypatch.setattr(crossover, "TURNS", 1)
    monkeypatch.setattr(crossover, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(crossovers, "LEAST_WORK", 40**3)
    monkeypatch.setattr(crossovers, "BANDS", (8, 16, 40))
    monkeypatch.setattr(crossover, "MARGIN", 1e9)  # the device wins whatever it takes
    crossovers.forget()
    assert crossovers.measured(device) is None
    found = measure(device, session.host_matmul())
    assert set(found) == set(crossovers.kinds())
    assert all(least and least >= 40**3 / 4 for least in found.values())
    assert crossovers.measured(device).least == found
    assert selection.smallest_crossover() == min(found.values())
    assert selection.host_is_faster(7, 7, 7, 1)
    assert not selection.host_is_faster(64, 64, 64, 1)
    monkeypatch.setattr(crossover, "MARGIN", 0.0)
    monkeypatch.setattr(selection, "SMALLEST_CROSSOVER", 1000)
    x = np.ones((64, 64), np.float32)
    clgemm.dot(x, x)
    assert set(measure(device, session.host_matmul()).values()) == {None}
    assert selection.smallest_crossover() == selection.SMALLEST_CROSSOVER
    assert selection.host_is_faster(4096, 4096, 4096, 1)
    with monkeypatch.context() as patch:
        patch.setattr(products, "multiply", lambda *_, **__: pytest.fail("went to the device"))
        patch.setattr(call_cache, "execute", lambda *_: pytest.fail("was repeated from the cache"))
        clgemm.dot(x, x)
    crossovers.forget()
