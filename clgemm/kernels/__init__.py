"""The kernel families: one folder for each, with its configs, plans and OpenCL C.

This is the registry. A new family is a folder, its import here and its place in `FAMILIES`.
"""

from __future__ import annotations

from typing import Any

from clgemm.kernels.blocked.family import BLOCKED
from clgemm.kernels.cached.family import CACHED
from clgemm.kernels.common.family import Family
from clgemm.kernels.direct.family import DIRECT
from clgemm.kernels.exact.family import Exact
from clgemm.kernels.exact.types import RESULTS_NAMED
from clgemm.kernels.outer_product.family import OUTER_PRODUCT
from clgemm.kernels.skinny_cpu.family import SKINNY_CPU
from clgemm.kernels.skinny_gpu.family import SKINNY_GPU
from clgemm.kernels.tensor_core.family import MMA, WGMMA
from clgemm.kernels.tensor_core.narrow import NARROW
from clgemm.kernels.tiled.family import TILED

__all__ = ["FAMILIES", "NAMED", "OTHER_DTYPES", "family_named"]

# In order: where expected times do not hold, the first that runs on the device and suits the
# product is used. Where they hold, the first whose plan takes hardly longer than an empty launch.
FAMILIES: tuple[Family[Any, Any], ...] = (
    NARROW,
    WGMMA,
    MMA,
    SKINNY_GPU,
    DIRECT,
    SKINNY_CPU,
    OUTER_PRODUCT,
    TILED,
    CACHED,
    BLOCKED,
)

# Of the kernels for each other dtype, by its name.
OTHER_DTYPES = {dtype: Exact(dtype) for dtype in RESULTS_NAMED}
NAMED: dict[str, Family[Any, Any]] = {
    family.name: family for family in (*FAMILIES, *OTHER_DTYPES.values())
}


def family_named(name: str) -> Family[Any, Any]:
    """Return the family of this name, as records and messages use it.

    Raises
    ------
    KeyError
        If there is none.
    """
    return NAMED[name]
