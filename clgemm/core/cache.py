"""Caches: the folder of files that outlive a process, and the registry of those in memory.

A cache in memory that depends on records, measured times or verdicts is registered here by the
module that owns it, so that `forget_plans` clears it. A cache that holds devices, contexts or
queues and nothing that goes out of date is registered for `release_contexts`.

Modules that take long to import are imported where they are needed: each program imports this one.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from filelock import FileLock

log = logging.getLogger(__name__)

CACHE_VARIABLE = "CLGEMM_CACHE_DIR"
UNFINISHED = ".new"  # the end of the names of files that are being written
VERDICT, MOST_VERDICTS = ".json", 20_000  # the end of the names of verdicts' files
UNFINISHED_SECONDS = 3600  # the age from which on such a file has no living writer
LOCK_SECONDS = 30  # the longest wait for another writer, which holds the lock for milliseconds


def cache_folder() -> Path:
    """Return the folder for all files that outlive a process; it may not exist yet."""
    return _usual_folder() or temporary_folder()


def _usual_folder() -> Path | None:
    """Return the folder that the user or the system names; None for a user without a home."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(os.path.expanduser(folder))  # noqa: PTH111 - without a home it is left as it is
    try:
        if sys.platform == "linux":  # as platformdirs, which takes long to import
            named = Path(os.environ.get("XDG_CACHE_HOME", "").strip())
            return (named if named.is_absolute() else Path.home() / ".cache") / "clgemm"
        import platformdirs

        return platformdirs.user_cache_path("clgemm")
    except RuntimeError:
        return None


def kept_folder() -> Path:
    """Return the cache folder, or a temporary folder if the default one cannot be written.

    All processes of a user share the temporary folder. A folder that CLGEMM_CACHE_DIR names is
    never replaced.
    """
    folder = _usual_folder()
    if folder is not None and (os.environ.get(CACHE_VARIABLE) or is_writable(folder)):
        return folder
    temporary = temporary_folder()
    if is_private(temporary):
        return temporary
    return folder or Path(os.devnull) / "clgemm"  # nothing is kept there


def temporary_folder(place: str | None = None) -> Path:
    """Return this user's folder in a place that all users share, by default the system's."""
    import tempfile

    return Path(place or tempfile.gettempdir(), f"clgemm-{getattr(os, 'getuid', str)()}")


def is_private(folder: Path) -> bool:
    """Make a folder in a place that all users share. Return whether it is this user's alone.

    Another user could have made it first.
    """
    import stat

    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    user = getattr(os, "getuid", str)()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077


def nearest(folder: Path) -> Path:
    """Return a folder, or the nearest above it that exists; OSError if it may not be looked for."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def is_writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, which need not exist yet."""
    try:
        existing = nearest(folder)
        return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    except OSError:  # a name that is too long, or a folder that may not be looked into
        return False


def folder_problem() -> str:
    """Return why the cache folder cannot hold files, or "" if it can."""
    folder = cache_folder()
    try:
        if not folder.exists() or folder.is_dir():
            return ""
    except OSError as error:
        return f"the cache folder {folder} cannot be used ({error.strerror})"
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
    return kept_folder() / "programs"


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
    from filelock import FileLock  # it takes long to import

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
        replace(path, change(old).encode(), is_durable=True)


def recall(key: str) -> Any:
    """Return the verdict stored under a key on this machine, or None.

    The caller must check its type: a user may edit the file.
    """
    import json

    try:
        entry = json.loads(_verdict_file(key).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # the last for thousands of brackets
        return None
    return entry.get("verdict") if isinstance(entry, dict) and entry.get("key") == key else None


def remember(key: str, verdict: Any) -> bool:
    """Store a verdict under a key, if the folder can be written; None deletes it.

    Each verdict is a file of its own, so that processes that store different ones need no lock.

    Parameters
    ----------
    verdict : object
        Anything that JSON can hold.

    Returns
    -------
    bool
        Whether the verdict was stored.
    """
    import json

    path = _verdict_file(key)
    try:
        if verdict is None:
            path.unlink(missing_ok=True)
            return True
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, json.dumps({"key": key, "verdict": verdict}).encode())
    except OSError as error:
        warn_unkept(path.parent, error, "verdicts about this machine are not kept")
        return False
    return True


