"""The outer_product family: the products that it suits, its defaults, its launches. Pure."""

from __future__ import annotations

from clgemm.core.config import KernelConfig
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import Plan
from clgemm.core.traits import Traits
from clgemm.kernels.common.family import Choice, Fallback, Family, Samples, SearchSpace
from clgemm.kernels.outer_product.config import DEPTHS, OuterProductConfig
from clgemm.kernels.outer_product.defaults import outer_config
from clgemm.kernels.outer_product.plan import begins_aligned, make_outer_plan
from clgemm.kernels.outer_product.search_space import search_space

__all__ = ["OUTER_PRODUCT"]

# The longest k where rows of C begin aligned. Elsewhere tiles would write parts of blocks of
# memory, so there a longer one pays.
LONGEST_IF_ALIGNED = 8


class OuterProduct(Family[OuterProductConfig, KernelConfig]):
    """Products with a short k, on devices that spread work-items over lanes."""

    config = OuterProductConfig
    is_modelled = True

    def runs_on(self, traits: Traits) -> bool:
        """Run where work-items spread over lanes."""
        return not traits.has_vectors

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the default where k is short."""
        return self.defaults(problem.shape, traits) if self.fits(problem) else ()

    def fits(self, problem: Problem) -> bool:
        """Tell whether k is short."""
        longest = LONGEST_IF_ALIGNED if begins_aligned(problem.c) else DEPTHS[-1]
        return 0 < problem.k <= longest

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return one config, whatever the shape: the plan fits it to the shape."""
        return (Choice(outer_config(traits.limits)),)

    def plainest(self, traits: Traits) -> Choice:
        """Return one element of C for each work-item, and few work-items."""
        return Choice(OuterProductConfig(items_m=1, items_n=8, work_m=1, work_n=1, fma=False))

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return one launch, or more where a batch has many loops."""
        return make_outer_plan(*problem.layouts, self.config_of(choice), traits.limits)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the space of work-items and the work of each."""
        return search_space(self.config_of(default))

    def samples(self, kind: str) -> Samples:
        """Return none: no shape class has a short k alone, and its default is near the limit."""
        return {}

    def edge_shapes(self, config: OuterProductConfig) -> list[Shape]:
        """Return sizes around a tile, and each depth."""
        m, n = config.tile
        return [
            Shape(m + 1, 2 * n - 1 or 1, 1),
            Shape(m, n, 4),
            Shape(2 * m - 1, n + 1, 3, 7),
            Shape(1, 1, 2),
            Shape(3 * m + 2, n // 2 + 1, 6),
            Shape(m // 2 + 1, 3 * n + 5, 8),
            Shape(2 * m, n // 4 or 1, 7, 3),
            Shape(m + 3, n + 2, 5),
            # Few, since simulators are slow: the check of a device makes each of these.
            Shape(m // 8 + 3, n // 2 + 5, 16),
            Shape(7, n // 4 + 3, 11),
        ]


OUTER_PRODUCT = OuterProduct()
