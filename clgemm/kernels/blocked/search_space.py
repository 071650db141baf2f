"""The search space of the blocked family. Pure."""

from __future__ import annotations

from clgemm.core.traits import Traits
from clgemm.kernels.blocked.config import BlockedConfig
from clgemm.kernels.common.family import FLAGS, Choice, SearchSpace, changed, values_of
from clgemm.kernels.pack.plan import VectorPackConfig

__all__ = ["search_space"]


def search_space(config: BlockedConfig, traits: Traits) -> SearchSpace:
    """Return the space. `config` has the values of the fields that are not searched."""
    distances = (0, 8, 16, 32) if traits.is_vector_compiler else (0,)
    values = {
        "work_m": (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14),
        "vectors": (1, 2, 3),
        "width": tuple(w for w in (4, 8, 16) if w <= traits.limits.vector_width) or (2,),
        "block_rows": (256, 512, 1024, 4096),
        "block_columns": (48, 96, 144, 192, 256, 384),
        "block_k": (256, 384, 512, 768, 1024, 1536),
        "unroll": (1, 2, 4, 8),
        "prefetch": distances,
        "prefetch_a": (0, 32, 64, 128) if traits.is_vector_compiler else (0,),
        "in_place": FLAGS,
        "fma": FLAGS,
        "pack_rows": (64, 128, 256, 384, 768),
        "pack_prefetch": FLAGS if traits.is_vector_compiler else (0,),
    }
    couples = ("work_m", "vectors"), ("vectors", "width"), ("block_rows", "block_columns")
    coarse = {
        ("width",): tuple((width,) for width in values["width"]),
        # A compiler that contracts a * b + c by itself may do so less well for a given tile.
        ("fma",): tuple((flag,) for flag in FLAGS),
        ("work_m", "vectors"): ((8, 3), (4, 3), (6, 2), (12, 2), (12, 1), (4, 2)),
    }

    def make(point: dict[str, int]) -> Choice:
        # Points give blocks in rows and columns, which do not depend on the size of the panels.
        tile_m, tile_n = point["work_m"], point["vectors"] * point["width"]
        blocks = {
            "block_m": max(1, point["block_rows"] // tile_m),
            "block_n": max(1, point["block_columns"] // tile_n),
        }
        made = changed(config, point | blocks)
        pack = VectorPackConfig.of(tile_m, point["pack_rows"], bool(point["pack_prefetch"]))
        return Choice(made, (pack,))

    def read(choice: Choice) -> dict[str, int]:
        made, pack = choice.config, choice.pack
        assert isinstance(made, BlockedConfig)
        assert pack is not None
        assert isinstance(pack[0], VectorPackConfig)
        return values_of(made, values) | {
            "block_rows": made.block_m * made.tile_m,
            "block_columns": made.block_n * made.tile_n,
            "pack_rows": pack[0].panels * pack[0].panel,
            "pack_prefetch": int(pack[0].prefetch),
        }

    return SearchSpace(values, couples, coarse, make, read)
