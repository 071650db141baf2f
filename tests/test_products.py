"""Tests of NumPy's products against NumPy itself, on every device."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import buffers, integers

import clgemm
from clgemm import products
from clgemm.core.threads import NestedCallError, non_reentrant
from clgemm.transfer import call_cache
from clgemm.transfer import multiply as transfer_multiply

RNG = np.random.default_rng(2014)
NUMPY = {
    "dot": np.dot,
    "inner": np.inner,
    "matmul": np.matmul,
    "multi_dot": lambda *x, **keywords: np.linalg.multi_dot(x, **keywords),
    "tensordot": np.tensordot,
}
OURS = {name: getattr(clgemm, name) for name in ("dot", "inner", "matmul", "tensordot")}
OURS["multi_dot"] = lambda *x, **keywords: clgemm.multi_dot(x, **keywords)
NESTED = {
    "dot": lambda x: clgemm.dot(x, x),
    "inner": lambda x: clgemm.inner(x, x.T),
    "matmul": lambda x: clgemm.matmul(x, x),
    "tensordot": lambda x: clgemm.tensordot(x, x, 1),
    "multi_dot": lambda x: clgemm.multi_dot([x, x]),
}


@pytest.fixture
def launches(monkeypatch):
    """Return the list of products that reach the device."""
    seen, multiply = [], transfer_multiply.multiply

    def counted(*arguments, **keywords):
        seen.append(arguments)
        return multiply(*arguments, **keywords)

    monkeypatch.setattr(transfer_multiply, "multiply", counted)
    monkeypatch.setattr(call_cache, "_calls", {})  # repeated calls would not be seen
    return seen


CASES = [
    ("dot", (3, 4), (4, 5), {}),
    ("dot", (4,), (4,), {}),
    ("dot", (4,), (4, 5), {}),
    ("dot", (3, 4), (4,), {}),
    ("dot", (2, 3, 4), (4,), {}),
    ("dot", (2, 3, 4), (4, 5), {}),
    ("dot", (4,), (2, 4, 5), {}),
    ("dot", (2, 3, 4), (6, 4, 5), {}),
    ("dot", (5, 2, 3, 4), (7, 6, 4, 5), {}),
    ("dot", (3, 0), (0, 5), {}),
    ("dot", (0, 4), (4, 5), {}),
    ("dot", (0,), (0,), {}),
    ("dot", (70, 80), (80, 90), {}),
    ("inner", (3, 4), (5, 4), {}),
    ("inner", (4,), (4,), {}),
    ("inner", (4,), (5, 4), {}),
    ("inner", (3, 4), (4,), {}),
    ("inner", (2, 3, 4), (6, 5, 4), {}),
    ("inner", (2, 3, 0), (6, 5, 0), {}),
    ("inner", (70, 80), (90, 80), {}),
    ("matmul", (3, 4), (4, 5), {}),
    ("matmul", (4,), (4,), {}),
    ("matmul", (4,), (4, 5), {}),
    ("matmul", (3, 4), (4,), {}),
    ("matmul", (2, 3, 4), (4, 5), {}),
    ("matmul", (2, 3, 4), (4,), {}),
    ("matmul", (4,), (2, 4, 5), {}),
    ("matmul", (2, 1, 3, 4), (6, 4, 5), {}),
    ("matmul", (5, 2, 3, 4), (5, 1, 4, 5), {}),
    ("matmul", (2, 1, 2, 1, 3, 4), (1, 3, 1, 3, 4, 5), {}),
    ("matmul", (2, 1, 2, 1, 2, 1, 3, 4), (1, 3, 1, 3, 1, 2, 4, 5), {}),  # six nested loops
    ("matmul", (2, 3, 40, 50), (2, 3, 50, 60), {}),
    ("matmul", (2, 1, 40, 50), (3, 50, 60), {}),
    ("matmul", (3, 40, 50), (50, 60), {}),
    ("matmul", (0, 3, 4), (4, 5), {}),
    ("matmul", (2, 3, 0), (2, 0, 5), {}),
    ("tensordot", (3, 4, 5), (4, 5, 6), {}),
    ("tensordot", (3, 4, 5), (5, 4, 6), {"axes": ((1, 2), (1, 0))}),
    ("tensordot", (3, 4, 5), (6, 5, 4), {"axes": ((-1, 1), (1, -1))}),
    ("tensordot", (3, 4), (4, 5), {"axes": 1}),
    ("tensordot", (3, 4), (4, 5), {"axes": (1, 0)}),
    ("tensordot", (3,), (4,), {"axes": 0}),
    ("tensordot", (3, 4), (3, 4), {}),
    ("tensordot", (3, 0), (0, 4), {"axes": 1}),
]


@pytest.mark.parametrize(("name", "shape_a", "shape_b", "keywords"), CASES)
def test_agrees_with_numpy(name, shape_a, shape_b, keywords, device, launches):
    """Each function gives NumPy's shape, type and values, by one product on the device."""
    a, b = integers(RNG, shape_a), integers(RNG, shape_b)
    expected = NUMPY[name](a, b, **keywords)
    result = OURS[name](a, b, **keywords)
    assert type(result) is type(expected)
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert len(launches) == 1


