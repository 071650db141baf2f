"""The kit for other projects' tests: it finds planted faults, shrinks them and names them."""

from __future__ import annotations

import sys

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import clgemm
from clgemm.testing import (
    DATA,
    EXACT,
    ArrayLayout,
    GemmProblem,
    assert_bitwise_repeatable,
    assert_product,
    error_bound,
    gamma,
    gemm_problems,
    layouts,
    matrices,
    sides,
    stacks,
)
from clgemm.testing.bounds import LEAST_PRODUCT, SMALLEST_NORMAL
from clgemm.testing.data import made

RNG = np.random.default_rng(27)
# Without shrinking.
QUICK = settings(database=None, max_examples=2000, deadline=None, phases=[Phase.generate])


def stored(storage, leading, order, rows, columns):
    """The matrix in flat storage, as a view."""
    inner, outer = (rows, columns) if order == "F" else (columns, rows)
    if inner * outer == 0:
        return np.zeros((rows, columns), np.float32)
    view = np.lib.stride_tricks.as_strided(storage, (outer, inner), (4 * leading, 4))
    return view.T if order == "F" else view


def own_sgemm(p, fault=""):
    """A BLAS sgemm in NumPy, with a fault that is asked for."""
    rows_a = (p.k, p.m) if p.trans_a else (p.m, p.k)
    lda = max(1, rows_a[p.order == "C"]) if fault == "leading dimension ignored" else p.lda
    a = stored(p.a, lda, p.order, *rows_a)
    b = stored(p.b, p.ldb, p.order, *((p.n, p.k) if p.trans_b else (p.k, p.n)))
    c = stored(p.c, p.ldc, p.order, p.m, p.n)
    a, b = (a.T if p.trans_a else a), (b.T if p.trans_b else b)
    k = p.k - p.k % 4 if fault == "tail of k dropped" else p.k
    with np.errstate(all="ignore"):
        if fault == "float16 accumulation":
            total = np.zeros((p.m, p.n), np.float16)
            for i in range(k):
                total += np.outer(a[:, i], b[i]).astype(np.float16)
        else:
            total = a[:, :k].astype(np.float64) @ b[:k].astype(np.float64)
        result = p.alpha * total.astype(np.float64) if p.alpha else np.zeros(c.shape)
        if p.beta or fault == "beta read when 0":
            result = result + p.beta * c
    c[...] = result
    if fault == "writes beyond C" and c.size:
        p.c[: p.ldc] = 0
    if fault == "modifies A" and p.a.size:
        p.a[0] = 0


def is_wrong(problem, fault):
    """Whether the kit sees the fault in a problem; whatever a call wrote is put back."""
    try:
        own_sgemm(problem.blas, fault)
        problem.check(problem.c.view, "strict")
    except AssertionError:
        return True
    finally:
        for operand in (problem.a, problem.b, problem.c):
            operand.base[...] = operand.before
    return False


@pytest.mark.parametrize("storage", ["F", "C"])
@given(data=st.data())
def test_a_right_sgemm_passes(storage, data):
    """A right routine passes, with hostile data and special values too."""
    assert not is_wrong(data.draw(gemm_problems(storage=storage, special=True)), "")


@pytest.mark.parametrize(
    ("fault", "largest"),
    [
        ("leading dimension ignored", 4),
        ("beta read when 0", 2),
        ("tail of k dropped", 3),
        ("float16 accumulation", 3),
    ],
)
def test_a_fault_is_found_and_shrinks(fault, largest):
    """A planted fault is found, and its example shrinks to matrices of one or two elements."""
    found = find(
        gemm_problems(storage="F"),
        lambda problem: is_wrong(problem, fault),
        settings=settings(database=None, max_examples=1000, deadline=None),
    )
    assert sum(found.sizes) <= largest, found
    assert (found.alpha, found.beta) in {(1.0, 0.0), (1.0, 1.0)}
    assert len(repr(found)) < 500


@pytest.mark.parametrize("fault", ["writes beyond C", "modifies A"])
def test_a_write_beside_the_result_is_found(fault):
    """A routine that writes to memory around C, or to an operand, is found."""
    find(gemm_problems(storage="F"), lambda problem: is_wrong(problem, fault), settings=QUICK)


