"""The search space of the skinny_gpu family. Pure."""

from __future__ import annotations

from clgemm.kernels.common.family import FLAGS, SearchSpace, space_of_fields
from clgemm.kernels.skinny_gpu.config import SkinnyGpuConfig

__all__ = ["search_space"]


def search_space(config: SkinnyGpuConfig) -> SearchSpace:
    """Return the space. `config` has the values of the fields that are not searched."""
    values: dict[str, tuple[int, ...]] = {
        "rows": (1, 2, 4, 8),
        "width": (1, 2, 4, 8),
        "group": (32, 64, 128, 256, 512, 1024),
        "abreast": (2, 4, 8, 16, 32, 64),
        "chunk": (64, 128, 256, 512, 1024, 2048, 4096),
        "fma": FLAGS,
        "ahead": (1, 2, 4, 6, 8),
    }
    coarse = {
        ("rows", "chunk"): ((1, 1024), (1, 4096), (2, 512), (2, 2048), (4, 256), (8, 128)),
        ("width",): ((4,), (2,)),
        ("group", "abreast"): ((1024, 8), (256, 8), (256, 32), (1024, 32)),
    }

    couples = ("rows", "chunk"), ("group", "abreast"), ("group", "ahead")

    return space_of_fields(config, values, couples, coarse)
