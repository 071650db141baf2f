"""Tests of layouts, which place values in memory with guards around them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clgemm.testing import ArrayLayout, layouts

RNG = np.random.default_rng(27)


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