def test_an_operands_layout_is_in_the_text():
    """A problem prints its sizes, scalars, leading dimensions, strides and few values."""
    column = ArrayLayout((1, 0), (1, 1), (0, 0), (1, 0)).place([[1], [1]])
    plain = ArrayLayout((1, 0), (1, 1), (0, 0), (0, 0))
    b, c = plain.place([[2]]), plain.place([[np.nan], [np.nan]])
    problem = GemmProblem(1.0, 0.0, column, b, c, 0, 0, 1, "F", ("ones", "ones"))
    text = repr(problem)
    assert "m=2, n=1, k=1, alpha=1, beta=0, order='F', lda=3, ldb=1, ldc=2" in text
    assert "a = <2x1, strides (1, 3), first element 0: [[1.], [1.]]>" in text
    assert problem.blas.lda == 3


@given(data=st.data(), shape=st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)))
def test_a_layout_holds_the_values_and_guards(data, shape):
    """The view has the values, everything else is guards, and a change of it is seen."""
    values = RNG.integers(1, 9, shape).astype(np.float32)
    operand = data.draw(layouts(3)).place(values, guard=-1.0)
    np.testing.assert_array_equal(operand.view, values)
    assert (operand.base == -1).sum() == operand.base.size - values.size
    assert operand.untouched()
    operand.view[...] += 1
    assert operand.untouched_outside(operand.view)
    assert operand.untouched() == (values.size == 0)
    if operand.base.size > values.size:
        operand.base[operand.base == -1] = -2
        assert not operand.untouched_outside(operand.view)


def test_a_repeated_slice_has_a_stride_of_zero():
    """A step of 0 repeats the first slice; the layout prints what is not plain."""
    layout = ArrayLayout((1, 0), (0, -2), (0, 1), (2, 0))
    view = layout.place([[1, 2, 3], [4, 5, 6]]).view
    np.testing.assert_array_equal(view, [[1, 2, 3], [1, 2, 3]])
    assert view.strides[0] == 0
    assert view.strides[1] < 0
    assert repr(layout) == "ArrayLayout(axes=(1, 0), steps=(0, -2), before=(0, 1), after=(2, 0))"
    assert repr(ArrayLayout((0, 1), (1, 1), (0, 0), (0, 0))) == "ArrayLayout(contiguous)"


@given(
    problem=gemm_problems(max_side=50, max_work=1000, overlap=True, zero_strides=True),
    matrix=matrices(max_side=9, columns=st.integers(2, 3), special=True),
    stack=stacks(st.integers(1, 7), 6, max_elements=500),
    side=sides(40, 30),
)
def test_bounds_on_size_and_work_are_kept(problem, matrix, stack, side):
    """No side, product or batch is larger than asked for, and all elements are float32."""
    m, n, k = problem.sizes
    assert max(m, n, k) <= 50
    assert m * n * k <= 1000
    assert problem.expected().shape == (m, n)
    assert matrix.shape[0] <= 9
    assert 2 <= matrix.shape[1] <= 3
    assert stack.shape[-1] == 6
    assert stack.size <= 500
    assert matrix.dtype == stack.dtype == np.float32
    assert 30 <= side <= 40


@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        (lambda p: p.overlap and p.c and np.shares_memory(p.a.view, p.c.view), {"overlap": True}),
        (lambda p: 0 in p.a.view.strides and p.a.view.size > 1, {"zero_strides": True}),
        (lambda p: min(p.a.view.strides) < 0 and p.a.view.size > 1, {}),
        (lambda p: np.isinf(p.b.values).any(), {"special": True}),
        (lambda p: p.trans_a == 2, {}),
        (lambda p: p.c is not None and p.beta == 0 and np.isnan(p.c.values).any(), {}),
        (lambda p: p.data[0] == "huge", {}),
    ],
)
def test_every_kind_of_problem_is_drawn(wanted, options):
    """Overlaps, strides of every sign, special values, transposes and hostile data occur."""
    find(
        gemm_problems(**options),
        wanted,
        settings=QUICK,
    )


def test_storage_is_one_of_three():
    """Another storage is refused by name, and views are no BLAS storage."""
    with pytest.raises(ValueError, match="storage='R' is none of"):
        find(gemm_problems(storage="R"), lambda problem: problem is not None, settings=QUICK)
    problem = find(gemm_problems(), lambda problem: problem is not None, settings=QUICK)
    with pytest.raises(ValueError, match="no BLAS storage"):
        _ = problem.blas


