"""The check for disk space where PoCL compiles; without space, PoCL may end the process."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyopencl as cl

__all__ = ["compiling", "pocl_folder"]

LEAST_BYTES = 2**20  # about twice a program's source, bitcode and machine code
FOLDER_VARIABLE = "POCL_CACHE_DIR"


@contextmanager
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
    try:
        present = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free = shutil.disk_usage(present).free
    except (OSError, StopIteration):
        return  # the folder's disk is unknown: let PoCL try
    if free < LEAST_BYTES:
        raise OSError(
            errno.ENOSPC,
            f"no space left in {folder}, where PoCL compiles: {free // 1024:,} KiB are free and "
            f"{LEAST_BYTES // 1024:,} KiB are needed; free some, or set {FOLDER_VARIABLE} to "
            "another folder",
        ) from cause
