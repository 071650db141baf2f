"""PoCL's threads: as many as the process may use processors, and pinned where that is faster."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

from clgemm.core.host_blas import usable_processors

__all__ = ["pinned_threads"]

PINNED_CORES = 4
# Variables of PoCL, which reads them when it starts.
POCL_AFFINITY, POCL_THREADS = "POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT"
QUOTA = "/sys/fs/cgroup/cpu.max"  # a container's: microseconds of each period, or "max"


@contextlib.contextmanager
def pinned_threads() -> Iterator[None]:
    """Set up PoCL's threads, if PoCL starts in the ``with`` block.

    Where the process may not use every core, or a container limits its time, there are as many
    threads as it may use at once: PoCL itself counts the machine's. Otherwise each thread is pinned
    to a core. Without pinning, two threads often share a core for the first milliseconds, and a
    small product takes no longer than that. Nothing is pinned on machines with many cores, where
    the system can move a thread away from a core that another program needs. What the user has set
    stays.
    """
    usable, cores = _usable(), os.cpu_count() or 1
    wanted = {}
    if usable < cores:
        wanted[POCL_THREADS] = str(usable)
    elif usable <= PINNED_CORES and hasattr(os, "sched_getaffinity"):
        wanted[POCL_AFFINITY] = "1"
    wanted = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            del os.environ[name]


def _usable() -> int:
    """Return how many processors this process may use at once."""
    usable = usable_processors()
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path(QUOTA).read_text("ascii").split()
        usable = min(usable, max(1, math.ceil(int(quota) / int(period))))
    return usable
