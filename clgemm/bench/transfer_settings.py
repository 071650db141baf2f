"""Transfer settings as text, such as ``threads=16,locking.loads=0.5``."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from clgemm.core.locking import Locking
from clgemm.core.transfer import TransferConfig

__all__ = ["changed", "forced", "parsed"]

MOST_FORCED_BYTES = 2**32


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
