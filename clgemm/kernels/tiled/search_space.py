"""The search space of the tiled family. Pure."""

from __future__ import annotations

import math

from clgemm.core.config import Limits
from clgemm.kernels.common.family import FLAGS, Choice, SearchSpace, changed, values_of
from clgemm.kernels.pack.plan import PackConfig
from clgemm.kernels.tiled.config import TiledConfig

__all__ = ["search_space"]

MOST_SUMS = 144  # of a work-item: with more, compilers take minutes and kernels spill registers


def search_space(config: TiledConfig, limits: Limits) -> SearchSpace:
    """Return the space. `config` has the values of the fields that are not searched."""
    # A point gives a tile by its work-items and the work of each, so that either can change alone.
    items, work, widths = (2, 4, 8, 16, 32), (2, 4, 6, 8, 12, 16), (1, 2, 4, 8)
    values = {
        "items_m": items,
        "items_n": items,
        "work_m": work,
        "work_n": work,
        "tile_k": (4, 8, 16, 32),
        "width_a": widths,
        "width_b": widths,
        "grid_n": (1, 2, 4, 8, 16),
        "rolled": (1, 2, 4, 8),  # iterations of the loop over a tile's depth
        "buffers": (1, 2, 3, 4) if limits.asynchronous_copies else (1, 2),
        "swizzle": (1, 2, 4, 8, 16),
        "parts": (1, 2, 4),
        "fma": FLAGS,
        "asynchronous": FLAGS if limits.asynchronous_copies else (0,),
        "registers": (0, 80, 96, 128, 144, 168) if limits.asynchronous_copies else (0,),
        "in_place": FLAGS,
        "percent": (100,),  # only the defaults were measured
        "pack_depth": (8, 16, 32, 64),
        "pack_group": (1, 32, 64, 128, 256, 512),
    }
    couples = (
        *(("items_m", "items_n"), ("items_m", "work_m"), ("items_n", "work_n")),
        *(("work_m", "work_n"), ("work_m", "tile_k"), ("work_n", "tile_k")),
        *(("width_a", "width_b"), ("tile_k", "rolled"), ("tile_k", "buffers")),
        *(("parts", "items_m"), ("parts", "items_n"), ("parts", "tile_k")),
        *(("asynchronous", "buffers"), ("asynchronous", "tile_k"), ("registers", "buffers")),
    )
    nearly_square = tuple(
        (items_m, items_n, work_m, work_n)
        for work_m, work_n in ((4, 4), (8, 8), (16, 8), (8, 4), (4, 8), (8, 16))
        for items_m, items_n in ((8, 8), (16, 16), (8, 16), (16, 8))
        if 1 / 2 <= items_m * work_m / (items_n * work_n) <= 2
    )
    coarse = {("tile_k",): ((8,), (16,)), ("items_m", "items_n", "work_m", "work_n"): nearly_square}

    def make(point: dict[str, int]) -> Choice | None:
        if point["work_m"] * point["work_n"] > MOST_SUMS:
            return None
        tile_m, tile_n = (point[f"items_{x}"] * point[f"work_{x}"] for x in "mn")
        made = changed(
            config,
            point
            | {
                "tile_m": tile_m,
                "tile_n": tile_n,
                "width_a": math.gcd(point["width_a"], point["work_m"]),
                "width_b": math.gcd(point["width_b"], point["work_n"]),
                "grid_n": math.gcd(point["grid_n"], point["items_n"]),
                "unroll": max(1, point["tile_k"] // point["rolled"]),
            },
        )
        depth, group = point["pack_depth"], point["pack_group"]
        pack = tuple(PackConfig(panel, depth, group) for panel in (made.tile_m, made.tile_n))
        return Choice(made, (pack[0], pack[1]))

    def read(choice: Choice) -> dict[str, int]:
        made, pack = choice.config, choice.pack
        assert isinstance(made, TiledConfig)
        assert pack is not None
        assert isinstance(pack[0], PackConfig)
        return values_of(made, values) | {
            "rolled": made.tile_k // made.unroll,
            "pack_depth": pack[0].depth,
            "pack_group": pack[0].group,
        }

    return SearchSpace(values, couples, coarse, make, read)