@pytest.mark.parametrize(("name", "shape_a", "shape_b", "keywords"), CASES)
def test_device_arrays_agree_with_numpy(name, shape_a, shape_b, keywords, device):
    """pyopencl arrays give a pyopencl array of the same shape and values."""
    a, b = integers(RNG, shape_a), integers(RNG, shape_b)
    expected = NUMPY[name](a, b, **keywords)
    result = OURS[name](*(cl.array.to_device(device.queue, x) for x in (a, b)), **keywords)
    assert isinstance(result, cl.array.Array)
    assert result.shape == np.shape(expected)
    got = result.get() if result.size else np.empty(result.shape, np.float32)
    np.testing.assert_array_equal(got, expected)


@given(
    data=st.data(),
    batch=st.lists(st.sampled_from([1, 1, 2, 3]), max_size=4),
    m=st.integers(0, 20),
    n=st.integers(0, 20),
    k=st.integers(0, 20),
)
def test_matmul_broadcasts_stacks_of_any_strides(data, batch, m, n, k, device):
    """matmul broadcasts repeated, reversed, sliced and permuted batches into any views."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))

    def stack(rows, columns):
        own = [1 if data.draw(st.booleans()) else count for count in batch]
        own = own[data.draw(st.integers(0, len(own))) :]
        return data.draw(buffers(integers(rng, (*own, rows, columns))))

    a, b = stack(m, k), stack(k, n)
    expected = np.matmul(a.view, b.view)
    np.testing.assert_array_equal(clgemm.matmul(a.view, b.view), expected)
    out = data.draw(buffers(np.full(expected.shape, np.nan, np.float32), guard=5.0))
    assert clgemm.matmul(a.view, b.view, out=out.view) is out.view
    np.testing.assert_array_equal(out.view, expected)
    assert out.untouched_outside(out.view)
    assert a.untouched()
    assert b.untouched()


@pytest.mark.parametrize("n", [5, 70])
def test_out_may_overlap_operands(n, device, launches):
    """`out` may be an operand or share memory with one."""
    base = integers(RNG, (n + 2, n + 2))
    x = base[1:-1, 1:-1]
    expected = x @ x.T
    assert clgemm.matmul(x, x.T, out=x) is x
    np.testing.assert_array_equal(x, expected)
    shifted = base[2:, 2:]
    expected = x @ x
    clgemm.matmul(x, x, out=shifted)
    np.testing.assert_array_equal(shifted, expected)
    square = integers(RNG, (n, n))
    expected = square @ square
    assert clgemm.dot(square, square, out=square) is square
    np.testing.assert_array_equal(square, expected)
    assert len(launches) == 3
    on_device = cl.array.to_device(device.queue, square)
    assert clgemm.matmul(on_device, on_device, out=on_device) is on_device
    np.testing.assert_array_equal(on_device.get(), square @ square)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_matmul_converts_to_the_dtype_of_out(dtype, device, launches):
    """matmul converts to the dtype of `out` if NumPy's casting rules allow it."""
    a, out = integers(RNG, (4, 4)), np.zeros((4, 4), dtype)
    assert clgemm.matmul(a, a, out=(out,)) is out
    np.testing.assert_array_equal(out, a @ a)
    assert len(launches) == 1


