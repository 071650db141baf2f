"""The search space of the outer_product family. Pure."""

from __future__ import annotations

from clgemm.kernels.common.family import FLAGS, SearchSpace, Sketch, space_of_fields
from clgemm.kernels.outer_product.config import OuterProductConfig

__all__ = ["search_space"]


def search_space(config: OuterProductConfig) -> SearchSpace:
    """Return the space. `config` has the values of the fields that are not searched."""
    values: dict[str, tuple[int, ...]] = {
        "items_m": (1, 2, 4, 8, 16),
        "items_n": (8, 16, 32, 64, 128),
        "work_m": (1, 2, 4, 8, 16, 32),
        "work_n": (1, 2, 4),
        "fma": FLAGS,
    }
    couples = ("items_m", "items_n"), ("items_m", "work_m"), ("work_m", "work_n")
    coarse: Sketch = {
        ("items_m", "items_n"): ((8, 32), (8, 64), (16, 32), (4, 32)),
        ("work_m", "work_n"): ((32, 4), (16, 4), (16, 2), (32, 1)),
    }

    return space_of_fields(config, values, couples, coarse)
