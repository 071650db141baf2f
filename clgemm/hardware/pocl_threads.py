"""Pinning of PoCL's threads to cores, on machines where that is faster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["pinned_threads"]

PINNED_CORES = 4
POCL_AFFINITY = "POCL_AFFINITY"  # a variable of PoCL, which reads it when it starts


@contextlib.contextmanager
def pinned_threads() -> Iterator[None]:
    """Make PoCL pin each of its threads to a core, if PoCL starts in the ``with`` block.

    Without pinning, two threads often share a core for the first milliseconds, and a small product
    takes no longer than that. Nothing is pinned on machines with many cores, where the system can
    move a thread away from a core that another program needs. Nothing is pinned either if the
    process may not use every core, or if the user has set POCL_AFFINITY.
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
