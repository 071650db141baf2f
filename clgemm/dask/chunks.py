"""Chunk shapes for the operands of a product: as large as the workers' memory allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from dask.utils import parse_bytes

Chunks: TypeAlias = tuple[int, ...]

ITEM_BYTES = 4
# The memory for one thread of a worker, in times the operands and result of one product. Besides
# these, the worker holds the operands of the next product, which Dask fetches meanwhile, and a
# partial product to be added. At 60 % of its memory, Dask begins to write chunks to the disk.
HELD = 3
ROUND = 128  # elements: long chunks are multiples of this, which kernels compute in whole tiles
LEAST_ROUNDED = 512  # elements: shorter chunks are not rounded


def suggest_chunks(
    shape_a: Sequence[int], shape_b: Sequence[int], memory: str | int
) -> tuple[Chunks, Chunks]:
    """Return chunk shapes for the operands of ``da.matmul(a, b)``, float32.

    A larger chunk gives more multiply-adds for each element that Dask sends: c multiply-adds with
    chunks of c x c elements. So chunks are as large, and their products as square, as the memory
    allows. Batches are split first, which costs nothing. Then the longest side is split, again and
    again.

    Parameters
    ----------
    shape_a, shape_b : sequence of int
        Shapes (..., m, k) and (..., k, n).
    memory : str or int
        The memory of a worker for each of its threads, such as ``"2GB"``. A number is in bytes. A
        chunk may be larger than a GPU's memory.

    Returns
    -------
    chunks_a, chunks_b : tuple of int
        Chunk shapes for `dask.array.Array.rechunk` and `dask.array.from_array`. They agree along k
        and along the axes of the batch.

    Raises
    ------
    ValueError
        If the shapes cannot be multiplied, or if the memory is too small for a product of scalars.

    Examples
    --------
    >>> chunks_a, chunks_b = clgemm.dask.suggest_chunks(a.shape, b.shape, "2GB")
    >>> c = da.matmul(a.rechunk(chunks_a), b.rechunk(chunks_b))
    """
    if len(shape_a) < 2 or len(shape_b) < 2:
        raise ValueError(
            f"a is {tuple(shape_a)} and b is {tuple(shape_b)}: both need two axes or more"
        )
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
            # Splitting k makes partial products to be added: prefer m or n of the same length.
            longest = max(range(3), key=lambda i: (sides[i], i != 1))
            sides[longest] = math.ceil(sides[longest] / 2)
        else:
            raise ValueError(f"memory={memory!r} is too small for any product")
    m, k, n = (_rounded(chunk, whole) for chunk, whole in zip(sides, (m, k, n), strict=True))
    return (*_own(shape_a, batch), m, k), (*_own(shape_b, batch), k, n)


def _size_bytes(batch: Sequence[int], sides: Sequence[int]) -> int:
    m, k, n = sides
    return ITEM_BYTES * math.prod(batch) * (m * k + k * n + m * n)


def _rounded(chunk: int, whole: int) -> int:
    """Round a long chunk down to whole tiles, unless it is a whole side."""
    return chunk if chunk == whole or chunk < LEAST_ROUNDED else chunk // ROUND * ROUND


def _own(shape: Sequence[int], batch: Sequence[int]) -> Chunks:
    """Return an operand's chunks along its own axes of the batch; it may have fewer than C."""
    own = shape[:-2]
    return tuple(min(x, y) for x, y in zip(own, batch[len(batch) - len(own) :], strict=True))