FLOATS = integers(RNG, (4, 4))


@pytest.mark.parametrize(
    "keywords",
    [
        {"axes": [(0, 1), (1, 0), (0, 1)]},
        {"axes": [(1, 0), (0, 1), (1, 0)], "order": "F"},
        {"axes": [(-2, -1), (-1, -2), (-1, -2)]},
        {"dtype": np.float32, "casting": "unsafe"},
        {"order": "F"},
        {"subok": False},
    ],
)
def test_other_arguments_of_matmul_are_read_as_numpy_reads_them(keywords, device, launches):
    """The device computes the product, and the result is laid out as NumPy's."""
    expected = np.matmul(FLOATS, FLOATS, **keywords)
    result = clgemm.matmul(FLOATS, FLOATS, **keywords)
    np.testing.assert_array_equal(result, expected)
    assert result.strides == expected.strides
    assert len(launches) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "keywords"),
    [
        ("dot", (FLOATS, 2.0), {}),
        ("dot", (np.float32(3), FLOATS), {}),
        ("dot", (FLOATS.astype(np.float64), FLOATS), {}),
        ("dot", (FLOATS.astype(np.int32), FLOATS.astype(np.int32)), {}),
        ("dot", (FLOATS.tolist(), FLOATS), {}),
        ("inner", (np.float32(3), FLOATS), {}),
        ("matmul", (FLOATS.astype(complex), FLOATS), {}),
        ("matmul", (FLOATS, FLOATS), {"dtype": np.float64}),
        ("matmul", (np.ma.masked_array(FLOATS, FLOATS > 0), FLOATS), {}),
        ("tensordot", (FLOATS.astype(np.float64), FLOATS), {}),
        ("multi_dot", (FLOATS.astype(np.float64), FLOATS, FLOATS), {}),
        ("multi_dot", (FLOATS.tolist(), FLOATS), {}),
    ],
)
def test_the_rest_is_numpys_own(name, arguments, keywords, device, launches):
    """Other dtypes, subclasses and keywords give NumPy's own result without a launch."""
    expected = NUMPY[name](*arguments, **keywords)
    result = OURS[name](*arguments, **keywords)
    assert type(result) is type(expected)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
    assert not launches


def readonly(shape):
    out = np.zeros(shape, np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("name", "arguments", "keywords"),
    [
        ("dot", (FLOATS, FLOATS[:3]), {}),
        ("dot", (FLOATS, FLOATS), {"out": np.zeros((4, 5), np.float32)}),
        ("dot", (FLOATS, FLOATS), {"out": np.zeros((4, 4))}),
        ("dot", (FLOATS, FLOATS), {"out": np.zeros((4, 4), np.float32, "F")}),
        ("dot", (FLOATS, FLOATS), {"out": readonly((4, 4))}),
        ("dot", (FLOATS, "x"), {}),
        ("inner", (FLOATS, FLOATS[:, :3]), {}),
        ("matmul", (FLOATS, FLOATS[:3]), {}),
        ("matmul", (FLOATS, 3.0), {}),
        ("matmul", (FLOATS, np.float32(3)), {}),
        ("matmul", (np.zeros((2, 4, 4), "f"), np.zeros((3, 4, 4), "f")), {}),
        ("matmul", (FLOATS, FLOATS), {"out": np.zeros((4, 5), np.float32)}),
        ("matmul", (FLOATS, FLOATS), {"out": np.zeros((4, 4), int)}),
        ("matmul", (FLOATS, FLOATS), {"out": readonly((4, 4))}),
        ("tensordot", (FLOATS, FLOATS[:3]), {"axes": 1}),
        ("tensordot", (FLOATS, FLOATS), {"axes": ((0, 1), (0,))}),
        ("tensordot", (FLOATS, FLOATS), {"axes": (2, 0)}),
        ("tensordot", (FLOATS, FLOATS), {"axes": 1.5}),
        ("tensordot", (FLOATS, FLOATS), {"axes": 3}),
        ("multi_dot", (FLOATS,), {}),
        ("multi_dot", (FLOATS, FLOATS[:3]), {}),
        ("multi_dot", (FLOATS, FLOATS[0], FLOATS), {}),
    ],
)
def test_errors_are_numpys_own(name, arguments, keywords, device):
    """Wrong calls raise NumPy's error with its message and leave `out` unchanged."""
    before = None if "out" not in keywords else keywords["out"].copy()
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever NumPy raises
        NUMPY[name](*arguments, **keywords)
    with pytest.raises(theirs.type) as ours:
        OURS[name](*arguments, **keywords)
    assert str(ours.value) == str(theirs.value)
    if before is not None:
        np.testing.assert_array_equal(keywords["out"], before)


