"""Tests of products as numbers: layouts, sizes and shape classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clgemm.core.problem import (
    Layout,
    Level,
    Problem,
    Shape,
    batch_levels,
    broadcast_batch,
    folded,
    fresh,
    memory_order,
    merged,
    shape_class,
)


@pytest.mark.parametrize("shape", [Shape(3, 5, 7), Shape(3, 5, 7, 4), Shape(1, 1, 1)])
def test_a_product_of_a_shape_has_that_shape(shape):
    """Its matrices are dense and row-major; a batch of one is no batch."""
    problem = Problem.of(shape, "strict")
    assert problem.shape == shape
    assert all(len(x.batch) == (shape.matrices > 1) for x in problem.layouts)
    for x in problem.layouts:
        elements = x.rows * x.columns * shape.matrices
        assert x.extent == (0, elements - 1)


def test_the_transposed_product_exchanges_operands_and_sides():
    """Transposed twice, it is the product itself."""
    problem = Problem.of(Shape(3, 5, 7, 2), "strict")
    other = problem.transposed()
    assert other.shape == Shape(5, 3, 7, 2)
    assert other.a == problem.b.transposed()
    assert other.transposed() == problem


def test_a_scaling_reads_neither_operand():
    """It is a product with k = 0 and without a precision."""
    problem = Problem.of(Shape(3, 5, 7, 2), "strict").scaling()
    assert problem.shape == Shape(3, 5, 0, 2)
    assert problem.precision is None


def test_a_batch_that_shares_b_is_one_taller_product():
    """Broadcast operands of a dense batch fold; the work stays the same."""
    a, b = Layout((4, 3, 7), (21, 7, 1)), Layout((7, 5), (5, 1))
    problem = Problem(a, b, Layout((4, 3, 5), (15, 5, 1)), "strict").broadcast()
    assert problem.b == Layout((4, 7, 5), (0, 5, 1))
    assert problem.folded().shape == Shape(12, 5, 7)
    assert problem.folded().shape.work == problem.shape.work


def layout(array: np.ndarray) -> Layout:
    return Layout(array.shape, tuple(s // array.itemsize for s in array.strides))


SHAPES = st.lists(st.sampled_from([1, 2, 3]), max_size=4).map(tuple)


@given(SHAPES, SHAPES)
def test_broadcast_batch_agrees_with_numpy(a, b):
    """broadcast_batch returns NumPy's shape, or raises where NumPy does."""
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            broadcast_batch(a, b)
    else:
        assert broadcast_batch(a, b) == expected


@given(st.permutations(range(4)), st.lists(st.sampled_from([1, 2, 3]), min_size=4, max_size=4))
def test_levels_visit_the_matrices_in_order(order, shape):
    """The nested loops visit the matrices of a batch in the order of its indices."""
    stack = np.zeros((*shape, 2, 3), np.float32).transpose(*order, 4, 5)
    levels = batch_levels(layout(stack))
    walked = [0]
    for level in levels:
        walked = [w + i * level.strides[0] for w in walked for i in range(level.count)]
    strides = layout(stack).strides
    direct = [sum(map(int.__mul__, index, strides)) for index in np.ndindex(stack.shape[:-2])]
    assert walked == direct


def test_levels_of_a_contiguous_stack_join():
    """The dimensions of a contiguous or repeated batch become one loop."""
    a = layout(np.zeros((2, 3, 4, 5, 6), np.float32))
    assert batch_levels(a) == (Level(24, (30,)),)
    assert batch_levels(Layout((5, 6), (6, 1)).broadcast((2, 3))) == (Level(6, (0,)),)


def test_extent_counts_negative_strides():
    """The extent reaches from the lowest to the highest element, also with negative strides."""
    assert Layout((3, 4), (-4, 1)).extent == (-8, 3)


@given(SHAPES, st.lists(st.integers(-7, 7), min_size=4, max_size=4))
def test_layouts_that_do_not_overlap_themselves(shape, strides):
    """No two elements share an address unless may_overlap_itself is true."""
    one = Layout(shape, tuple(strides[: len(shape)]))
    addresses = [sum(map(int.__mul__, i, one.strides)) for i in np.ndindex(shape)]
    assert one.may_overlap_itself or len(set(addresses)) == len(addresses)
    dense = layout(np.zeros((3, 4, 5), np.float32)[::2, ::-1, 1:3])
    assert not dense.may_overlap_itself


