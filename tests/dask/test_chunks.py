"""Tests of suggested chunks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")

import dask
import dask.array as da

import clgemm
import clgemm.dask


@pytest.mark.parametrize(
    ("shapes", "memory"),
    [
        (((20_000, 30_000), (30_000, 10_000)), "1GB"),
        (((10**7, 768), (768, 64)), 10**9),
        (((64, 10**7), (10**7, 64)), "256MB"),
        (((500, 1000, 1000), (500, 1000, 1000)), "100MB"),
        (((500, 1000, 1000), (1000, 1000)), "100MB"),
        (((3, 3), (3, 3)), "1MB"),
    ],
)
def test_suggested_chunks_fit_and_match(shapes, memory):
    """Suggested chunks fit the memory three times, agree along k, and are nearly square."""
    shape_a, shape_b = shapes
    chunks_a, chunks_b = clgemm.dask.suggest_chunks(shape_a, shape_b, memory)
    assert chunks_a[-1] == chunks_b[-2]
    assert all(c <= s for c, s in zip(chunks_a + chunks_b, shape_a + shape_b, strict=True))
    held = np.prod(chunks_a, dtype=float) + np.prod(chunks_b, dtype=float)
    held += np.prod(chunks_a[:-2], dtype=float) * chunks_a[-2] * chunks_b[-1]
    available = dask.utils.parse_bytes(memory) / 3 / 4
    assert held <= available
    whole = sum(np.prod(s, dtype=float) for s in shapes)
    assert held > available / 8 or chunks_a + chunks_b == shape_a + shape_b or whole < available
    if max(max(shape_a), max(shape_b)) <= 1000:  # small enough to be multiplied symbolically
        a, b = (da.zeros(s, chunks=c) for s, c in ((shape_a, chunks_a), (shape_b, chunks_b)))
        assert da.matmul(a, b).shape[-2:] == (shape_a[-2], shape_b[-1])


def test_batches_are_split_before_matrices():
    """Matrices are split only if a product of single matrices does not fit."""
    shape = (500, 1000, 1000)
    chunks, _ = clgemm.dask.suggest_chunks(shape, shape, "100MB")
    assert chunks[1:] == shape[1:]
    assert chunks[0] < 500


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "memory"),
    [((3, 4), (5, 6), "1GB"), ((3,), (3, 4), "1GB"), ((3, 4), (4, 5), 10)],
)
def test_chunks_of_nothing_are_refused(shape_a, shape_b, memory):
    """Shapes that cannot be multiplied and too little memory raise ValueError."""
    with pytest.raises(ValueError, match=r"\d"):
        clgemm.dask.suggest_chunks(shape_a, shape_b, memory)
