"""Claims: files that a process locks to reserve a device.

The operating system unlocks a file when its process ends. So if a worker is killed, its successor
finds the device free.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

__all__ = ["Claim", "claim_first"]

MOST_SHARED = 64  # the most processes with a claim on one device; others have none


class Claim:
    """Resources of this machine that this process holds until `release` or its end.

    Attributes
    ----------
    position : int
        The index of the claimed candidate.
    others : int
        How many other processes had claimed it before.
    """

    def __init__(self, position: int, others: int, locks: Sequence[FileLock]) -> None:
        self.position, self.others = position, others
        self._locks = locks

    def release(self) -> None:
        """Release the resources for other processes."""
        for lock in self._locks:
            lock.release(force=True)


def claim_first(candidates: Sequence[Sequence[str]], folder: Path | None = None) -> Claim:
    """Claim the first candidate that no process of this user holds.

    If every candidate is held, claim the first of those that the fewest processes hold.

    Parameters
    ----------
    candidates : sequence of sequences of str
        For each candidate the names of its resources. They are claimed together.
    folder : Path, optional
        The folder of the files. The default is one for each user, in the system's folder for
        temporary files.
    """
    folder = folder or _folder()
    for others in range(MOST_SHARED):
        for position, names in enumerate(candidates):
            locks = _locked([folder / _file_name(name, others) for name in names])
            if locks is not None:
                return Claim(position, others, locks)
    return Claim(0, MOST_SHARED, ())


def _folder() -> Path:
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may have users without a name
        user = "nobody"
    return (
        Path(tempfile.gettempdir()) / f"clgemm-claims-{hashlib.sha1(user.encode()).hexdigest()[:8]}"
    )


def _file_name(name: str, others: int) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.{others}.lock"


def _locked(files: Sequence[Path]) -> list[FileLock] | None:
    """Lock all files; return None if one of them is locked already.

    If the folder cannot be written, no file is locked, and the list is empty.
    """
    held: list[FileLock] = []
    try:
        for file in files:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Another thread may release it.
            lock = FileLock(file, thread_local=False)
            lock.acquire(timeout=0)
            held.append(lock)
    except Timeout:
        for lock in held:
            lock.release(force=True)
        return None
    except (OSError, NotImplementedError):
        with contextlib.suppress(OSError):
            for lock in held:
                lock.release(force=True)
        return []
    return held
