"""Tests of accelerated NumPy: its products, its errors, and its state after uninstall."""

from __future__ import annotations

import pickle
import signal
import time

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from accelerated import (
    EXACT,
    OTHER,
    RANDOM,
    SQUARE,
    A,
    B,
    PlantedError,
    expect,
    integers,
    offloading,
)

import clgemm
from clgemm import numpy_rules
from clgemm.accel import enabled, report
from clgemm.core.settings import named
from clgemm.hardware.device import identity
from clgemm.records import verdicts
from clgemm.side import counts, preparation

NUMPY_2 = np.lib.NumpyVersion(np.__version__) >= "2.0.0"


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
}
if NUMPY_2:
    CALLS["linalg.matmul"] = lambda a, b: np.linalg.matmul(a, b)
    CALLS["linalg.tensordot"] = lambda a, b: np.linalg.tensordot(a, b, axes=1)


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
        for _ in range(3):  # once planned, too
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
    "no array": lambda: np.ndarray.dot(),
    "another type": lambda: np.ndarray.dot(3),
    "too many operands": lambda: A.dot(A, A, A),
    "an unknown keyword alone": lambda: np.ndarray.dot(A, c=3),
    "the operator of another type": lambda: np.ndarray.__matmul__(3, A),
    "the operator without an operand": lambda: A.__matmul__(),
    "the operator of text": lambda: A @ "text",
    "matmul without operands": lambda: np.matmul(),
    "matmul's keyword": lambda: np.matmul(A, B, unknown=1),
    "inner's keyword": lambda: np.inner(a=A, b=A),
    "a text as dot's result": lambda: np.dot(A, B, out="text"),
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


def test_small_products_into_an_array_stay(device):
    """They take a short way to NumPy, which sees to overlap, and to errors; float32 is counted."""
    a, b = integers(5, 5), integers(5, 5)
    plain, out, wide = a @ b, np.zeros((5, 5), np.float32), np.zeros((5, 5))
    with enabled(threshold=5**3 + 1):
        assert np.matmul(a, b, out=out) is out
        assert np.matmul(a.astype(float), b.astype(float), out=wide) is wide
        assert np.matmul(a, b, out=b) is b
        with pytest.raises(ValueError, match="mismatch"):
            np.matmul(a, b[1:], out=out)
        assert report().stayed["size"] == 3
        assert report().offloaded == 0
    for found in (out, wide, b):
        np.testing.assert_array_equal(found, plain)


def test_aliased_and_empty_products(device):
    """Empty products are zeros and do not go to the device."""
    with offloading(0):
        for m, k, n in ((0, 5, 3), (4, 0, 3), (4, 5, 0), (0, 0, 0)):
            x, y = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
            for found in (x @ y, np.matmul(x, y), np.dot(x, y), x.dot(y)):
                np.testing.assert_array_equal(found, np.zeros((m, n)))


# Products that are repeated.

AGAIN = {
    "matmul": lambda a, b: np.matmul(a, b),
    "operator": lambda a, b: a.T @ b,
    "stack": lambda a, b: np.stack([a, a]) @ b,
    "a vector": lambda a, b: a @ b[:, 0],
    "dot": lambda a, b: np.dot(a, b),
    "dot of more axes": lambda a, b: np.dot(np.stack([a, a]), np.stack([b, b])),
    "method": lambda a, b: a[::-1].dot(b[:, ::2]),
    "out": lambda a, b: np.matmul(a, b, out=np.empty((33, 33), np.float32)),
    "dot with out": lambda a, b: np.dot(a, b, out=np.empty((33, 33), np.float32)),
}


@pytest.mark.parametrize("name", AGAIN)
def test_what_is_repeated_is_planned_once(name, device, planned):
    """A repeated product is planned once, and each is that of the operands at hand."""
    product = AGAIN[name]
    for _ in range(3):
        a, b = integers(33, 33), integers(33, 33)
        expected = product(a, b)
        with clgemm.device(device), offloading(1):
            found = product(a, b)
        np.testing.assert_array_equal(found, expected)
    assert len(planned) == 1


def test_another_precision_is_another_product(device, planned):
    """A product of another precision is planned anew."""
    a = integers(33, 33)
    with clgemm.device(device), offloading():
        for precision in ("strict", "float32", "strict", "float32"):
            with clgemm.precision(precision):
                np.testing.assert_array_equal(a @ a, a.astype(np.int64) @ a.astype(np.int64))
    assert len(planned) == 2


