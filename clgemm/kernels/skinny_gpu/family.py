"""The skinny_gpu family: the products that it suits, its defaults, its launches. Pure."""

from __future__ import annotations

from dataclasses import replace

from clgemm.core.config import KernelConfig
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import Plan
from clgemm.core.traits import Traits
from clgemm.kernels.common.family import (
    FEW_ROWS_SAMPLES,
    Choice,
    Fallback,
    Family,
    Samples,
    SearchSpace,
)
from clgemm.kernels.common.in_place import LEAST_WORK, MOST_ROWS, fits_few_rows
from clgemm.kernels.skinny_gpu.config import SkinnyGpuConfig
from clgemm.kernels.skinny_gpu.defaults import MOST_LANES_ROWS, skinny_lanes_config
from clgemm.kernels.skinny_gpu.plan import make_skinny_plan
from clgemm.kernels.skinny_gpu.search_space import search_space

__all__ = ["SKINNY_GPU"]

# On NVIDIA's GPUs: loads in flight, for all rows together; work-items, and those of them that lie
# side by side along a row of B.
LOADS_AHEAD = 8
GROUP = 256
ABREAST = 32

SAMPLES = FEW_ROWS_SAMPLES | {
    "tall": (Shape(4096, 2, 4096), Shape(16384, 2, 1024)),
    "wide": (Shape(2, 4096, 4096), Shape(2, 16384, 1024)),
}


class SkinnyGpu(Family[SkinnyGpuConfig, KernelConfig]):
    """Products with few rows or columns, on devices that spread work-items over lanes."""

    config = SkinnyGpuConfig
    is_modelled = True
    takes_any_strides = False

    def runs_on(self, traits: Traits) -> bool:
        """Run where work-items spread over lanes."""
        return not traits.has_vectors

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Suit products with at most two rows or columns: with more, tiles are faster."""
        m, n, k, _ = problem.shape
        few = min(m, n) <= MOST_LANES_ROWS
        return n * m * k > LEAST_WORK and few and self.fits(problem)

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the default where C has few rows or columns and the kernel can read it."""
        m, n, k, _ = problem.shape
        fits = min(m, n) <= MOST_ROWS and k > 0 and self.fits(problem)
        return self.defaults(problem.shape, traits) if fits else ()

    def fits(self, problem: Problem) -> bool:
        """Tell whether C has few rows or columns and the large operand is contiguous."""
        return fits_few_rows(*problem.layouts)

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return a config for this number of rows or columns."""
        config = skinny_lanes_config(min(shape.m, shape.n), traits.limits)
        if traits.is_nvidia and config.rows <= MOST_LANES_ROWS:
            # NVIDIA's caches serve few rows as fast as local memory, without barriers.
            group = min(config.group, GROUP)
            ahead = LOADS_AHEAD // config.rows
            abreast = min(ABREAST, group)
            config = replace(config, group=group, abreast=abreast, chunk=0, ahead=ahead)
        return (Choice(config),)

    def plainest(self, traits: Traits) -> Choice:
        """Return a config with loads of one float."""
        return Choice(replace(skinny_lanes_config(4, traits.limits), width=1))

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launch that multiplies, and with split-k one that adds up."""
        return make_skinny_plan(*problem.layouts, self.config_of(choice), traits.limits)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the space of work-groups and loads."""
        return search_space(self.config_of(default))

    def samples(self, kind: str) -> Samples:
        """Return shapes of at most two rows or columns, and vectors."""
        return SAMPLES

    def edge_shapes(self, config: SkinnyGpuConfig) -> list[Shape]:
        """Return sizes around a strip and a chunk, or loads in flight where there is no chunk."""
        strip, chunk = config.strip, config.chunk or config.ahead * config.width
        sizes = (
            (1, strip + 1, 2 * chunk + 1),
            (min(config.rows + 1, MOST_ROWS), 2 * strip - 1, chunk - 1 or 1),
            (MOST_ROWS - 1, 37, 1501),
            (config.rows, 2 * strip, chunk),
        )
        return [Shape(*each) for each in sizes]


SKINNY_GPU = SkinnyGpu()
