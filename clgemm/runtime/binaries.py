"""Compiled programs on disk: a program that was built once is loaded in later runs.

A file is written whole or not at all, under the hash of what it was made from. So there is no lock,
and a process that dies leaves none behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyopencl as cl
from pyopencl.characterize import has_src_build_cache

from clgemm.core.cache import program_cache_folder

__all__ = ["are_cached", "key_of", "load", "store"]

log = logging.getLogger(__name__)

SUFFIX, UNFINISHED = ".clbin", ".new"
# What the folder may hold before the files that were used longest ago make way.
MOST_FILES, MOST_BYTES = 2000, 2**28
UNFINISHED_SECONDS = 3600  # after which a file that was never finished is nobody's
_warned: set[str] = set()


def are_cached(device: cl.Device) -> bool:
    """Tell whether clgemm caches binaries for a device; some drivers cache their own."""
    switched_off = getattr(cl, "_PYOPENCL_NO_CACHE", False)  # by the environment
    return not switched_off and not has_src_build_cache(device)


def key_of(device: cl.Device, source: str, options: Sequence[str]) -> str:
    """Return the name of a program's binary: of all that it is made of, and by whom."""
    platform = device.platform
    parts = (
        *(cl.VERSION_TEXT, platform.name, platform.vendor, platform.version),
        *(device.vendor, device.name, device.version, device.driver_version, device.extensions),
        *(os.environ.get("PYOPENCL_BUILD_OPTIONS", ""), *options, source),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def load(key: str) -> bytes | None:
    """Return a cached binary; None if there is none, or what is there is not what was written."""
    path = _path(key)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    seal, binary = content[: len(_seal(key, b""))], content[len(_seal(key, b"")) :]
    if not binary or seal != _seal(key, binary):
        log.debug("%s is damaged", path)
        return None
    with contextlib.suppress(OSError):  # a folder that is only read
        os.utime(path)
    return binary


def store(key: str, binary: bytes) -> None:
    """Store a binary; warn once if no folder can hold it."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_room(path.parent)
        descriptor, name = tempfile.mkstemp(suffix=UNFINISHED, prefix=key[:16], dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_seal(key, binary) + binary)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"compiled programs are not kept: {reason} in {path.parent}"
        if message not in _warned:
            _warned.add(message)
            log.warning("%s", message)


def _path(key: str) -> Path:
    return program_cache_folder() / (key + SUFFIX)


def _seal(key: str, binary: bytes) -> bytes:
    """Return what a file begins with: drivers may crash on binaries that were cut or changed."""
    return hashlib.sha256(key.encode() + binary).digest()


def _make_room(folder: Path) -> None:
    """Remove what was used longest ago while there is too much, and what was never finished."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith((SUFFIX, UNFINISHED)):
                continue
            with contextlib.suppress(OSError):  # another process has removed it
                found.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
    found.sort(reverse=True)
    total = 0
    for count, (modified, size, path) in enumerate(found, 1):
        total += size
        abandoned = path.endswith(UNFINISHED) and time.time() - modified > UNFINISHED_SECONDS
        if abandoned or count >= MOST_FILES or total > MOST_BYTES:
            with contextlib.suppress(OSError):
                Path(path).unlink()