@pytest.mark.parametrize("name", DATA)
def test_products_of_hostile_data_stay_in_range(name):
    """Every family of data is finite, and its products neither overflow nor lose bits below."""
    values = made(name, RNG, (3, 30, 40))
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    smallest = abs(values[values != 0]).min(initial=np.inf)
    assert float(abs(values).max()) ** 2 * 130 * 3 < np.finfo(np.float32).max
    assert float(smallest) ** 2 >= LEAST_PRODUCT * 2.0**-12
    if name in EXACT:
        assert (values == values.round()).all()
    with pytest.raises(ValueError, match="data='odd' is not one of ones, integers"):
        made("odd", RNG, (1, 1))


@pytest.mark.parametrize(("precision", "roundings"), [("strict", 2), ("float32", 64)])
def test_the_bound_is_higham_s(precision, roundings):
    """error_bound is gamma(k + 2 or 64) (|alpha| |A| |B| + |beta| |C|), batches included."""
    a, b, c = (RNG.standard_normal(s) for s in ((2, 1, 5, 7), (3, 7, 4), (5, 4)))
    expected = gamma(7 + roundings) * (2 * (abs(a) @ abs(b)) + 3 * abs(c))
    found = error_bound(a, b, -2.0, 3.0, c, precision=precision)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with clgemm.precision(precision):
        np.testing.assert_array_equal(error_bound(a, b, -2.0, 3.0, c), found)


def test_the_bound_of_fast_is_for_whole_rows():
    """In "fast", the largest elements of each 64 along k count for all of them."""
    a, b = np.ones((1, 70)), np.ones((70, 1))
    a[0, 3] = 5.0
    expected = gamma(70 + 128) * (64 * 5 + 64)
    np.testing.assert_allclose(error_bound(a, b, precision="fast"), [[expected]])


def test_the_bound_allows_for_underflow_where_it_may_happen():
    """What is lost below 2**-126 is allowed for small operands only; NaN counts as 0."""
    small, large = np.full((1, 1), 2.0**-70), np.full((1, 1), 2.0**-40)
    assert error_bound(small, small)[0, 0] >= SMALLEST_NORMAL
    assert error_bound(large, large, precision="strict")[0, 0] == gamma(3) * 2.0**-80
    assert error_bound([[np.nan, 1.0]], [[1.0], [2.0]], precision="strict") == gamma(4) * 2
    assert error_bound([[1.0]], [[1.0]], 0.0, 0.0, precision="strict") == 0


def test_the_message_names_the_worst_element():
    """The message has place, both values, the error in units of the bound, row and column."""
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    wrong = (a @ b).astype(np.float32)
    wrong[1, 2] += 1
    wrong[0, 0] += 0.001
    with pytest.raises(AssertionError) as caught:
        assert_product(wrong, a, b, precision="strict")
    text = str(caught.value)
    units = 1 / (gamma(5) * (a @ b)[1, 2])
    assert "m=2, n=4, k=3, alpha=1, beta=0, precision='strict'" in text
    assert "2 of 8 elements are wrong" in text
    assert f"C[1, 2] is {wrong[1, 2]:.9g} instead of {(a @ b)[1, 2]:.9g}" in text
    assert f"its error is {units:.4g} times the bound" in text
    assert "row 1 of op(A): [3. 4. 5.]" in text
    assert "column 2 of op(B): [ 2.  6. 10.]" in text


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (np.ones((2, 2), np.float32), "has shape \\(2, 2\\), not \\(1, 1\\)"),
        (np.ones((1, 1)), "has dtype float64, not float32"),
        (np.full((1, 1), np.nan, np.float32), "is nan instead of 1"),
        (np.full((1, 1), np.inf, np.float32), "is inf instead of 1"),
    ],
)
def test_wrong_results_of_other_kinds_are_named(result, words):
    """A wrong shape, a wrong dtype and a NaN or infinity too many are named."""
    with pytest.raises(AssertionError, match=words):
        assert_product(result, [[1.0]], [[1.0]])


