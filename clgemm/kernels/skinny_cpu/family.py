"""The skinny_cpu family: the products that it takes, its defaults, its launches. Pure."""

from __future__ import annotations

from dataclasses import replace

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
from clgemm.kernels.common.in_place import MOST_ROWS, MOST_ROWS_ON_CPU, fits_few_rows
from clgemm.kernels.pack.plan import PackConfig, copy_config
from clgemm.kernels.skinny_cpu.config import SkinnyCpuConfig
from clgemm.kernels.skinny_cpu.defaults import skinny_config
from clgemm.kernels.skinny_cpu.plan import make_skinny_plan
from clgemm.kernels.skinny_cpu.search_space import search_space

__all__ = ["SKINNY_CPU"]


class SkinnyCpu(Family[SkinnyCpuConfig, PackConfig]):
    """Products with few rows or columns; reads the large operand once. For CPUs."""

    config = SkinnyCpuConfig
    packs = (PackConfig,)  # for the operand of few rows, which is copied row by row
    takes_any_strides = False
    is_modelled = True

    def runs_on(self, traits: Traits) -> bool:
        """Run where work-items have vectors."""
        return traits.has_vectors

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the default where C has few rows or columns."""
        return self.defaults(problem.shape, traits) if self.fits(problem) else ()

    def fits(self, problem: Problem) -> bool:
        """Tell whether C has few rows or columns and the large operand is contiguous."""
        return fits_few_rows(*problem.layouts, MOST_ROWS_ON_CPU)

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return one config for a single row, another for several."""
        few = min(shape.m, shape.n)
        config = skinny_config(few, traits.register_width, traits.is_vector_compiler)
        return (Choice(config, (copy_config(traits.limits),)),)

    def plainest(self, traits: Traits) -> Choice:
        """Return a config with vectors of two floats."""
        config = replace(skinny_config(4, 2, False), vectors=1, strip=64)
        return Choice(config, (copy_config(traits.limits),))

    def panels(self, config: SkinnyCpuConfig) -> tuple[int, ...]:
        """Return 1: rows are copied one by one."""
        return (1,)

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launch that multiplies; before it a copy and after it a sum, where needed."""
        (copy,) = self.packing(choice)
        return make_skinny_plan(*problem.layouts, self.config_of(choice), copy, traits.limits)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the space of vectors and strips."""
        (copy,) = self.packing(default)
        return search_space(self.config_of(default), copy, traits)

    def samples(self, kind: str) -> Samples:
        """Return shapes of few rows or columns."""
        return FEW_ROWS_SAMPLES

    def edge_shapes(self, config: SkinnyCpuConfig) -> list[Shape]:
        """Return sizes around a strip and a chunk."""
        strip, chunk = config.strip, config.chunk
        sizes = (
            (1, strip + config.vectors * config.width + 1, 2 * chunk + 1),
            (min(config.rows + 1, MOST_ROWS), strip - 1, chunk - 1 or 1),
            (MOST_ROWS - 1, 37, 1501),
            (config.rows, strip, chunk),
        )
        return [Shape(*each) for each in sizes]


SKINNY_CPU = SkinnyCpu()
