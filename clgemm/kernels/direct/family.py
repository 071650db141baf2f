"""The direct family: the small products that it suits, its defaults, its launches. Pure."""

from __future__ import annotations

from clgemm.core.config import KernelConfig
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import Plan
from clgemm.core.traits import Traits
from clgemm.kernels.common.family import Choice, Fallback, Family, Samples, SearchSpace
from clgemm.kernels.direct.config import DirectConfig
from clgemm.kernels.direct.defaults import direct_config
from clgemm.kernels.direct.plan import make_direct_plan
from clgemm.kernels.direct.search_space import search_space

__all__ = ["DIRECT"]

# Multiply-adds of each product, up to which packing costs more than it saves, where expected times
# do not hold.
SMALL = 32**3
MODELLED_WORK = 2**26  # multiply-adds, up to which its time was fitted

SAMPLES = {
    "tiny": (Shape(12, 12, 12), Shape(32, 32, 32)),
    "batched": (Shape(12, 12, 12, 2000), Shape(32, 32, 32, 1000)),
}
GPU_SAMPLES = SAMPLES | {
    "small": (Shape(64, 64, 64), Shape(96, 96, 96)),
    "batched": (Shape(12, 12, 12, 2000), Shape(16, 16, 16, 1000)),
}


class Direct(Family[DirectConfig, KernelConfig]):
    """One launch that reads operands of any strides in place, for small products."""

    config = DirectConfig
    is_modelled = True

    def runs_on(self, traits: Traits) -> bool:
        """Run on every device."""
        return True

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Suit products that are too small to pack."""
        m, n, k, _ = problem.shape
        return m * n * k <= SMALL

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the default for all products but those that take long in any case."""
        shape = problem.shape
        return self.defaults(shape, traits) if shape.work <= MODELLED_WORK else ()

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return one config, whatever the shape."""
        return (Choice(direct_config(traits.limits)),)

    def plainest(self, traits: Traits) -> Choice:
        """Return one element of C for each work-group."""
        return Choice(DirectConfig(items_m=1, items_n=1, work_m=1, width=1, fma=False))

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return one launch, or more where a batch has many loops."""
        return make_direct_plan(*problem.layouts, self.config_of(choice))

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the space of work-items and the work of each."""
        return search_space(self.config_of(default), traits)

    def samples(self, kind: str) -> Samples:
        """Return small shapes; on GPUs larger ones too."""
        return SAMPLES if kind == "CPU" else GPU_SAMPLES

    def edge_shapes(self, config: DirectConfig) -> list[Shape]:
        """Return sizes around a work-group's block of C."""
        m, n = config.items_m * config.work_m, config.items_n * config.width
        return [
            Shape(m + 1, 2 * n - 1 or 1, 7),
            Shape(m, n, 8),
            Shape(1, 1, 1),
            Shape(2 * m - 1, n + 1, 33, 7),
        ]


DIRECT = Direct()