def test_a_wrong_precision_of_the_environment_leaves_products_to_numpy(device, monkeypatch):
    """If the environment's precision is wrong, NumPy makes the product."""
    a = integers(33, 33)
    with clgemm.device(device), offloading(1):
        assert (a @ a).any()
        monkeypatch.setenv("CLGEMM_PRECISION", "good")
        np.testing.assert_array_equal(a @ a, a.astype(np.int64) @ a.astype(np.int64))


# Products whose side measured times decide.


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ((0, 5), (5, 0), "size"),
        ((3, 0), (0, 4), "size"),
        ((100, 100), (100, 100), "size"),
        ((110, 110), (110, 110), counts.UNKNOWN),
        ((10, 8, 8), (10, 8, 8), "size"),
        ((4000, 8, 8), (4000, 8, 8), counts.UNKNOWN),
        ((5000,), (5000, 2000), counts.UNKNOWN),
        ((600, 1), (1, 50), "size"),
        ((600, 1), (1, 500), counts.UNKNOWN),
    ],
)
def test_products_that_are_too_small_are_not_compared(left, right, reason, ready):
    """A product that takes NumPy less than any device's call is counted and not compared."""
    a, b = integers(*left), integers(*right)
    with enabled():
        np.testing.assert_array_equal(np.matmul(a, b), np.matmul(a.astype("d"), b.astype("d")))
        assert report().stayed.get(reason) == 1
        compared = [e for e in preparation.entries.values() if e.reason != "size"]
        assert len(compared) == (reason != "size")


@pytest.mark.parametrize("name", ["dot", "inner", "method"])
def test_products_with_a_scalar_are_not_compared(name, ready):
    """A product of a scalar and an array is NumPy's, whatever the size."""
    large = integers(1200, 1200)
    product = {"dot": np.dot, "inner": np.inner, "method": lambda a, b: a.dot(b)}[name]
    scalar = np.array(3, np.float32)
    with enabled():
        np.testing.assert_array_equal(product(scalar, large), 3 * large)
        np.testing.assert_array_equal(product(large, scalar), 3 * large)
    assert not preparation.entries


LARGE = {
    "operator": lambda a, b: a @ b,
    "matmul": np.matmul,
    "dot": np.dot,
    "method": lambda a, b: a.dot(b),
    "inner": np.inner,
    "batch": lambda a, b: np.matmul(np.stack([a, a]), b),
    "into an array": lambda a, b: np.matmul(a, b, out=np.empty((128, 128), np.float32)),
}
LEFT, RIGHT = integers(128, 128), integers(128, 128)


@pytest.mark.parametrize("name", LARGE)
def test_a_product_goes_to_the_side_that_takes_less_time(name, ready):
    """NumPy makes a product until times of both sides are known, and then the faster one does."""
    product, expected = LARGE[name], LARGE[name](LEFT.astype(float), RIGHT.astype(float))
    with enabled(threshold=0):
        product(LEFT, RIGHT)  # builds
    with enabled():
        np.testing.assert_array_equal(product(LEFT, RIGHT), expected)
        assert report().stayed == {counts.UNKNOWN: 1}
        expect(host_us=1e6, device_us=10.0)
        np.testing.assert_array_equal(product(LEFT, RIGHT), expected)
        assert report().offloaded == 1
        assert report().offloaded_bytes == 4 * 128**2 * (5 if name == "batch" else 3)
        expect(host_us=10.0, device_us=1e6)
        np.testing.assert_array_equal(product(LEFT, RIGHT), expected)
        assert report().stayed == {counts.UNKNOWN: 1, counts.HOST_FASTER: 1}
        assert report().offloaded == 1