@pytest.mark.parametrize("name", ["dot", "inner", "matmul", "multi_dot"])
def test_mixed_operands_are_refused(name, device):
    """An operand on the host and another one on the device raise a TypeError."""
    on_device = cl.array.to_device(device.queue, FLOATS)
    with pytest.raises(TypeError, match="host and device operands are mixed"):
        OURS[name](on_device, FLOATS)


@pytest.mark.parametrize(
    ("name", "shapes", "keywords", "words"),
    [
        ("dot", [(3, 4), (3, 4)], {}, "not aligned"),
        ("inner", [(3, 4), (4, 3)], {}, r"\(3, 4\) and \(4, 3\) are not aligned: .* last of the"),
        ("inner", [(), (4, 3)], {}, r"shapes \(\) and \(4, 3\) are not aligned"),
        ("matmul", [(2, 3, 4), (3, 4, 5)], {}, "do not broadcast"),
        ("tensordot", [(3, 4), (3, 4)], {"axes": 1}, "do not pair"),
        ("multi_dot", [(3, 4), (5, 4)], {}, "the inner sizes of the shapes"),
    ],
)
def test_errors_on_the_device(name, shapes, keywords, words, device):
    """The error for device arrays whose shapes disagree names the shapes."""
    arrays = [cl.array.zeros(device.queue, shape, np.float32) for shape in shapes]
    with pytest.raises(ValueError, match=words):
        OURS[name](*arrays, **keywords)


@pytest.mark.parametrize("name", ["dot", "inner", "matmul", "tensordot", "multi_dot"])
def test_a_nested_product_is_numpys_unless_its_arrays_are_on_the_device(name, device):
    """Then it raises a NestedCallError: kernels are being prepared in the same thread."""
    queue = cl.CommandQueue(device.context)  # no kernel is set up for it
    x = cl.array.to_device(queue, FLOATS)
    with pytest.raises(NestedCallError):
        non_reentrant(NESTED[name])(x)
    with clgemm.device(queue):
        result = non_reentrant(NESTED[name])(FLOATS)
    np.testing.assert_array_equal(result, FLOATS @ FLOATS)


def test_device_arrays_are_not_left_to_numpy(device):
    """Device arrays with other dtypes or keywords raise a TypeError and do not reach NumPy."""
    x = cl.array.to_device(device.queue, FLOATS)
    with pytest.raises(TypeError, match="does not accept axes, order"):
        clgemm.matmul(x, x, axes=[(0, 1), (0, 1), (0, 1)], order="F")
    wide = x.astype(np.int32)
    for product in (clgemm.dot, clgemm.inner, clgemm.matmul, clgemm.tensordot):
        with pytest.raises(TypeError, match="a is a device array of dtype int32"):
            product(wide, x)
    with pytest.raises(TypeError, match="array 1 is a device array of dtype int32"):
        clgemm.multi_dot([x, wide, x])


def test_memory_mapped_and_list_operands(device, tmp_path, launches):
    """Memory-mapped arrays run on the device, and lists give NumPy's result."""
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 4))
    mapped[...] = FLOATS
    np.testing.assert_array_equal(clgemm.matmul(mapped, FLOATS), FLOATS @ FLOATS)
    assert len(launches) == 1


