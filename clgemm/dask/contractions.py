"""Dask's einsum of NumPy chunks by matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.array.dispatch import einsum_lookup

__all__ = ["einsum", "release_einsum", "route_einsum"]


def einsum(subscripts: Any, *operands: Any, optimize: Any = False, **keywords: Any) -> Any:
    """Return np.einsum of chunks; float32 ones by matrix products, which `optimize` lets it do."""
    if optimize is False and len(operands) > 1 and all(x.dtype == np.float32 for x in operands):
        optimize = True
    return np.einsum(subscripts, *operands, optimize=optimize, **keywords)


def route_einsum() -> None:
    """Let `dask.array.einsum` call `einsum` for NumPy chunks, by Dask's own table of functions."""
    einsum_lookup.register(np.ndarray, einsum)


def release_einsum() -> None:
    """Put NumPy's function back in Dask's table."""
    einsum_lookup.register(np.ndarray, np.einsum)