@pytest.mark.parametrize("is_long", [False, True], ids=["short", "long"])
def test_a_product_does_not_wait_for_kernels(ready, monkeypatch, is_long):
    """NumPy makes a product for which kernels are missing, and a child process is asked for it.

    It is asked once, also where the first product has taken so long that it was to be asked for.
    """
    monkeypatch.setattr(verdicts, "are_built", lambda _: False)
    if is_long:
        for name, value in (("START_US", 0.0), ("ENOUGH_US", 0.0), ("WORK_SHARE", 1e9)):
            monkeypatch.setattr(preparation, name, value)
    a, b = integers(131, 149), integers(149, 131)
    expected = a.astype(float) @ b
    with enabled():
        a @ b
        expect(host_us=1e6, device_us=10.0)
        del ready[:]
        np.testing.assert_array_equal(a @ b, expected)
        assert report().stayed == {counts.UNKNOWN: 1, counts.BEING_PREPARED: 1}
    (asked,) = ready
    assert asked["a"] == ((131, 149), (149, 1))
    assert asked["b"] == ((149, 131), (131, 1))
    assert tuple(asked["shape"]) == (131, 131)


def test_kernels_are_built_for_the_device_of_the_settings(ready, device, monkeypatch):
    """The sides are compared for the device that `install` was given, not for the default one."""
    monkeypatch.setattr(verdicts, "are_built", lambda _: False)
    monkeypatch.setattr(named, "by_process", None)
    a, b = integers(137, 151), integers(151, 137)
    with enabled(device=device):
        a @ b
        expect(host_us=1e6, device_us=10.0)
        del ready[:]
        a @ b
    assert [asked["device"] for asked in ready] == [identity(device)]


def test_times_of_the_default_device_decide_nothing_for_that_of_the_settings(
    ready, device, monkeypatch
):
    """Each has its own entry for a product."""
    monkeypatch.setattr(named, "by_process", None)
    with enabled():
        LEFT @ RIGHT
        entry = expect(host_us=10.0, device_us=1e6)
    with enabled(device=device):
        LEFT @ RIGHT
        assert report().stayed == {counts.UNKNOWN: 1}
    assert entry.calls == 1


@pytest.mark.parametrize(
    ("setting", "offloaded"), [("CLGEMM_SIDE=host", 0), ("CLGEMM_SIDE=device", 2)]
)
def test_a_rule_that_is_set_later_holds_for_known_products(setting, offloaded, ready, monkeypatch):
    """Once the environment sets the side, measured times decide nothing any more."""
    with enabled(threshold=0):
        LEFT @ RIGHT
    with enabled():
        LEFT @ RIGHT
        entry = expect(*((1e6, 10.0) if offloaded == 0 else (10.0, 1e6)))
        monkeypatch.setenv(*setting.split("="))
        LEFT @ RIGHT, LEFT @ RIGHT
        assert report().offloaded == offloaded
        assert entry.calls == 1


# Exceptions during a product.


def test_an_interruption_of_a_loop_is_raised(device, monkeypatch):
    """An interruption of np.matmul into `out` is raised after the result is complete."""
    out = np.zeros((30, 40), np.float32)

    def interrupt(*arguments, **keywords):
        raise PlantedError

    monkeypatch.setattr(numpy_rules, "_multiply", interrupt)
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


def test_an_out_is_taken_as_numpy_takes_it(device, monkeypatch):
    """By position, too; what NumPy refuses is refused on either side."""
    a, c = integers(64, 64), np.zeros((64, 64), np.float32)
    exact = a.astype(float) @ a.astype(float)
    unaligned = np.zeros(4 * 64 * 64 + 1, np.uint8)[1:].view(np.float32).reshape(64, 64)
    with offloading(calls=2):
        np.testing.assert_array_equal(a.dot(a, c), exact)
        a.dot(a, out=c)
        with pytest.raises(TypeError):
            np.matmul(a, a, (c,))
        for call in (lambda: np.dot(a, a, unaligned), lambda: a.dot(a, unaligned)):
            with pytest.raises(ValueError, match="output array is not acceptable"):
                call()


# The layout of results.


@pytest.mark.parametrize("order", ["K", "A", "C", "F"])
def test_results_are_laid_out_as_numpys(order, device):
    """Results have NumPy's strides and own their data, for operands of any layout."""
    for _ in range(50):
        batch = tuple(RANDOM.integers(2, 4, RANDOM.integers(0, 4)))
        operands = []
        for core in ((4, 5), (5, 6)):
            axes = RANDOM.permutation(len(batch) + 2)
            shape = (*batch, *core)
            x = RANDOM.integers(1, 9, [shape[i] for i in axes]).astype(np.float32)
            operands.append(x.transpose(np.argsort(axes)))
        plain = np.matmul(*operands, order=order)
        with enabled(threshold=0):
            found = np.matmul(*operands, order=order)
            assert report().offloaded == 1
        np.testing.assert_array_equal(found, plain)
        assert found.strides == plain.strides
        assert found.flags.owndata


