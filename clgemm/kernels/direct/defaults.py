"""The default config of the direct family. Pure."""

from __future__ import annotations

from clgemm.core.config import Limits
from clgemm.kernels.direct.config import DirectConfig

__all__ = ["direct_config"]


def direct_config(limits: Limits) -> DirectConfig:
    """Return the config for a device of these limits."""
    if limits.has_vectors:
        return DirectConfig(
            items_m=1, items_n=1, work_m=4, width=min(limits.vector_width, 8), fma=False
        )
    return DirectConfig(items_m=8, items_n=8, work_m=2, width=2, fma=False)
