"""Matrix products for Dask's einsum of NumPy chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.array.dispatch import einsum_lookup

__all__ = ["einsum", "release_einsum", "route_einsum"]


def einsum(subscripts: Any, *operands: Any, optimize: Any = False, **keywords: Any) -> Any:
    """Return np.einsum of chunks, with matrix products for float32.

    np.einsum uses matrix products only if `optimize` is true.
    """
    if optimize is False and len(operands) > 1 and all(x.dtype == np.float32 for x in operands):
        optimize = True
    return np.einsum(subscripts, *operands, optimize=optimize, **keywords)


def route_einsum() -> None:
    """Register `einsum` in Dask's table of functions, so that `dask.array.einsum` calls it."""
    einsum_lookup.register(np.ndarray, einsum)


def release_einsum() -> None:
    """Register NumPy's function in Dask's table again."""
    einsum_lookup.register(np.ndarray, np.einsum)
