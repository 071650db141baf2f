"""The search space of the skinny_cpu family. Pure."""

from __future__ import annotations

from dataclasses import replace

from clgemm.core.traits import Traits
from clgemm.kernels.common.family import FLAGS, Choice, SearchSpace, changed, values_of
from clgemm.kernels.pack.plan import PackConfig
from clgemm.kernels.skinny_cpu.config import SkinnyCpuConfig

__all__ = ["search_space"]


def search_space(config: SkinnyCpuConfig, copy: PackConfig, traits: Traits) -> SearchSpace:
    """Return the space. The arguments have the values of the fields that are not searched."""
    values = {
        "rows": (1, 2, 4, 8),
        "vectors": (1, 2, 4, 8),
        "width": tuple(w for w in (2, 4, 8, 16) if w <= traits.limits.vector_width),
        "spans": (1, 2, 4, 8, 16, 32),
        "chunk": (8, 16, 32, 64, 128),
        "prefetch": (0, 4, 8, 16) if traits.is_vector_compiler else (0,),
        "fma": FLAGS,
        "copy_depth": (64, 256, 1024),
    }
    coarse = {
        ("spans",): ((8,),),
        ("rows", "vectors"): ((1, 8), (4, 4), (8, 2), (4, 1)),
        ("width",): tuple((width,) for width in values["width"][-2:]),
    }

    def make(point: dict[str, int]) -> Choice:
        strip = point["spans"] * point["vectors"] * point["width"]
        made = changed(config, point | {"strip": strip})
        return Choice(made, (replace(copy, depth=point["copy_depth"]),))

    def read(choice: Choice) -> dict[str, int]:
        made = choice.config
        assert isinstance(made, SkinnyCpuConfig)
        assert choice.pack is not None
        assert isinstance(choice.pack[0], PackConfig)
        spans = made.strip // (made.vectors * made.width)
        return values_of(made, values) | {"spans": spans, "copy_depth": choice.pack[0].depth}

    couples = ("rows", "vectors"), ("vectors", "spans")
    return SearchSpace(values, couples, coarse, make, read)
