"""Kernels that read both operands where they lie, and products with few rows or columns."""

from __future__ import annotations

import pytest
from planned import LIMITS, dense

from clgemm.core.plan import LONGEST_SUM, Element, ceil_div
from clgemm.kernels.common.in_place import (
    MOST_ROWS,
    SMALLEST_SLICE,
    few_rows,
    fits_few_rows,
    slice_of_k,
    steps_in_place,
)
from clgemm.kernels.direct.family import direct_config

CONFIG = direct_config(LIMITS)


def steps_of(m, n, k, *batch, tile=(16, 16)):
    """The launches of dense operands."""
    operands = dense(m, k, *batch), dense(k, n, *batch), dense(m, n, *batch)
    return list(steps_in_place(*operands, CONFIG, tile))


def test_work_groups_cover_c():
    """One for each tile of each matrix, those at the edges included."""
    (step,) = steps_of(100, 33, 5, 7)
    assert step.groups == 7 * ceil_div(100, 16) * ceil_div(33, 16)
    assert [step.arguments[x] for x in "mnk"] == [100, 33, 5]


def test_without_k_no_operand_is_named():
    """A and B may then have no memory at all: C's is given instead."""
    (step,) = steps_of(10, 10, 0)
    named = {x.slot if isinstance(x, Element) else x for x in step.arguments.values()}
    assert not named & {"a", "b"}


def test_a_batch_of_many_matrices_takes_several_launches():
    """The number of a work-group stays below 2**31."""
    steps = steps_of(4, 4, 2, 2**20, tile=(1, 1))
    assert sum(step.groups for step in steps) == 16 * 2**20
    assert max(step.groups * CONFIG.items for step in steps) < 2**31


def test_the_shorter_side_becomes_the_rows():
    """A product with few columns is the transposed one, its operands exchanged."""
    a, b, c = dense(3, 50), dense(50, 90), dense(3, 90)
    assert few_rows(a, b, c) == (a, b, c, "a", "b")
    found = few_rows(b.transposed(), a.transposed(), c.transposed())
    assert found == (a, b, c, "b", "a")


@pytest.mark.parametrize(("rows", "fits"), [(MOST_ROWS, True), (MOST_ROWS + 1, False)])
def test_few_is_at_most_eight(rows, fits):
    """The larger operand may have contiguous rows or columns, but not neither."""
    a, b, c = dense(rows, 50), dense(50, 90), dense(rows, 90)
    columns = b._replace(strides=(1, 50))
    apart = b._replace(strides=(180, 2))
    assert fits_few_rows(a, b, c) == fits_few_rows(a, columns, c) == fits
    assert not fits_few_rows(a, apart, c)
    assert fits_few_rows(a._replace(strides=(100, 2)), b, c) == fits


@pytest.mark.parametrize("k", [1, 255, 256, 1000, 5000, 100_000, 3 * LONGEST_SUM])
@pytest.mark.parametrize("wanted", [1, 3, 64])
@pytest.mark.parametrize("width", [1, 4, 16])
def test_slices_of_k_are_whole_vectors_and_not_too_short(k, wanted, width):
    """There are as many as wanted, unless they get too short or too long."""
    depth = slice_of_k(k, wanted, width)
    cuts = -(-k // depth)
    assert depth % width == 0
    assert depth < LONGEST_SUM + width
    assert cuts <= max(wanted, -(-k // LONGEST_SUM))
    assert cuts == 1 or depth >= min(SMALLEST_SLICE, LONGEST_SUM)
