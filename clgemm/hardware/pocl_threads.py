"""Having PoCL keep its threads on cores of their own, where that is faster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["pinned_threads"]

PINNED_CORES = 4
POCL_AFFINITY = "POCL_AFFINITY"  # PoCL's own variable, which it reads when it starts


@contextlib.contextmanager
def pinned_threads() -> Iterator[None]:
    """Let PoCL, if it starts here, keep each of its threads on a core of its own.

    Left to themselves two of them often share a core for the first milliseconds, which is all that
    a product of 512 x 512 matrices takes. Many cores are better left to the system, which moves a
    thread away from a core that something else needs. A process that may not use every core is left
    alone, and so is whoever has set POCL_AFFINITY.
    """
    usable = len(getattr(os, "sched_getaffinity", lambda _: ())(0))
    if POCL_AFFINITY in os.environ or usable != os.cpu_count() or usable > PINNED_CORES:
        yield
        return
    os.environ[POCL_AFFINITY] = "1"
    try:
        yield
    finally:
        del os.environ[POCL_AFFINITY]
