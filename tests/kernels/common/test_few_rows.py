"""Products with few rows or columns."""

from __future__ import annotations

import pytest
from planned import dense

from clgemm.core.steps import LONGEST_SUM
from clgemm.kernels.common.few_rows import (
    MOST_ROWS,
    SMALLEST_SLICE,
    few_rows,
    fits_few_rows,
    slice_of_k,
)


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