def test_transposed_and_broadcast_keep_the_rest():
    """transposed exchanges the last two dimensions, and broadcast adds strides of zero."""
    a = Layout((7, 3, 4), (100, 4, 1), 16)
    assert a.transposed() == Layout((7, 4, 3), (100, 1, 4), 16)
    assert a.broadcast((2, 7)) == Layout((2, 7, 3, 4), (0, 100, 4, 1), 16)


def test_stacks_that_share_b_fold_into_rows():
    """A batch that shares B becomes one taller product, unless gaps separate the matrices."""
    a, b, c = (layout(np.zeros(s, np.float32)) for s in ((2, 3, 4, 5), (5, 6), (2, 3, 4, 6)))
    one = folded(a, b.broadcast((2, 3)), c)
    assert [x.shape for x in one] == [(24, 5), (5, 6), (24, 6)]
    gapped = Layout((2, 4, 5), (21, 5, 1))
    same = gapped, b.broadcast((2,)), Layout((2, 4, 6), (24, 6, 1))
    assert folded(*same) == same


@given(st.lists(st.sampled_from([1, 2, 3]), max_size=3), st.sampled_from([1, 2]))
def test_merged_agrees_with_numpys_reshape(shape, step):
    """Axes have a common stride exactly if NumPy can reshape them without a copy."""
    x = np.zeros((*shape, 4), np.float32)[..., ::step]
    stride = merged(x.shape, layout(x).strides)
    flat = x.reshape(-1)
    if np.shares_memory(flat, x):
        assert stride == flat.strides[0] // 4 or flat.size == 1
    else:
        assert stride is None


@pytest.mark.parametrize(("stride", "overlaps"), [(7, True), (8, True), (9, False)])
def test_the_reach_of_all_smaller_strides_counts(stride, overlaps):
    """A matrix of 3 x 3 elements reaches to element 8, so that the next begins at 9 at least."""
    assert Layout((2, 3, 3), (stride, 3, 1)).may_overlap_itself == overlaps


@given(
    order=st.permutations(range(3)),
    signs=st.lists(st.sampled_from([1, -1]), min_size=3, max_size=3),
)
def test_memory_order(order, signs):
    """memory_order finds the original order of the axes of a transposed and reversed array."""
    array = np.zeros((2, 3, 4), np.float32).transpose(order)
    array = array[tuple(slice(None, None, sign) for sign in signs)]
    assert array.transpose(memory_order(array.strides)).shape == (2, 3, 4)


@pytest.mark.parametrize(
    ("inside", "outside", "name", "other"),
    [
        ((32, 32, 32), (32, 32, 33), "tiny", "small"),
        ((1, 40, 900), (2, 40, 500), "vector", "deep"),
        ((64, 64, 512), (64, 64, 511), "deep", "small"),
        ((512, 64, 64), (511, 64, 64), "tall", "small"),
        ((64, 512, 64), (64, 511, 64), "wide", "small"),
        ((256, 256, 256), (256, 256, 257), "small", "medium"),
        ((1536, 1536, 1536), (1536, 1536, 1537), "medium", "large"),
        ((256, 256, 256, 2), (256, 256, 257, 2), "batched", "medium"),
        ((8, 8, 8, 2), (8, 8, 8, 1), "batched", "tiny"),
    ],
)
def test_a_class_ends_where_it_says(inside, outside, name, other):
    """The last shape of a class, and the first beyond it."""
    assert shape_class(*inside) == name
    assert shape_class(*outside) == other


def test_a_shape_counts_its_work_and_halves_its_longest_side():
    """Multiply-adds of all matrices; shrunk() and fresh() give a smaller shape, of at least 1."""
    shape = Shape(3, 5, 40, 2)
    assert (shape.work, shape.label) == (1200, "2x3x5x40")
    assert shape.gflop == pytest.approx(2.4e-6)
    assert shape.shrunk() == (3, 5, 20, 2)
    assert Shape(1, 1, 1).shrunk() == (1, 1, 1, 1)
    assert Shape(7, 7, 7).label == "7"
    assert fresh(Shape(7, 8, 100)) == (7, 7, 87, 1)