def remembered(beginning: str) -> list[tuple[str, Any]]:
    """Return the keys that begin so, with their verdicts."""
    import json

    found = []
    for path in _verdict_file("").parent.glob(f"*{VERDICT}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            entry = json.loads(path.read_text(encoding="utf-8"))
            if entry["key"].startswith(beginning):
                found.append((entry["key"], entry["verdict"]))
    return found


def make_room_for_verdicts() -> None:
    """Remove the oldest verdicts if there are very many, and files that were left unfinished."""
    make_room(_verdict_file("").parent, VERDICT, MOST_VERDICTS)


def _verdict_file(key: str) -> Path:
    import hashlib

    return kept_folder() / "verdicts" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def replace(path: Path, content: bytes, is_durable: bool = False) -> None:
    """Write a file atomically: no process sees a part of it.

    Parameters
    ----------
    is_durable : bool, optional
        Whether to wait for the disk. Without, a crash of the system could leave an empty file.

    Raises
    ------
    OSError
        If the file cannot be written; it is then unchanged.
    """
    import tempfile

    descriptor, name = tempfile.mkstemp(UNFINISHED, path.stem[:16], path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def make_room(
    folder: Path, suffix: str, most_files: int, most_bytes: float = math.inf, size_bytes: int = 0
) -> None:
    """Remove a folder's oldest files, so that it has room for another one.

    Files that processes have left unfinished, such as killed ones, are removed, too.

    Parameters
    ----------
    suffix : str
        The end of the names of the files that count.
    size_bytes : int, optional
        The size of the other one.
    """
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process may have removed it
                status = entry.stat()
                if entry.name.endswith(suffix):
                    found.append((status.st_mtime, status.st_size, entry.path))
                elif (
                    entry.name.endswith(UNFINISHED)
                    and time.time() - status.st_mtime > UNFINISHED_SECONDS
                ):
                    _remove(entry.path)
    found.sort(reverse=True)
    total = size_bytes
    for count, (_, size, path) in enumerate(found, 1):
        total += size
        if count >= most_files or total > most_bytes:
            _remove(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # another process may have removed it
        os.unlink(path)  # noqa: PTH108 - `scandir` gives paths as text


class _Cached(Protocol):
    """A function that `functools.lru_cache` or `functools.cache` has wrapped."""

    def cache_clear(self) -> None: ...


F = TypeVar("F", bound=_Cached)
K = TypeVar("K")
V = TypeVar("V")

# The functions that clear the caches. A module registers its own on import, after the modules that
# it imports. So a cleared cache is never filled again from one that is still out of date.
_clearers: list[Callable[[], object]] = []
_holders: list[Callable[[], object]] = []


def on_forget(clear: Callable[[], object]) -> None:
    """Register a function that clears a cache."""
    _clearers.append(clear)


def forgettable(cached: F) -> F:
    """Register a cached function: a decorator above ``functools.lru_cache``."""
    on_forget(cached.cache_clear)
    return cached


def forget_plans() -> None:
    """Clear all registered caches, so that the next calls are planned anew."""
    for clear in _clearers:
        clear()


def holds_contexts(cached: F) -> F:
    """Register a cached function that keeps contexts alive: a decorator as `forgettable`."""
    _holders.append(cached.cache_clear)
    return cached


def release_contexts() -> None:
    """Clear all caches that keep contexts alive; those still in use are found or made again."""
    forget_plans()
    for clear in _holders:
        clear()


def note(notes: dict[K, V], key: K, value: V, most: int) -> None:
    """Keep a value by its key. With `most` values, all are dropped first: no order is kept."""
    if len(notes) >= most:
        notes.clear()
    notes[key] = value
