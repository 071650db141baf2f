"""Tests of Dask's einsum of NumPy chunks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")

from chunked import is_original

from clgemm.dask import contractions


@pytest.mark.parametrize(
    ("dtypes", "given", "asked"),
    [
        ("ff", False, True),
        ("f", False, False),  # nothing is multiplied
        ("fd", False, False),
        ("ff", "greedy", "greedy"),
    ],
)
def test_products_of_float32_are_contracted_by_matrix_products(monkeypatch, dtypes, given, asked):
    """The optimize argument is set for two or more float32 operands, unless it is given."""
    seen = []

    def einsum(*arguments, optimize, **keywords):
        seen.append(optimize)
        return arguments, keywords

    monkeypatch.setattr(np, "einsum", einsum)
    operands = tuple(np.ones((2, 2), dtype) for dtype in dtypes)
    found = contractions.einsum("ij,jk", *operands, optimize=given, order="C")
    assert seen == [asked]
    assert found == (("ij,jk", *operands), {"order": "C"})


def test_dasks_table_is_restored():
    """Dask's table of functions has NumPy's function again after the release."""
    assert is_original()
    contractions.route_einsum()
    try:
        assert not is_original()
    finally:
        contractions.release_einsum()
    assert is_original()
