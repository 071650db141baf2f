"""The families of products by few rows: what suits them, their defaults, their launches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clgemm.core.config import KernelConfig
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import Plan
from clgemm.core.traits import Traits
from clgemm.kernels.common.choice import Choice
from clgemm.kernels.common.family import Fallback, Family, Samples
from clgemm.kernels.common.search_space import SearchSpace
from clgemm.kernels.pack.config import PackConfig
from clgemm.kernels.pack.defaults import copy_config
from clgemm.kernels.skinny.config import SkinnyConfig, SkinnyLanesConfig
from clgemm.kernels.skinny.defaults import MOST_LANES_ROWS, skinny_config, skinny_lanes_config
from clgemm.kernels.skinny.plan import MOST_ROWS, fits_skinny, make_skinny_plan
from clgemm.kernels.skinny.search_space import lanes_search_space, search_space

__all__ = ["SKINNY_CPU", "SKINNY_GPU"]

LEAST_WORK = 4096  # multiply-adds, above which it is worth to cut them up
LOADS_AHEAD = 8  # under way at once on NVIDIA's GPUs, of all rows together

SAMPLES = {
    "vector": (Shape(1, 4096, 4096), Shape(4096, 1, 4096)),
    "tall": (Shape(4096, 4, 4096), Shape(8192, 8, 1024)),
    "wide": (Shape(4, 4096, 4096), Shape(8, 8192, 1024)),
}
LANES_SAMPLES = SAMPLES | {
    "tall": (Shape(4096, 2, 4096), Shape(16384, 2, 1024)),
    "wide": (Shape(2, 4096, 4096), Shape(2, 16384, 1024)),
}


def _shapes(sizes: Sequence[tuple[int, int, int]]) -> list[Shape]:
    return [Shape(*each) for each in sizes]


class SkinnyCpu(Family[SkinnyConfig, PackConfig]):
    """An operand of few rows, the other read by vectors, for CPUs."""

    config = SkinnyConfig
    packs = (PackConfig,)  # of the operand of few rows, copied row by row
    takes_any_strides = False

    def runs_on(self, traits: Traits) -> bool:
        """Run where work-items have vectors."""
        return traits.has_vectors

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Make what has few rows or columns."""
        m, n, k, _ = problem.shape
        return n * m * k > LEAST_WORK and self.fits(problem)

    def fits(self, problem: Problem) -> bool:
        """Tell whether one operand has few rows and the other lies along rows or columns."""
        return fits_skinny(*problem.layouts)

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return one config for a single row, another for several."""
        few = min(shape.m, shape.n)
        config = skinny_config(few, traits.register_width, traits.is_vector_compiler)
        return (Choice(config, (copy_config(traits.limits),)),)

    def plainest(self, traits: Traits) -> Choice:
        """Return vectors of two floats."""
        config = replace(skinny_config(4, 2, False), vectors=1, strip=64)
        return Choice(config, (copy_config(traits.limits),))

    def panels(self, config: SkinnyConfig) -> tuple[int, ...]:
        """Return 1: rows are copied one by one."""
        return (1,)

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return a launch that multiplies, one that copies before, one that adds up after."""
        (copy,) = self.packing(choice)
        return make_skinny_plan(*problem.layouts, self.own(choice), copy, traits.limits)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the space of vectors and strips."""
        (copy,) = self.packing(default)
        return search_space(self.own(default), copy, traits)

    def samples(self, kind: str) -> Samples:
        """Return shapes of few rows or columns."""
        return SAMPLES

    def edge_shapes(self, config: SkinnyConfig) -> list[Shape]:
        """Return sizes around a strip and a chunk."""
        strip, chunk = config.strip, config.chunk
        sizes = (
            (1, strip + config.vectors * config.width + 1, 2 * chunk + 1),
            (min(config.rows + 1, MOST_ROWS), strip - 1, chunk - 1 or 1),
            (MOST_ROWS - 1, 37, 1501),
            (config.rows, strip, chunk),
        )
        return _shapes(sizes)


class SkinnyGpu(Family[SkinnyLanesConfig, KernelConfig]):
    """The same for devices that spread work-items over lanes."""

    config = SkinnyLanesConfig
    takes_any_strides = False

    def runs_on(self, traits: Traits) -> bool:
        """Run where work-items spread over lanes."""
        return not traits.has_vectors

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Make what has at most two rows or columns: tiles are faster with more."""
        m, n, k, _ = problem.shape
        few = min(m, n) <= MOST_LANES_ROWS
        return n * m * k > LEAST_WORK and few and self.fits(problem)

    def fits(self, problem: Problem) -> bool:
        """Tell whether one operand has few rows and the other lies along rows or columns."""
        return fits_skinny(*problem.layouts)

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return a config for as many rows as there are."""
        config = skinny_lanes_config(min(shape.m, shape.n), traits.limits)
        if traits.is_nvidia and config.rows <= MOST_LANES_ROWS:
            # Its caches serve few rows as fast as local memory, and without barriers.
            config = replace(config, chunk=0, ahead=LOADS_AHEAD // config.rows)
        return (Choice(config),)

    def plainest(self, traits: Traits) -> Choice:
        """Return loads of one float."""
        return Choice(replace(skinny_lanes_config(4, traits.limits), width=1))

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return a launch that multiplies, and one that adds up where k is cut."""
        return make_skinny_plan(*problem.layouts, self.own(choice), None, traits.limits)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the space of work-groups and loads."""
        return lanes_search_space(self.own(default))

    def samples(self, kind: str) -> Samples:
        """Return shapes of at most two rows or columns, and vectors."""
        return LANES_SAMPLES

    def edge_shapes(self, config: SkinnyLanesConfig) -> list[Shape]:
        """Return sizes around a strip and a chunk."""
        strip, chunk = config.strip, config.chunk
        sizes = (
            (1, strip + 1, 2 * chunk + 1),
            (min(config.rows + 1, MOST_ROWS), 2 * strip - 1, chunk - 1 or 1),
            (MOST_ROWS - 1, 37, 1501),
            (config.rows, 2 * strip, chunk),
        )
        return _shapes(sizes)


SKINNY_CPU = SkinnyCpu()
SKINNY_GPU = SkinnyGpu()
