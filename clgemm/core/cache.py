"""The cache folder: where it is, and how files in it are read and replaced."""

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
LOCK_SECONDS = 30  # the longest wait for another writer, which holds the lock for milliseconds


def cache_folder() -> Path:
    """Return the folder for all files that outlive a process; it may not exist yet."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder) if folder else platformdirs.user_cache_path("clgemm")


def kept_folder() -> Path:
    """Return the cache folder, or a temporary folder if the default one cannot be written.

    All processes of a user share the temporary folder. A folder that CLGEMM_CACHE_DIR names is
    never replaced.
    """
    folder = cache_folder()
    if os.environ.get(CACHE_VARIABLE) or _is_writable(folder):
        return folder
    user = os.getuid() if hasattr(os, "getuid") else ""
    temporary = Path(tempfile.gettempdir()) / f"clgemm-{user}"
    with contextlib.suppress(OSError):
        temporary.mkdir(mode=0o700, exist_ok=True)
        status = temporary.lstat()
        # Another user could have made this folder first: use it only if it is ours alone.
        if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077:
            return temporary
    return folder


def _is_writable(folder: Path) -> bool:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def folder_problem() -> str:
    """Return why the cache folder cannot hold files, or "" if it can."""
    folder = cache_folder()
    if not folder.exists() or folder.is_dir():
        return ""
    named = f"{CACHE_VARIABLE}=" if os.environ.get(CACHE_VARIABLE) else "the cache folder "
    return f"{named}{folder} is a file, not a folder"


def warn_unkept(path: Path, error: OSError, consequence: str) -> None:
    """Log that a file cannot be written, why, and what follows.

    If the whole folder is unusable, log that once a process instead.
    """
    if problem := folder_problem():
        warn_once(f"{problem}: nothing is kept between runs")
        return
    reason = error.strerror or error
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = "a file is where a folder must be"
    log.warning("%s cannot be written (%s): %s", path, reason, consequence)


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning, once a process."""
    log.warning("%s", message)


def program_cache_folder() -> Path:
    """Return the folder for compiled programs; some drivers use a folder of their own instead."""
    return cache_folder() / "programs"


def locked(path: Path, seconds: float = LOCK_SECONDS) -> FileLock:
    """Return a lock for a file, for use in a ``with`` block, and create the file's folder.

    Parameters
    ----------
    seconds : float, optional
        The longest wait for other processes that hold the lock.

    Raises
    ------
    OSError
        If the folder cannot be created. On entering the block: if the lock's file cannot be
        created, or if the wait takes longer than `seconds`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_name(path.name + ".lock"), timeout=seconds)


def rewrite(path: Path, change: Callable[[str | None], str]) -> None:
    """Replace the text of a file atomically, also while other processes write to it.

    Parameters
    ----------
    change : callable
        Takes the old text, or None if there is no file, and returns the new text.

    Raises
    ------
    OSError
        If the file cannot be written; it is then unchanged.
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
                # Without this, a crash could leave an empty file under the new name.
                os.fsync(file.fileno())
            except OSError:
                new.unlink()
                raise
        new.replace(path)


def read_entries(path: Path, field: str, version: int, advice: str) -> dict[str, Any]:
    """Return the entries of a JSON file by key, unchecked: a user may edit it.

    Empty if there is no file. If it is broken or of another version, a warning gives the advice.

    Parameters
    ----------
    field : str
        The name under which the file holds its entries.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    held = _entries_in(text, field, version)
    if held is None:
        warn_once(f"{path} {advice}")
    return held or {}


def keep_entry(
    path: Path, field: str, version: int, key: str, make: Callable[[Any], Any], lost: str
) -> None:
    """Store an entry of a file that `read_entries` reads; the others stay.

    Parameters
    ----------
    make : callable
        Takes the old entry, or None, and returns the new one.
    lost : str
        What a warning says if the file cannot be written.
    """

    def changed(old: str | None) -> str:
        held = (_entries_in(old, field, version) if old else None) or {}
        entries = held | {key: make(held.get(key))}
        return json.dumps({"format": version, field: entries}, indent=1)

    try:
        rewrite(path, changed)
    except OSError as error:
        warn_unkept(path, error, lost)


def _entries_in(text: str, field: str, version: int) -> dict[str, Any] | None:
    """Return the entries in a file's text; None if it is broken or of another version."""
    try:
        whole = json.loads(text)
        return dict(whole[field]) if whole["format"] == version else None
    except (ValueError, TypeError, KeyError):
        return None


def append(path: Path, line: str) -> None:
    """Add a line to a file; create the file and its folder if they do not exist.

    Raises
    ------
    OSError
        If the folder or the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def recall(key: str) -> Any:
    """Return the verdict stored under a key on this machine, or None.

    The caller must check its type: a user may edit the file.
    """
    try:
        return json.loads(_verdicts_path().read_text(encoding="utf-8")).get(key)
    except OSError:
        return None
    except (ValueError, AttributeError):
        warn_once(f"{_verdicts_path()} is broken: its verdicts are found again")
        return None


def remember(key: str, verdict: Any) -> bool:
    """Store a verdict under a key, if the folder can be written.

    Parameters
    ----------
    verdict : object
        Anything that JSON can hold.

    Returns
    -------
    bool
        Whether the verdict was stored.
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
        warn_unkept(_verdicts_path(), error, "verdicts about this machine are not kept")
        return False
    return True


def _verdicts_path() -> Path:
    return kept_folder() / "verdicts.json"
