"""The default config of the outer_product family. Pure."""

from __future__ import annotations

from clgemm.core.config import Limits
from clgemm.kernels.outer_product.config import OuterProductConfig

__all__ = ["outer_config"]


def outer_config(limits: Limits) -> OuterProductConfig:
    """Return the config for a device of these limits."""
    items_n = min(32, limits.work_group_size)
    items_m = min(8, limits.work_group_size // items_n)
    return OuterProductConfig(items_m, items_n, work_m=32, work_n=4, fma=False)
