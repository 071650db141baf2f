"""The search space of the direct family. Pure."""

from __future__ import annotations

from clgemm.core.traits import Traits
from clgemm.kernels.common.family import FLAGS, SearchSpace, Sketch, space_of_fields
from clgemm.kernels.direct.config import DirectConfig

__all__ = ["search_space"]


def search_space(config: DirectConfig, traits: Traits) -> SearchSpace:
    """Return the space. `config` has the values of the fields that are not searched."""
    vectors = traits.has_vectors
    items = (1, 2, 4, 8) if vectors else (1, 2, 4, 8, 16, 32)
    values: dict[str, tuple[int, ...]] = {
        "items_m": items,
        "items_n": items,
        "work_m": (1, 2, 3, 4, 6, 8),
        "width": (1, 2, 4, 8, 16),
        "fma": FLAGS,
    }
    couples = ("items_m", "items_n"), ("work_m", "width"), ("items_m", "work_m")
    coarse: Sketch = {
        ("items_m", "items_n"): ((1, 1), (4, 4)) if vectors else ((8, 8), (16, 16), (4, 16)),
        ("work_m", "width"): ((4, 8), (4, 4), (2, 16), (8, 4))
        if vectors
        else ((2, 2), (1, 1), (4, 4)),
    }

    return space_of_fields(config, values, couples, coarse)
