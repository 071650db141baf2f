"""The default configs that pack operands or copy a matrix. Pure."""

from __future__ import annotations

from clgemm.core.config import Limits
from clgemm.kernels.pack.config import PackConfig, VectorPackConfig

__all__ = ["copy_config", "pack_config", "vector_pack_config"]

LARGEST_GROUP = 256  # work-items per work-group where they spread over lanes
ROWS_PER_GROUP = 384  # of A, per work-group that transposes


def pack_config(limits: Limits, panel: int) -> PackConfig:
    """Return the config that packs panels of `panel` rows."""
    if limits.has_vectors:
        return PackConfig(panel=panel, depth=64, group=1)
    return PackConfig(panel=panel, depth=16, group=min(LARGEST_GROUP, limits.work_group_size))


def vector_pack_config(panel: int, prefetch: bool) -> VectorPackConfig:
    """Return the config that packs panels of A by vectors."""
    return VectorPackConfig.of(panel, ROWS_PER_GROUP, prefetch)


def copy_config(limits: Limits) -> PackConfig:
    """Return the config that copies a matrix row by row."""
    group = 1 if limits.has_vectors else min(LARGEST_GROUP, limits.work_group_size)
    return PackConfig(panel=1, depth=256, group=group)
