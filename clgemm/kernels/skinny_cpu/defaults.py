"""The default config of the skinny_cpu family. Pure."""

from __future__ import annotations

from clgemm.kernels.skinny_cpu.config import SkinnyCpuConfig

__all__ = ["skinny_config"]


def skinny_config(rows: int, width: int, can_prefetch: bool) -> SkinnyCpuConfig:
    """Return the config that multiplies by an operand of few rows."""
    return SkinnyCpuConfig(
        rows=1 if rows == 1 else 4,
        vectors=8 if rows == 1 else 4,
        width=width,
        strip=64 * width,
        chunk=32,
        prefetch=8 if can_prefetch else 0,
        fma=False,
    )
