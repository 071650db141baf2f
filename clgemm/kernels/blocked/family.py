"""The blocked family: its defaults and its launches. Pure."""

from __future__ import annotations

from dataclasses import replace

from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import Plan
from clgemm.core.traits import Traits
from clgemm.kernels.blocked.config import BlockedConfig
from clgemm.kernels.blocked.defaults import register_config
from clgemm.kernels.blocked.plan import is_faster_transposed, make_blocked_plan
from clgemm.kernels.blocked.search_space import search_space
from clgemm.kernels.common.family import (
    PANEL_SAMPLES,
    Choice,
    Fallback,
    Family,
    Samples,
    SearchSpace,
)
from clgemm.kernels.pack.plan import VectorPackConfig, vector_pack_config

__all__ = ["BLOCKED"]

MOST_ROWS = 512  # of a block of A in an edge shape


def _with_packing(config: BlockedConfig) -> Choice:
    return Choice(config, (vector_pack_config(config.tile_m, config.prefetch > 0),))


class Blocked(Family[BlockedConfig, VectorPackConfig]):
    """Blocks of C in vector registers, panels in the caches, for CPUs."""

    config = BlockedConfig
    packs = (VectorPackConfig,)  # of A: work-groups pack B themselves
    stores_columns = True
    is_modelled = True

    def runs_on(self, traits: Traits) -> bool:
        """Run where work-items have vectors."""
        return traits.has_vectors

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the default, for every product."""
        return self.defaults(problem.shape, traits)

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
        """Tell whether packing and storing cost less for ``C' = B' A'``."""
        return is_faster_transposed(*problem.layouts, self.config_of(choice), traits.limits)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the space of blocks, vectors and packing."""
        return search_space(self.config_of(default), traits)

    def samples(self, kind: str) -> Samples:
        """Return shapes of each class."""
        return PANEL_SAMPLES

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
