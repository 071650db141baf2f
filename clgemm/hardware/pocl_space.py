"""Whether there is space on disk where PoCL compiles: without it, PoCL may end the process."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyopencl as cl

__all__ = ["compiling", "pocl_folder"]

LEAST_BYTES = 2**20  # a program's source, bitcode and machine code take about half as much
FOLDER_VARIABLE = "POCL_CACHE_DIR"


@contextmanager
def compiling(platform: str) -> Iterator[None]:
    """Build programs within the block; a full disk is one clear error.

    PoCL writes to its folder whenever it builds. If that fails, its compiler prints "LLVM ERROR"
    and ends the process, or the build fails with an empty log.

    Parameters
    ----------
    platform : str
        The name of the device's platform.

    Raises
    ------
    OSError
        ENOSPC, with the folder, if there is no space where PoCL compiles.
    """
    folder = pocl_folder() if platform.startswith("Portable Computing Language") else None
    if folder is None:
        yield
        return
    _require_space(folder)
    try:
        yield
    except cl.Error as error:
        _require_space(folder, error)  # whatever its log says: this is the reason
        raise


def pocl_folder() -> Path | None:
    """Return the folder that PoCL compiles in, or None where that is not known."""
    if os.name != "posix":
        return None
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "pocl" / "kcache"
    home = os.environ.get("HOME")
    return Path(home, ".cache", "pocl", "kcache") if home else Path("/tmp/pocl/kcache")


def _require_space(folder: Path, cause: cl.Error | None = None) -> None:
    try:
        present = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(present).free
    except (OSError, StopIteration):
        return  # no reason to refuse: PoCL may know better
    if free < LEAST_BYTES:
        raise OSError(
            errno.ENOSPC,
            f"no space left in {folder}, where PoCL compiles: {free // 1024:,} KiB are free and "
            f"{LEAST_BYTES // 1024:,} KiB are needed; free some, or name another folder by "
            f"{FOLDER_VARIABLE}",
        ) from cause
