"""A choice: the config of a product's kernel and the configs that pack its operands. Pure."""

from __future__ import annotations

from typing import NamedTuple

from clgemm.core.config import KernelConfig

__all__ = ["Choice"]


class Choice(NamedTuple):
    """The config of a product's kernel, and the configs that pack its operands."""

    config: KernelConfig
    pack: tuple[KernelConfig, ...] | None = None
