"""The default config of the skinny_gpu family. Pure."""

from __future__ import annotations

from clgemm.core.config import Limits
from clgemm.kernels.skinny_gpu.config import MOST_OF_A, SkinnyGpuConfig

__all__ = ["MOST_LANES_ROWS", "skinny_lanes_config"]

MOST_LANES_ROWS = 2  # rows or columns: with more, tiles in local memory are faster


def skinny_lanes_config(rows: int, limits: Limits) -> SkinnyGpuConfig:
    """Return the config that multiplies by an operand of few rows.

    Work-groups are as large as the device allows, as long as each work-item keeps its registers.
    They take at most 32 KiB of local memory.
    """
    rows = next(r for r in (1, 2, 4, 8) if r >= rows or r == 8)
    group = 1024 if rows <= MOST_LANES_ROWS else 256
    while group > limits.work_group_size or 16 * group > limits.local_memory_bytes // 2:
        group //= 2
    chunk = min(max(1024, 4 * group), MOST_OF_A * group) // rows
    return SkinnyGpuConfig(
        rows=rows, width=4, group=group, abreast=min(8, group), chunk=chunk, fma=False, ahead=4
    )
