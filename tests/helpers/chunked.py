"""Arrays in chunks, and whether this process is accelerated. Needs Dask."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")

import dask.array as da
from dask.array.dispatch import einsum_lookup

SIDE, CHUNK = 192, 64


def integers(*shape):
    """Return small integers, whose sums of products are exact in float32."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


A, B = integers(SIDE, SIDE + CHUNK), integers(SIDE + CHUNK, SIDE)


def chunked(x, chunks=CHUNK):
    """Return the array as a Dask array in chunks."""
    return da.from_array(x, chunks=chunks)


def is_original():
    """Tell whether NumPy and Dask are unpatched in a worker."""
    return (
        np.dot._implementation.__module__ != "clgemm.accel.hooks"
        and einsum_lookup.dispatch(np.ndarray) is np.einsum
    )
