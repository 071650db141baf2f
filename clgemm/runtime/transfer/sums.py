"""Sums of rows of a result, made on the device. If they are finite, so are all elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyopencl as cl

from clgemm.core.layout import Layout
from clgemm.core.steps import ceil_div
from clgemm.core.transfer import FLOAT_BYTES
from clgemm.runtime.memory import Matrix
from clgemm.runtime.operands import LARGEST_ALIGNMENT
from clgemm.runtime.transfer.product import TiledProduct

__all__ = ["LEAST_COLUMNS", "RowSums"]

LEAST_COLUMNS = 64  # on average; the sums of shorter rows take longer to fetch


class RowSums:
    """Products of a result's blocks and a column of ones, enqueued as the blocks are made.

    Parameters
    ----------
    product : TiledProduct
        What makes the blocks.
    blocks : sequence of pair of int
        Rows and columns of each block, as it lies on the device: dense and row by row.
    """

    def __init__(self, product: TiledProduct, blocks: Sequence[tuple[int, int]]) -> None:
        self._product = product = product._replace(
            alpha=1.0, beta=0.0, precision="strict", wait_for=()
        )
        step = LARGEST_ALIGNMENT // FLOAT_BYTES
        self._starts = [0]
        for rows, _ in blocks:  # the sums of each block are aligned
            self._starts.append(self._starts[-1] + ceil_div(rows, step) * step)
        self._host = np.zeros(self._starts[-1], np.float32)
        self._ones_bytes = FLOAT_BYTES * max(columns for _, columns in blocks)
        self._layouts = [
            tuple(Layout(each, (each[1], 1), LARGEST_ALIGNMENT) for each in shapes)
            for shapes in (((m, n), (n, 1), (m, 1)) for m, n in blocks)
        ]
        self._bound = {each: product.bind(*each) for each in set(self._layouts)}
        self._rows = [rows for rows, _ in blocks]
        self._enqueued = 0

    def allocate(self) -> None:
        """Allocate memory on the device, before the first block is made."""
        self._ones = self._product.allocate(self._ones_bytes // FLOAT_BYTES)
        self._sums = self._product.allocate(self._host.size)

    def enqueue(self, block: cl.Buffer, made: cl.Event) -> None:
        """Enqueue the sums of the next block's rows."""
        number, self._enqueued = self._enqueued, self._enqueued + 1
        a, b, c = self._layouts[number]
        ones, sums = Matrix(self._ones, 0, b), Matrix(self._sums, self._starts[number], c)
        space = self._product.space
        before = [made]
        with space.lock:
            if not number:
                one = np.ones(1, np.float32)
                before.append(
                    cl.enqueue_fill_buffer(space.queue, self._ones, one, 0, self._ones_bytes)
                )
            matrices = Matrix(block, 0, a), ones, sums
            self._product.enqueue(self._bound[a, b, c], *matrices, True, before)

    def are_finite(self) -> bool:
        """Wait for all sums, and tell whether they are finite."""
        space = self._product.space
        with space.lock:
            event = cl.enqueue_copy(space.queue, self._host, self._sums, is_blocking=False)
            space.queue.flush()
        event.wait()
        pairs = zip(self._starts, self._rows, strict=False)
        return all(np.isfinite(self._host[i : i + rows]).all() for i, rows in pairs)
