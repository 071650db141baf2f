"""Tests of a problem: one call of sgemm with guards around its operands."""

from __future__ import annotations

import numpy as np
import pytest
from faulty_blas import is_wrong
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from clgemm.testing import ArrayLayout, GemmProblem, gemm_problems

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
