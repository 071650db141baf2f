"""How to chunk the operands of a product: as large as the workers' memory allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from dask.utils import parse_bytes

__all__ = ["suggest_chunks"]

Chunks: TypeAlias = tuple[int, ...]

ITEM_BYTES = 4
# What a worker holds for each product that it computes: its operands and result, the operands of
# the next product, which Dask fetches meanwhile, and a partial product that waits to be added.
# Dask begins to write chunks to the disk at 60 % of the memory.
HELD = 3
ROUND, LEAST_ROUNDED = 128, 512


def suggest_chunks(
    shape_a: Sequence[int], shape_b: Sequence[int], memory: str | int
) -> tuple[Chunks, Chunks]:
    """Return chunk shapes for the operands of ``da.matmul(a, b)``, float32.

    A chunk of c x c elements takes part in products of c multiply-adds for each element that is
    sent, so chunks are as large, and their products as square, as the memory allows. Batches are
    split first: that costs nothing. The sides of a matrix are split from the longest one on.

    Parameters
    ----------
    shape_a, shape_b : sequence of int
        Shapes (..., m, k) and (..., k, n).
    memory : str or int
        The memory of a worker for each of its threads, such as ``"2GB"``; in bytes if it is a
        number. A GPU's memory need not hold a chunk.

    Returns
    -------
    chunks_a, chunks_b : tuple of int
        For `dask.array.Array.rechunk` and `dask.array.from_array`. Both have the same chunks along
        k and along axes of the batch.

    Raises
    ------
    ValueError
        If the shapes cannot be multiplied, or the memory does not hold a product of single numbers.

    Examples
    --------
    >>> chunks_a, chunks_b = clgemm.dask.suggest_chunks(a.shape, b.shape, "2GB")
    >>> c = da.matmul(a.rechunk(chunks_a), b.rechunk(chunks_b))
    """
    if len(shape_a) < 2 or len(shape_b) < 2:
        raise ValueError(f"{tuple(shape_a)} and {tuple(shape_b)}: both need two axes or more")
    m, k, n = shape_a[-2], shape_a[-1], shape_b[-1]
    if shape_b[-2] != k:
        raise ValueError(
            f"a is {tuple(shape_a)} but b is {tuple(shape_b)}: the inner sizes {k} and "
            f"{shape_b[-2]} differ"
        )
    batch = list(np.broadcast_shapes(tuple(shape_a[:-2]), tuple(shape_b[:-2])))
    available = parse_bytes(memory) // HELD
    sides = [m, k, n]
    while _size_bytes(batch, sides) > available:
        if math.prod(batch) > 1:
            longest = batch.index(max(batch))
            batch[longest] = math.ceil(batch[longest] / 2)
        elif max(sides) > 1:
            # A split of k adds partial products: m or n is split first if they are as long.
            longest = max(range(3), key=lambda i: (sides[i], i != 1))
            sides[longest] = math.ceil(sides[longest] / 2)
        else:
            raise ValueError(f"memory={memory!r} does not hold any product")
    m, k, n = (_rounded(chunk, whole) for chunk, whole in zip(sides, (m, k, n), strict=True))
    return (*_own(shape_a, batch), m, k), (*_own(shape_b, batch), k, n)


def _size_bytes(batch: Sequence[int], sides: Sequence[int]) -> int:
    m, k, n = sides
    return ITEM_BYTES * math.prod(batch) * (m * k + k * n + m * n)


def _rounded(chunk: int, whole: int) -> int:
    """Round a long chunk down to what kernels compute at once; a whole side stays whole."""
    return chunk if chunk == whole or chunk < LEAST_ROUNDED else chunk // ROUND * ROUND


def _own(shape: Sequence[int], batch: Sequence[int]) -> Chunks:
    """Return an operand's chunks along the axes of the batch, which it may have fewer of."""
    own = shape[:-2]
    return tuple(min(x, y) for x, y in zip(own, batch[len(batch) - len(own) :], strict=True))
