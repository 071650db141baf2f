"""A choice: the config of a product's kernel, and those by which its operands are packed. Pure."""

from __future__ import annotations

from typing import NamedTuple

from clgemm.core.config import KernelConfig

__all__ = ["Choice"]


class Choice(NamedTuple):
    """The config that makes a product, and how its operands are packed for it."""

    config: KernelConfig
    pack: tuple[KernelConfig, ...] | None = None
