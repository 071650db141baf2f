"""The blocked family: blocks of C in vector registers, panels in the caches, for CPUs. Pure."""

from __future__ import annotations

from dataclasses import replace

from clgemm.core.plan import Plan
from clgemm.core.problem import Problem, Shape
from clgemm.core.traits import Traits
from clgemm.kernels.blocked.config import BlockedConfig
from clgemm.kernels.blocked.plan import is_faster_transposed, make_blocked_plan
from clgemm.kernels.common.family import (
    FLAGS,
    PANEL_SAMPLES,
    Choice,
    Fallback,
    Family,
    SearchSpace,
    changed,
    values_of,
)
from clgemm.kernels.pack.plan import VectorPackConfig, vector_pack_config

__all__ = ["BLOCKED", "register_config"]

MOST_ROWS = 512  # of a block of A in an edge shape


def register_config(width: int, can_prefetch: bool, fma: bool) -> BlockedConfig:
    """Return the config whose accumulators fill the vector registers of a CPU core.

    A register holds one vector of `width` floats. The registers that the accumulators leave free
    hold a row of B and an element of A. Sixteen floats are AVX-512 (32 registers), eight AVX (16),
    four NEON (32) and SSE (16). Three vectors a row need the fewest loads: 11 loads for 24
    multiply-adds.

    `fma` depends on the compiler. Intel's makes a slower kernel without it where A is read in
    place. With it, Intel's spills registers unless one stays free, and with AVX also if A is
    prefetched. PoCL 3.0 aborts on `fma` of vectors wider than those that it compiles for.
    """
    work_m, vectors = {16: (8, 3), 8: (6, 2) if fma else (4, 3)}.get(width, (4, 2))
    return BlockedConfig(
        work_m=work_m,
        vectors=vectors,
        width=width,
        block_m=4096 // work_m,
        block_n=144 // (vectors * width),
        block_k=1024 if width == 16 else 512,
        unroll=8,
        prefetch=8 if can_prefetch else 0,
        prefetch_a=64 if can_prefetch and width == 16 else 0,
        in_place=True,
        aliasing=1024,  # floats: rows so far apart share a set of a first-level cache
        fma=fma,
    )


def _with_packing(config: BlockedConfig) -> Choice:
    return Choice(config, (vector_pack_config(config.tile_m, config.prefetch > 0),))


class Blocked(Family[BlockedConfig, VectorPackConfig]):
    """Blocks of C in vector registers, panels in the caches, for CPUs."""

    config = BlockedConfig
    packs = (VectorPackConfig,)  # of A: work-groups pack B themselves
    stores_columns = True
    for_vectors = True
    shapes = PANEL_SAMPLES

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return the config whose accumulators fill the registers."""
        config = register_config(traits.register_width, traits.is_vector_compiler, traits.wants_fma)
        # Many cores lose more time waiting for packing than rows that share sets of a cache cost.
        return (_with_packing(replace(config, aliasing=0) if traits.has_many_cores else config),)

    def plainest(self, traits: Traits) -> Choice:
        """Return a config with vectors of two floats."""
        return _with_packing(register_config(2, False, False))

    def panels(self, config: BlockedConfig) -> tuple[int, ...]:
        """Return the rows of panels of A."""
        return (config.tile_m,)

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launch that multiplies, after one that packs A if A is large."""
        config, pack = self.config_of(choice), self.packing(choice)
        return make_blocked_plan(*problem.layouts, config, pack, traits.limits)

    def is_faster_transposed(self, problem: Problem, choice: Choice, traits: Traits) -> bool:
        """Return whether packing and storing cost less for ``C' = B' A'``."""
        return is_faster_transposed(*problem.layouts, self.config_of(choice), traits.limits)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        config = self.config_of(default)
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
            made, (pack,) = self.config_of(choice), self.packing(choice)
            return values_of(made, values) | {
                "block_rows": made.block_m * made.tile_m,
                "block_columns": made.block_n * made.tile_n,
                "pack_rows": pack.panels * pack.panel,
                "pack_prefetch": int(pack.prefetch),
            }

        return SearchSpace(values, couples, coarse, make, read)

    def edge_shapes(self, config: BlockedConfig) -> list[Shape]:
        """Return sizes around a panel, and around a block of panels."""
        m, n, k = config.tile_m, config.tile_n, config.block_k
        return [
            Shape(m + 1, 2 * n - 1, 37),
            Shape(m * min(config.block_m, MOST_ROWS // m) + m + 1, n + 1, 9),
            Shape(2 * m - 1, n * config.block_n + 3, k + 1),
            Shape(m, n, 16),
            Shape(3, 5, 4 * k + 1),
            Shape(m + 3, n - 1, 21, 5),
        ]


BLOCKED = Blocked()
