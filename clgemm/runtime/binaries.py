"""Compiled programs on disk: a program is built once, and later processes load it.

A file is written atomically, and its name is a hash of everything that determines the program. So
no lock is needed, and a process that dies leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pyopencl as cl
from pyopencl.characterize import has_src_build_cache

from clgemm.core.cache import make_room, program_cache_folder, replace

__all__ = ["are_cached", "key_of", "load", "store"]

log = logging.getLogger(__name__)

SUFFIX = ".clbin"
# Limits of the folder. The least recently used files are removed.
MOST_FILES = 2000
MOST_BYTES = 2**28
_warned: set[str] = set()


def are_cached(device: cl.Device) -> bool:
    """Tell whether clgemm caches binaries for a device; some drivers have a cache of their own."""
    switched_off = getattr(cl, "_PYOPENCL_NO_CACHE", False)  # set by the environment
    return not switched_off and not has_src_build_cache(device)


def key_of(device: cl.Device, source: str, options: Sequence[str]) -> str:
    """Return the name of a program's binary: a hash of its source, options, compiler and device."""
    platform = device.platform
    parts = (
        *(cl.VERSION_TEXT, platform.name, platform.vendor, platform.version),
        *(device.vendor, device.name, device.version, device.driver_version, device.extensions),
        *(os.environ.get("PYOPENCL_BUILD_OPTIONS", ""), *options, source),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def load(key: str) -> bytes | None:
    """Return a cached binary; None if there is none, or if its file was damaged."""
    path = _path(key)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    seal, binary = content[: len(_seal(key, b""))], content[len(_seal(key, b"")) :]
    if not binary or seal != _seal(key, binary):
        log.debug("%s is damaged", path)
        return None
    with contextlib.suppress(OSError):  # the folder may be read-only
        os.utime(path)
    return binary


def store(key: str, binary: bytes) -> None:
    """Store a binary; log one warning if it cannot be written."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = _seal(key, binary) + binary
        make_room(path.parent, SUFFIX, MOST_FILES, MOST_BYTES, len(content))
        replace(path, content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"compiled programs are not kept: {reason} in {path.parent}"
        if message not in _warned:
            _warned.add(message)
            log.warning("%s", message)


def _path(key: str) -> Path:
    return program_cache_folder() / (key + SUFFIX)


def _seal(key: str, binary: bytes) -> bytes:
    """Return the checksum at the start of a file; a driver may crash on a damaged binary."""
    return hashlib.sha256(key.encode() + binary).digest()
