"""Tests of the strategies: what they draw, and how they shrink."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from faulty_blas import is_wrong
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import clgemm
from clgemm.testing import gemm_problems, matrices, sides, stacks

# Without shrinking.
QUICK = settings(database=None, max_examples=2000, deadline=None, phases=[Phase.generate])


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