def test_special_values_must_stand_where_ieee_puts_them():
    """NaN, and an infinity of that sign; "fast" promises neither, and overflow is not compared."""
    a, b = np.float32([[np.inf, 1.0], [2.0, 3.0]]), np.ones((2, 1), np.float32)
    assert_product(np.float32([[np.inf], [5.0]]), a, b)
    assert_product(np.float32([[np.nan], [5.0]]), a, b, precision="fast")
    for wrong in (np.nan, -np.inf, 1.0):
        with pytest.raises(AssertionError, match="instead of inf"):
            assert_product(np.float32([[wrong], [5.0]]), a, b)
    huge = np.full((1, 1), 2.0**100, np.float32)
    assert_product(np.float32([[np.inf]]), huge, huge)
    assert_product(np.float32([[0.0]]), huge, huge * np.nan, alpha=0.0)


def test_products_of_every_kind_are_compared(opencl_device):
    """Transposes, batches, C and device arrays are compared as sgemm and matmul make them."""
    a, b, c = (made("normal", RNG, s) for s in ((5, 3), (4, 5), (3, 4)))
    result = clgemm.sgemm(2.0, a, b, -1.0, c, trans_a=1, trans_b=1)
    assert_product(result, a, b, 2.0, -1.0, c, trans_a=1, trans_b=1)
    with pytest.raises(AssertionError, match=r"C\[\d, \d\] before: "):
        assert_product(result, a, b, 2.0, 1.0, c, trans_a=1, trans_b=1)
    x, y = made("wide", RNG, (2, 1, 5, 3)), made("wide", RNG, (3, 3, 4))
    assert_product(clgemm.matmul(x, y), x, y)
    wrong = clgemm.matmul(x, y)
    wrong[1, 2, 3, 1] *= 2
    with pytest.raises(AssertionError, match=r"C\[1, 2, 3, 1\] is"):
        assert_product(wrong, x, y)
    on_device = [cl_array.to_device(opencl_device.queue, np.ascontiguousarray(m)) for m in (a, c)]
    assert_product(clgemm.matmul(*on_device), *on_device)


def test_a_repeated_call_must_give_the_same_bits():
    """A function that returns other bits is caught, though the values compare equal."""
    values = iter([0.0, -0.0])
    with pytest.raises(AssertionError, match=r"1 of 4 elements; the first is \(1, 0\): "):
        assert_bitwise_repeatable(
            lambda: np.array([[np.nan, 1], [next(values), 2]], np.float32), repeats=2
        )
    with pytest.raises(ValueError, match="repeats=1 is less than 2"):
        assert_bitwise_repeatable(np.ones, 3, repeats=1)
    sizes = iter([3, 4])
    with pytest.raises(AssertionError, match=r"returned float64 \(4,\), call 1 float64 \(3,\)"):
        assert_bitwise_repeatable(lambda: np.ones(next(sizes)), repeats=2)
    counts = iter([1, 2])
    with pytest.raises(AssertionError, match="call 2 returned 2 arrays, call 1 1"):
        assert_bitwise_repeatable(lambda: (np.ones(1),) * next(counts), repeats=2)


def test_what_a_function_writes_to_is_put_back_before_each_call(opencl_device):
    """An operand that is updated has its first values in every call."""
    a, c = made("normal", RNG, (30, 30)), made("normal", RNG, (30, 30))
    before = c.copy()
    result = assert_bitwise_repeatable(clgemm.sgemm, 1.0, a, a, 1.0, c, overwrite_c=1)
    assert_product(result, a, a, 1.0, 1.0, before)
    on_device = cl_array.to_device(opencl_device.queue, a)
    assert_bitwise_repeatable(clgemm.matmul, on_device, on_device)
    assert_bitwise_repeatable(lambda x: (x, [1.0]), a)


def test_without_hypothesis_only_the_strategies_are_missing(monkeypatch):
    """Without Hypothesis the bounds work, and a strategy's import names the extra."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "clgemm.testing.strategies")
    monkeypatch.delattr("clgemm.testing.strategies")
    assert clgemm.testing.error_bound([[1.0]], [[1.0]]) > 0
    with pytest.raises(ImportError, match=r"pip install 'clgemm\[testing\]'"):
        _ = clgemm.testing.gemm_problems
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = clgemm.testing.nothing