@pytest.mark.parametrize("threshold", ["0", str(2**60)])
def test_products_of_memory_mapped_arrays_have_numpys_type(
    threshold, device, tmp_path, monkeypatch
):
    """Whichever side makes a product, its type is that from NumPy."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", threshold)
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 4))
    mapped[...] = FLOATS
    plain = np.asarray(mapped)
    for a, b in ((mapped, mapped), (mapped, plain), (mapped, mapped[0]), (mapped[0], mapped[1])):
        for _ in range(2):  # the second time, the first one's plan is found
            for name in ("dot", "inner", "matmul"):
                assert type(getattr(clgemm, name)(a, b)) is type(getattr(np, name)(a, b)), name
            assert type(clgemm.tensordot(a, b, 1)) is type(np.tensordot(a, b, 1))
        chain = [mapped, mapped, b]
        assert type(clgemm.multi_dot(chain)) is type(np.linalg.multi_dot(chain))


def test_small_products_stay_on_the_host(device, monkeypatch, launches):
    """NumPy makes products below the threshold, and the device those from it on."""
    monkeypatch.setenv("CLGEMM_THRESHOLD", "65")
    clgemm.dot(FLOATS, FLOATS)
    assert not launches
    monkeypatch.setenv("CLGEMM_THRESHOLD", "64")
    clgemm.dot(FLOATS, FLOATS)
    assert len(launches) == 1


@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_column_times_a_row_has_numpys_zeros(batch, device, launches):
    """NumPy's `matmul` makes it by a loop of its own; zeros of either sign are as there."""
    rng = np.random.default_rng(17)
    a, b = (rng.standard_normal((*batch, *s), np.float32) for s in ((1100, 1), (1, 1000)))
    a[..., 3, 0] = -0.0
    expected = np.matmul(a, b)
    out = np.full((*batch, 1100, 1000), np.nan, np.float32)
    for result in (clgemm.matmul(a, b), clgemm.matmul(a, b, out=out)):
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))
    assert launches


def kind_of(name, a, b):
    """Return how NumPy makes a product that is compared with the device's; "" for another one."""
    entry = products.entry_of(name, a, b)
    return "" if isinstance(entry, str) else entry.size_class[0]


def test_a_column_times_a_row_is_compared_where_numpy_makes_it_by_a_loop():
    """NumPy's `matmul` makes it without BLAS, which takes longer; its `dot` does not."""
    column, row = np.ones((300, 1), np.float32), np.ones((1, 300), np.float32)
    assert kind_of("matmul", column, row) == "loop"
    assert kind_of("dot", column, row) == ""
    assert kind_of("matmul", column[:20], row) == ""
    stack = np.ones((3, 300, 1), np.float32)
    assert kind_of("matmul", stack, row) == "loop"


def test_a_vector_times_a_scattered_matrix_is_compared_where_numpy_makes_it_by_a_loop():
    """NumPy's `matmul` makes a large one without BLAS; its `dot` copies the matrix first."""
    scattered = np.ones((2100, 2200), np.float32)[::2, ::2]
    row, column = np.ones((1, 1050), np.float32), np.ones(1100, np.float32)
    for a, b in ((row, scattered), (scattered, column), (scattered, column[:, None])):
        assert kind_of("matmul", a, b) == "loop"
    assert kind_of("dot", scattered, column) == "copied"
    assert kind_of("matmul", row[:, :900], scattered[:900]) == ""
    dense = scattered.copy()
    assert {kind_of("matmul", row, dense), kind_of("dot", dense, column)} == {"blas"}


def test_large_stacks_of_small_matrices(device, launches):
    """A batch may have more matrices than a dimension of a launch allows on some devices."""
    a, b = integers(RNG, (70_000, 2, 3)), integers(RNG, (70_000, 3, 2))
    np.testing.assert_array_equal(clgemm.matmul(a, b), a @ b)
    assert len(launches) == 1


