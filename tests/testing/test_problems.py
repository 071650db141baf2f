"""Tests of matrix elements, memory layouts, products with their checks, and their strategies."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from faulty_blas import is_wrong
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import clgemm
from clgemm.testing import (
    DATA,
    EXACT,
    ArrayLayout,
    GemmProblem,
    gemm_problems,
    layouts,
    matrices,
    sides,
    stacks,
)
from clgemm.testing.assertions import LEAST_PRODUCT
from clgemm.testing.problems import made

RNG = np.random.default_rng(27)


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
    """A step of 0 repeats the first slice, and a negative one reverses the axis."""
    layout = ArrayLayout((1, 0), (0, -2), (0, 1), (2, 0))
    view = layout.place([[1, 2, 3], [4, 5, 6]]).view
    np.testing.assert_array_equal(view, [[1, 2, 3], [1, 2, 3]])
    assert view.strides[0] == 0
    assert view.strides[1] < 0


# Without shrinking.
QUICK = settings(database=None, max_examples=2000, deadline=None, phases=[Phase.generate])


@pytest.mark.parametrize("storage", ["F", "C"])
@given(data=st.data())
def test_a_right_sgemm_passes(storage, data):
    """A right routine passes, with hostile data and special values too."""
    assert not is_wrong(data.draw(gemm_problems(storage=storage, special=True)), "")


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


# What the strategies draw, and how it shrinks.


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
