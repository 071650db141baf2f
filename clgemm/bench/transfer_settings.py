"""Transfer settings as text, such as ``threads=16,chunk_bytes=4MiB``."""

from __future__ import annotations

from dataclasses import fields, replace

from clgemm.core.transfer_config import TransferConfig

__all__ = ["changed", "forced", "parsed"]

MOST_FORCED_BYTES = 2**32


def forced(threads: int, memory_bytes: int) -> TransferConfig:
    """Return settings for a device that shares the host's memory and needs no transfers."""
    return TransferConfig(memory_bytes=min(memory_bytes, MOST_FORCED_BYTES), threads=threads)


def parsed(text: str) -> dict[str, int]:
    """Return settings from ``name=value`` pairs, separated by commas.

    Values are whole numbers, of bytes also as ``4MiB`` or ``512KiB``.

    Raises
    ------
    ValueError
        If there is no such setting or its value is no whole number; the message names it.
    """
    found: dict[str, int] = {}
    known = [field.name for field in fields(TransferConfig)]
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or name not in known:
            raise ValueError(f"{item!r} is not name=value with one of {', '.join(known)}")
        try:
            found[name] = _value(value)
        except ValueError:
            raise ValueError(f"{name}={value!r} is not a whole number") from None
    return found


def changed(config: TransferConfig, settings: dict[str, int]) -> TransferConfig:
    """Return a config with some settings changed, by the names of `parsed`."""
    config = replace(config, **settings)
    if config.pool_chunks < 2 * config.chunks:
        config = replace(config, pool_chunks=2 * config.chunks)
    return config


def _value(text: str) -> int:
    for suffix, factor in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)):
        if text.endswith(suffix):
            return int(float(text.removesuffix(suffix)) * factor)
    return int(text)