STACK = RANDOM.integers(1, 9, (3, 5, 4)).astype(np.float32)


OWNED = {
    "operator": ("accel", lambda: SQUARE @ OTHER),
    "stacks": ("accel", lambda: np.matmul(STACK, STACK[0].T)),
    "np.dot": ("accel", lambda: np.dot(SQUARE, OTHER)),
    "np.dot of a vector": ("accel", lambda: np.dot(SQUARE, OTHER[0])),
    "np.dot of stacks": ("accel", lambda: np.dot(STACK, STACK[0].T)),
    "ndarray.dot": ("accel", lambda: SQUARE.dot(OTHER)),
    "np.inner": ("accel", lambda: np.inner(SQUARE, OTHER)),
    "np.linalg.multi_dot": ("accel", lambda: np.linalg.multi_dot([SQUARE, OTHER, SQUARE])),
    "np.tensordot": ("accel", lambda: np.tensordot(STACK, STACK[0].T, 1)),
    "dot": ("clgemm", lambda: clgemm.dot(SQUARE, OTHER)),
    "inner": ("clgemm", lambda: clgemm.inner(SQUARE, OTHER)),
    "matmul": ("clgemm", lambda: clgemm.matmul(STACK, STACK[0].T)),
    "multi_dot": ("clgemm", lambda: clgemm.multi_dot([SQUARE, OTHER, SQUARE])),
    "tensordot": ("clgemm", lambda: clgemm.tensordot(STACK, STACK[0].T, 1)),
}


@pytest.mark.parametrize("name", OWNED)
def test_results_own_their_data(name, device):
    """Results own their data where NumPy's do, so that they can be resized."""
    side, call = OWNED[name]
    plain = call()
    for _ in range(2):  # the second call is from the call cache
        if side == "accel":
            with enabled(threshold=0):
                found = call()
            assert found.flags.owndata == plain.flags.owndata
        else:
            found = call()
            assert found.flags.owndata == ("tensordot" not in name)
        if found.flags.owndata:
            found.resize((found.size + 1,), refcheck=False)
            assert found[-1] == 0


# Arrays from other processes.


FEW = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    "product",
    [np.dot, np.inner, np.matmul, np.tensordot, lambda a, b: a.dot(b), lambda a, b: a @ b],
    ids=["dot", "inner", "matmul", "tensordot", "ndarray.dot", "operator"],
)
@pytest.mark.parametrize("copied", ["both", "first", "second"])
def test_an_array_that_was_pickled_is_float32(product, copied, device):
    """Pickled arrays have a dtype object of their own, and their products run on the device."""
    a, b = FEW, (FEW if product is np.inner else FEW.T)
    axes = {"axes": 1} if product is np.tensordot else {}
    expected = product(a, b, **axes)
    if copied != "second":
        a = pickle.loads(pickle.dumps(a))
        assert a.dtype is not FEW.dtype
    if copied != "first":
        b = pickle.loads(pickle.dumps(b))
    with enabled(threshold=0, device=device):
        found = product(a, b, **axes)
    assert report().offloaded == 1
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("product", [np.dot, np.matmul, lambda a, b: a @ b])
def test_a_double_array_that_was_pickled_is_counted(product, device):
    """A product of pickled float64 arrays is counted on the host, for its dtype."""
    a = pickle.loads(pickle.dumps(FEW.astype(np.float64)))
    with enabled(threshold=0, device=device):
        product(a, FEW.T)
        product(a, a.T)
    assert report().stayed == {"dtype": 2}


def test_the_report_tells_the_size_of_what_was_offloaded(device):
    """The report counts the bytes of offloaded operands and results, anew each time."""
    stack = np.ones((5, 4, 3), np.float32)
    with enabled(threshold=0, device=device):
        np.dot(FEW, FEW.T)
        FEW.astype("d") @ FEW.T
    assert report().offloaded_bytes == 4 * (12 + 12 + 9)
    with enabled(threshold=0, device=device):
        np.matmul(FEW, stack)
    assert report().offloaded_bytes == 4 * (12 + 60 + 45)
