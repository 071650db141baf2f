"""The folder of what is kept between runs: where it is, and writing to it whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

__all__ = [
    "CACHE_VARIABLE",
    "append",
    "cache_folder",
    "folder_problem",
    "kept_folder",
    "locked",
    "program_cache_folder",
    "recall",
    "remember",
    "rewrite",
    "warn_once",
    "warn_unkept",
]

log = logging.getLogger(__name__)

CACHE_VARIABLE = "CLGEMM_CACHE_DIR"
LOCK_SECONDS = 30  # for others that write; each takes milliseconds


def cache_folder() -> Path:
    """Return the folder of everything that is kept between runs; it need not exist yet."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder) if folder else platformdirs.user_cache_path("clgemm")


def kept_folder() -> Path:
    """Return the cache folder; if it is the system's and cannot be written, a temporary one.

    The temporary folder is this user's own, and the same for all processes.
    """
    folder = cache_folder()
    if os.environ.get(CACHE_VARIABLE) or _is_writable(folder):
        return folder
    user = os.getuid() if hasattr(os, "getuid") else ""
    temporary = Path(tempfile.gettempdir()) / f"clgemm-{user}"
    with contextlib.suppress(OSError):
        temporary.mkdir(mode=0o700, exist_ok=True)
        status = temporary.lstat()
        # Nobody else may have made it, or may write to it.
        if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077:
            return temporary
    return folder


def _is_writable(folder: Path) -> bool:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def folder_problem() -> str:
    """Return why nothing can be kept in the folder, "" if nothing speaks against it."""
    folder = cache_folder()
    if not folder.exists() or folder.is_dir():
        return ""
    named = f"{CACHE_VARIABLE}=" if os.environ.get(CACHE_VARIABLE) else "the cache folder "
    return f"{named}{folder} is a file, not a folder"


def warn_unkept(path: Path, error: OSError, consequence: str) -> None:
    """Log that a file cannot be written, why, and what happens now.

    If that is so of the whole folder, one warning says it for everything.
    """
    if problem := folder_problem():
        warn_once(f"{problem}: nothing is kept between runs")
        return
    reason = error.strerror or error
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = "a file lies where a folder has to be"
    log.warning("%s cannot be written (%s): %s", path, reason, consequence)


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning that a process need not repeat."""
    log.warning("%s", message)


def program_cache_folder() -> Path:
    """Return the folder of compiled programs (some drivers keep their own instead)."""
    return cache_folder() / "programs"


def locked(path: Path, seconds: float = LOCK_SECONDS) -> FileLock:
    """Return a lock, to be held in a ``with`` block, that goes with a file; its folder is made.

    Raises
    ------
    OSError
        If there can be no such folder. From the block: if there can be no file in it, or others
        hold the lock for so long.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(path.name + ".lock"), timeout=seconds)


def rewrite(path: Path, change: Callable[[str | None], str]) -> None:
    """Replace a text file by what `change` makes of its text, of None if there is no file yet.

    Whole or not at all, and one after another, whoever else is writing.

    Raises
    ------
    OSError
        If it cannot be written; the file is as it was.
    """
    with locked(path):
        try:
            old = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            old = None
        text = change(old)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=path.stem, suffix=".new", delete=False
        ) as file:
            new = Path(file.name)
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # before the name is: a crash may not leave it empty
            except OSError:
                new.unlink()
                raise
        new.replace(path)


def append(path: Path, line: str) -> None:
    """Add a line to a file, making both it and its folder.

    Raises
    ------
    OSError
        If that cannot be done.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def recall(key: str) -> Any:
    """Return what was found out on this machine before; None if nothing was.

    Whoever asks checks that it is what may be expected: a user's file may hold anything.
    """
    try:
        return json.loads(_verdicts_path().read_text(encoding="utf-8")).get(key)
    except OSError:
        return None
    except (ValueError, AttributeError):
        warn_once(f"{_verdicts_path()} is broken: what it held is found out anew")
        return None


def remember(key: str, verdict: Any) -> bool:
    """Keep what was found out, anything that JSON can hold, if there is a folder to keep it in.

    Returns
    -------
    bool
        Whether there is.
    """

    def added(old: str | None) -> str:
        try:
            known = dict(json.loads(old or "{}"))
        except (ValueError, TypeError):
            known = {}
        return json.dumps(known | {key: verdict}, indent=1)

    try:
        rewrite(_verdicts_path(), added)
    except OSError as error:
        warn_unkept(_verdicts_path(), error, "what was found out on this machine is not kept")
        return False
    return True


def _verdicts_path() -> Path:
    return kept_folder() / "verdicts.json"