CALLS = {
    "dot": lambda x, **keywords: clgemm.dot(x, x, **keywords),
    "inner": lambda x, **keywords: clgemm.inner(x, x, **keywords),
    "matmul": lambda x, **keywords: clgemm.matmul(x, x, **keywords),
    "tensordot": lambda x, **keywords: clgemm.tensordot(x, x, 1, **keywords),
    "multi_dot": lambda x, **keywords: clgemm.multi_dot((x, x, x), **keywords),
    "vecdot": lambda x, **keywords: clgemm.vecdot(x, x, **keywords),
    "matvec": lambda x, **keywords: clgemm.matvec(x, x, **keywords),
    "vecmat": lambda x, **keywords: clgemm.vecmat(x, x, **keywords),
    "matrix_power": lambda x, **keywords: clgemm.matrix_power(x, 3, **keywords),
    "einsum": lambda x, **keywords: clgemm.einsum("ij,jk->ik", x, x, **keywords),
}
HOST_ONLY = "matrix_power", "einsum"


@pytest.mark.parametrize("name", CALLS)
def test_each_function_takes_a_precision(name, device, launches):
    """It holds for that call alone; a wrong one is named."""
    x = integers(RNG, (40, 40))
    expected = CALLS[name](x)
    del launches[:]
    with clgemm.device(device):
        np.testing.assert_array_equal(CALLS[name](x, precision="strict"), expected)
    assert launches
    assert clgemm.precision("fast")._allowed == "fast"
    with pytest.raises(ValueError, match="'exact'"):
        CALLS[name](x, precision="exact")


@pytest.mark.parametrize("name", ["dot", "matmul", "inner", "tensordot"])
def test_the_precision_reaches_the_product(name, device, monkeypatch):
    """And not the next one."""
    seen, multiply = [], transfer_multiply.multiply

    def noted(*arguments, precision=None, **keywords):
        from clgemm.core.settings import chosen_precision

        seen.append(precision or chosen_precision())
        return multiply(*arguments, precision=precision, **keywords)

    monkeypatch.setattr(transfer_multiply, "multiply", noted)
    monkeypatch.setattr(call_cache, "_calls", {})
    x = integers(RNG, (41, 41))
    with clgemm.device(device):
        CALLS[name](x, precision="strict")
        CALLS[name](x)
    assert seen == ["strict", "float32"]


@pytest.mark.parametrize("name", CALLS)
def test_each_function_takes_a_queue(name, device):
    """Device arrays are multiplied there; host arrays on its device."""
    queue, x = cl.CommandQueue(device.context), integers(RNG, (30, 30))
    expected = CALLS[name](x)
    np.testing.assert_array_equal(CALLS[name](x, queue=queue), expected)
    with pytest.raises(TypeError, match="queue='one' is not"):
        CALLS[name](x, queue="one")
    if name in HOST_ONLY:
        return
    y = cl.array.to_device(device.queue, x)
    found = CALLS[name](y, queue=queue)
    assert found.queue == queue
    np.testing.assert_array_equal(found.get(), expected)
    context = cl.Context([device.cl_device])  # Intel's queues do not keep it alive
    other = cl.CommandQueue(context)
    with pytest.raises(ValueError, match="context"):
        CALLS[name](y, queue=other)


def test_out_is_filled_on_another_queue(device):
    """And returned as it was given."""
    queue, x = cl.CommandQueue(device.context), integers(RNG, (30, 30))
    y, out = (cl.array.to_device(device.queue, each) for each in (x, np.zeros_like(x)))
    for product in (clgemm.matmul, clgemm.dot):
        assert product(y, y, out=out, queue=queue, precision="strict") is out
        queue.finish()
        np.testing.assert_array_equal(out.get(), x @ x)
        out.fill(0)
        device.queue.finish()
    assert clgemm.matmul(y, y, out=(out,), queue=queue) is out
    host = np.zeros((30, 30), np.float32)
    assert clgemm.matmul(x, x, out=(host,), queue=queue) is host
    assert clgemm.matmul(x, x, out=(None,), queue=queue).shape == (30, 30)


@pytest.mark.parametrize("name", ["dot", "inner"])
def test_operands_of_many_axes_are_numpys(name):
    """A result may have more axes than NumPy allows: the error is NumPy's then."""

    def outcome(function, axes):
        try:
            x = np.ones((1,) * axes + (3, 3), np.float32)
            return function(x, x).shape
        except ValueError as error:
            return str(error)

    for axes in (30, 60):
        assert outcome(getattr(clgemm, name), axes) == outcome(getattr(np, name), axes)
