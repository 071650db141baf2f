"""Making a host array exactly symmetric, by the threads that copy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clgemm.core.problem import FLOAT_BYTES
from clgemm.runtime.operands import HostArray
from clgemm.runtime.transfer.crew import SIGNALS_SECONDS, Crew
from clgemm.runtime.transfer.staging import Staging

__all__ = ["mirror"]

BLOCK = 256  # rows and columns that are copied at a time


class _Block(NamedTuple):
    """The copy of one block."""

    target: HostArray
    source: HostArray


def mirror(c: HostArray, staging: Staging | None) -> None:
    """Copy the upper triangles of a batch of square matrices to the lower ones.

    Parameters
    ----------
    staging : Staging or None
        Whose threads copy; without, this one does.
    """
    n, flipped = c.shape[-1], c.swapaxes(-1, -2)
    is_threaded = staging is not None and c.size * FLOAT_BYTES >= staging.config.threaded_bytes
    crew: Crew[_Block] | None = Crew(staging, True) if staging and is_threaded else None
    try:
        for i in range(0, n, BLOCK):
            rows = slice(i, i + BLOCK)
            for j in range(0, i, BLOCK):
                columns = slice(j, j + BLOCK)
                block = _Block(c[..., rows, columns], flipped[..., rows, columns])
                if crew is None:
                    np.copyto(*block)
                else:
                    crew.copy(block)
            corner = c[..., rows, rows]
            below = np.tri(corner.shape[-1], k=-1, dtype=np.bool_)
            np.copyto(corner, flipped[..., rows, rows].copy(), where=below)
        while crew is not None and crew.under_way:
            crew.done(SIGNALS_SECONDS)
    except BaseException:
        if crew is not None:
            crew.abandon()
        raise
