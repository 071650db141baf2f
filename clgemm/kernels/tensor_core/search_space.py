"""The search space of the families of tensor cores. Pure."""

from __future__ import annotations

from clgemm.kernels.common.family import Choice, SearchSpace, Sketch, changed, values_of
from clgemm.kernels.tensor_core.config import TensorConfig

__all__ = ["search_space"]


def search_space(config: TensorConfig) -> SearchSpace:
    """Return the space. `config` has the values of the fields that are not searched."""
    every: dict[str, tuple[int, ...]] = {
        "tile_n": (128, 256),
        "stages": (1, 2, 3, 4),
        "swizzle": (1, 2, 4, 8, 16, 32),
    }
    # How operands are split, and whether with a guard, depends on the call: it is not searched.
    values = {name: value for name, value in every.items() if hasattr(config, name)}
    tiles: Sketch = {("tile_n", "stages"): ((256, 2), (128, 3), (128, 2), (128, 4))}
    coarse = (tiles if "tile_n" in values else {}) | {("swizzle",): ((4,), (16,))}

    def make(point: dict[str, int]) -> Choice:
        return Choice(changed(config, point))

    couples = (("tile_n", "stages"),) if "tile_n" in values else ()

    def read(choice: Choice) -> dict[str, int]:
        return values_of(choice.config, values)

    return SearchSpace(values, couples, coarse, make, read)
