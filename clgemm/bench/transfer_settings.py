"""Transfer settings as text, such as ``threads=16,locking.loads=0.5``."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from clgemm.core.locking import Locking
from clgemm.core.transfer import TransferConfig

__all__ = ["GROUPS", "changed", "forced", "parsed"]

MOST_FORCED_BYTES = 2**32

# What to try, by what it changes. Each group's settings add to those that were best before it.
GROUPS = {
    "copies": (
        "threads=4",
        "threads=12",
        "threads=16",
        "caller_copies=no",
        "threads=12,caller_copies=no",
        "threads=16,caller_copies=no",
    ),
    "chunks": (
        "chunk_bytes=1MiB,chunks=16",
        "chunk_bytes=2MiB,chunks=16",
        "chunk_bytes=2MiB,chunks=32",
        "chunk_bytes=4MiB,chunks=8",
        "chunk_bytes=4MiB,chunks=32",
        "chunk_bytes=8MiB,chunks=16",
        "chunk_bytes=16MiB,chunks=8",
    ),
    "locking": (
        "locking.results=1",
        "locking.loads=0.5",
        "locking.loads=1",
        "locking.loads=0.5,locking.results=0.5",
        "locking.loads=0.5,locking.results=1",
        "locking.loads=1,locking.results=1",
    ),
    # What a thread of its own locks does not delay the caller.
    "locking thread": (
        "locking.in_thread=yes,locking.loads=0.5",
        "locking.in_thread=yes,locking.loads=1",
        "locking.in_thread=yes,locking.results=1",
        "locking.in_thread=yes,locking.loads=0.35,locking.results=0.5",
        "locking.in_thread=yes,locking.loads=0.5,locking.results=0.5",
        "locking.in_thread=yes,locking.loads=0.5,locking.results=0.5,prefault=populate",
        "locking.in_thread=yes,locking.loads=0.5,locking.results=1,prefault=populate",
    ),
    "way to lock": (
        "locking.transfer=map",
        "locking.transfer=buffer",
        "locking.region_bytes=2MiB",
        "locking.region_bytes=8MiB,chunk_bytes=8MiB",
        "locking.region_bytes=16MiB,chunk_bytes=16MiB,chunks=8",
    ),
    "new pages": ("prefault=touch", "prefault=populate"),
    "locking again": (
        "locking.loads=0,locking.results=0",
        "locking.loads=0.35",
        "locking.loads=0.7",
        "locking.results=0",
        "locking.results=0.5",
        "locking.held_bytes=64MiB",
    ),
    "tiles": (
        "ramp=1",
        "ramp=2",
        "tiles=16",
        "tiles=16,ramp=2",
        "square=2",
        "square=4",
        "square=8",
    ),
    "edges": ("edge_bytes=1MiB", "edge_bytes=512KiB", "edge_bytes=256KiB"),
    "copies again": ("threads=8", "threads=12", "threads=16,caller_copies=no"),
}


def forced(threads: int, memory_bytes: int) -> TransferConfig:
    """Return settings for a device that shares the host's memory and needs no transfers."""
    return TransferConfig(memory_bytes=min(memory_bytes, MOST_FORCED_BYTES), threads=threads)


def parsed(text: str) -> dict[str, Any]:
    """Return settings from ``name=value`` pairs, separated by commas.

    Values are numbers, of bytes also as ``4MiB`` or ``512KiB``, or ``yes`` and ``no``, or words.

    Raises
    ------
    ValueError
        If there is no such setting or the value is of another type; the message names it.
    """
    found: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        known = _known()
        if not equals or name not in known:
            raise ValueError(f"{item!r} is not name=value with one of {', '.join(known)}")
        try:
            found[name] = _value(value, known[name])
        except ValueError:
            kind = type(known[name]).__name__
            raise ValueError(f"{name}={value!r} is not of type {kind}") from None
    return found


def changed(config: TransferConfig, settings: dict[str, Any]) -> TransferConfig:
    """Return a config with some settings changed, by the names of `parsed`.

    Raises
    ------
    ValueError
        If a value is out of its range.
    """
    prefix = "locking."
    inner = {n.removeprefix(prefix): v for n, v in settings.items() if n.startswith(prefix)}
    outer = {name: value for name, value in settings.items() if not name.startswith(prefix)}
    if inner:
        outer["locking"] = replace(config.locking, **inner)
    config = replace(config, **outer)
    if config.pool_chunks < 2 * config.chunks:
        config = replace(config, pool_chunks=2 * config.chunks)
    return config


def _known() -> dict[str, Any]:
    """Return all settings by name, with a value of their type."""
    sample = TransferConfig(memory_bytes=1, threads=1)
    outer = {f.name: getattr(sample, f.name) for f in fields(sample) if f.name != "locking"}
    return outer | {f"locking.{f.name}": getattr(Locking(), f.name) for f in fields(Locking)}


def _value(text: str, sample: Any) -> Any:
    if isinstance(sample, bool):
        if text not in ("yes", "no"):
            raise ValueError
        return text == "yes"
    if isinstance(sample, float):
        return float(text)
    if isinstance(sample, int):
        for suffix, factor in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)):
            if text.endswith(suffix):
                return int(float(text.removesuffix(suffix)) * factor)
        return int(text)
    return text
