"""What PoCL needs: disk space to compile in, and threads that are as many as processors."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyopencl as cl

from clgemm.core.cache import (
    is_private,
    is_writable,
    kept_folder,
    nearest,
    temporary_folder,
    warn_once,
)
from clgemm.core.host_blas import usable_processors

LEAST_BYTES = 2**20  # about twice a program's source, bitcode and machine code
ENOUGH_BYTES = 2**24  # of a folder that is to hold all programs
FOLDER_VARIABLE = "POCL_CACHE_DIR"
PINNED_CORES = 4
# Variables of PoCL, which reads them when it starts.
POCL_AFFINITY, POCL_THREADS = "POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT"
QUOTA = "/sys/fs/cgroup/cpu.max"  # a container's: microseconds of each period, or "max"

_replaced = ""  # why PoCL has another folder than its own


def find_space() -> None:
    """Give PoCL another folder if its own cannot be written: without one, it has no devices.

    It must be called before platforms are listed. A folder that the user has named is left alone.
    """
    global _replaced
    folder = pocl_folder()
    if folder is None or os.environ.get(FOLDER_VARIABLE) or _is_usable(folder):
        return
    kept = kept_folder()
    for place in (kept, temporary_folder(), temporary_folder("/dev/shm")):
        if _is_usable(place) and (place is kept or is_private(place)):
            os.environ[FOLDER_VARIABLE] = str(place / "pocl")
            _replaced = f"{folder} cannot be written: PoCL compiles in {place / 'pocl'}"
            return


def _is_usable(folder: Path) -> bool:
    return is_writable(folder) and _free_bytes(folder) >= ENOUGH_BYTES


def _free_bytes(folder: Path) -> float:
    """Return the free space of the disk of a folder, which need not exist; infinity if unknown."""
    try:
        return shutil.disk_usage(nearest(folder)).free
    except (OSError, StopIteration):
        return math.inf


@contextlib.contextmanager
def compiling(platform: str) -> Iterator[None]:
    """Turn a full disk into one clear error while programs are built in a ``with`` block.

    PoCL writes to its folder in each build. If it cannot, its compiler prints "LLVM ERROR" and ends
    the process, or the build fails with an empty log.

    Parameters
    ----------
    platform : str
        The name of the device's platform.

    Raises
    ------
    OSError
        ENOSPC, with the folder, if the disk where PoCL compiles is full.
    """
    folder = pocl_folder() if platform.startswith("Portable Computing Language") else None
    if folder is None:
        yield
        return
    if _replaced:
        warn_once(_replaced)
    _require_space(folder)
    try:
        yield
    except cl.Error as error:
        _require_space(folder, error)  # a full disk is the cause, whatever the log says
        raise


def pocl_folder() -> Path | None:
    """Return the folder that PoCL compiles in, or None if it is unknown."""
    if os.name != "posix":
        return None
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "pocl" / "kcache"
    home = os.environ.get("HOME")
    return Path(home, ".cache", "pocl", "kcache") if home else Path("/tmp/pocl/kcache")


def _require_space(folder: Path, cause: cl.Error | None = None) -> None:
    if (free := _free_bytes(folder)) < LEAST_BYTES:
        raise OSError(
            errno.ENOSPC,
            f"no space left in {folder}, where PoCL compiles: {free / 1024:,.0f} KiB are free and "
            f"{LEAST_BYTES // 1024:,} KiB are needed; free some, or set {FOLDER_VARIABLE} to "
            "another folder",
        ) from cause


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
