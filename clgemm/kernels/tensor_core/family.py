"""The families of tensor cores: the products that suit, the defaults, the launches. Pure."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TypeVar

from clgemm.core.config import KernelConfig, variant_of
from clgemm.core.layout import batch_levels
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import Plan, round_up
from clgemm.core.traits import Traits
from clgemm.kernels.common.family import (
    GPU_PANEL_SAMPLES,
    Choice,
    Fallback,
    Family,
    Multiply,
    Samples,
    SearchSpace,
    tile_edges,
)
from clgemm.kernels.tensor_core.config import (
    TILE_DEPTH,
    MmaConfig,
    MmaVariant,
    TensorConfig,
    TensorVariant,
    WgmmaConfig,
    WgmmaVariant,
)
from clgemm.kernels.tensor_core.defaults import wgmma_configs
from clgemm.kernels.tensor_core.estimate import STEP_COLUMNS
from clgemm.kernels.tensor_core.narrow import fits_narrow, make_narrow_plan
from clgemm.kernels.tensor_core.narrow_config import NARROW_COLUMNS, NarrowConfig
from clgemm.kernels.tensor_core.plan import make_tensor_plan
from clgemm.kernels.tensor_core.search_space import search_space
from clgemm.kernels.tensor_core.trial import adds_coarsely, inexact

__all__ = ["MMA", "NARROW", "WGMMA"]

# k, from which on `"fast"` keeps its bound with low parts in int8: docs/tensor_cores.md.
LEAST_INT8_DEPTH = 2048
MOST_LAUNCHES = 256  # of a batch whose loops cannot be joined: each part has its own
# Expected times were fitted for products from here on.
LEAST_MODELLED_WORK = 2**24  # multiply-adds
LEAST_MODELLED_SIDE = 48  # of m and n
LEAST_NARROW, MOST_NARROW = 3, 640  # rows or columns of the narrow family
LEAST_NARROW_DEPTH = 128  # from which on the error bound is proved: docs/tensor_cores.md
# Products that try a config. The deep one has low parts in int8, and is cut along k.
TRIAL, DEEP_TRIAL, NARROW_TRIAL = Shape(700, 900, 713), Shape(300, 200, 5000), (700, 900)
SLACK = 1.1  # how many times faster a record's config may be than its expected time

SAMPLES = {
    "medium": (Shape(1000, 1000, 1000), Shape(1408, 1408, 1408)),
    "large": GPU_PANEL_SAMPLES["large"],
    "deep": (Shape(1024, 1024, 10240), Shape(1536, 1536, 16384)),
    "tall": (Shape(8192, 512, 1024), Shape(16384, 1024, 1024)),
    "wide": (Shape(512, 8192, 1024), Shape(1024, 16384, 1024)),
}

Config = TypeVar("Config", bound=TensorConfig)


def _has_wgmma(traits: Traits) -> bool:
    """Tell whether a device may have wgmma: compute capability 9.0 alone."""
    return traits.is_nvidia and traits.kind == "GPU" and traits.capability == (9, 0)


class Tensor(Family[Config, KernelConfig]):
    """Splits operands in two parts and multiplies them on tensor cores. For both instructions.

    Attributes
    ----------
    least_depth : int
        The least k, from which on the error bounds are proved: docs/tensor_cores.md.
    """

    is_modelled = True
    least_depth: int

    @abstractmethod
    def variant(self, config: Config, guard: bool, int8: bool = False) -> TensorVariant:
        """Return the config of one call."""

    def variant_for(self, problem: Problem, config: Config) -> TensorVariant:
        """Return the config of a call for this problem."""
        return self.variant(config, guard=problem.precision == "float32")

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return all defaults for products that are not small, unless the precision is strict."""
        m, n, k, _ = problem.shape
        is_able = _allows_splitting(problem) and k >= self.least_depth
        is_able = is_able and min(m, n) >= LEAST_MODELLED_SIDE
        is_able = is_able and _launches(problem) <= MOST_LAUNCHES
        return self.defaults(problem.shape, traits) if is_able else ()

    def slack(self, shape: Shape, traits: Traits) -> float:
        """Return little: the estimate is exact."""
        return SLACK

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return launches that split and multiply, and those of a fallback if data may need it."""
        config = self.variant_for(problem, self.config_of(choice))
        return make_tensor_plan(*problem.layouts, config, fallback, traits.limits)

    def trial_plan(
        self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback
    ) -> Plan:
        """Return launches by this config with a guard, and those of the fallback."""
        config = self.variant(self.config_of(choice), guard=True)
        return make_tensor_plan(*problem.layouts, config, fallback, traits.limits)

    def scope(self, problem: Problem, choice: Choice, traits: Traits) -> str:
        """Return the config of one call: each has a kernel of its own."""
        return repr(self.variant_for(problem, self.config_of(choice)))

    def fault(self, problem: Problem, choice: Choice, multiply: Multiply) -> str:
        """Return what is wrong on data of narrow and of wide range, and with fine sums."""
        variant = self.variant_for(problem, self.config_of(choice))
        shape = DEEP_TRIAL if variant.int8 else TRIAL
        found = inexact(multiply, shape, variant.guard)
        if self.instructions == "wgmma" and variant.guard:
            found = found or adds_coarsely(multiply) or adds_coarsely(multiply, tf32=True)
        return found

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the space of tiles and their order."""
        return search_space(self.config_of(default))

    def samples(self, kind: str) -> Samples:
        """Return large shapes."""
        return SAMPLES

    def edge_shapes(self, config: Config) -> list[Shape]:
        """Return sizes around a tile."""
        return tile_edges(config.tile_m, config.tile_columns, TILE_DEPTH)


def _allows_splitting(problem: Problem) -> bool:
    """Tell whether a product's precision allows split operands, and it is not small."""
    return problem.precision not in ("strict", None) and problem.shape.work >= LEAST_MODELLED_WORK


def _launches(problem: Problem) -> int:
    """Return how many parts of a batch need launches of their own."""
    return math.prod(level.count for level in batch_levels(*problem.layouts)[:-1])


class Wgmma(Tensor[WgmmaConfig]):
    """Uses wgmma: compute capability 9.0."""

    config = WgmmaConfig
    instructions = "wgmma"
    least_depth = 32  # the bounds hold for any k, but below this it is no faster

    def runs_on(self, traits: Traits) -> bool:
        """Run on compute capability 9.0."""
        return _has_wgmma(traits)

    def variant(self, config: WgmmaConfig, guard: bool, int8: bool = False) -> WgmmaVariant:
        """Return the config of one call."""
        return variant_of(WgmmaVariant, config, guard=guard, int8=int8)

    def variant_for(self, problem: Problem, config: WgmmaConfig) -> WgmmaVariant:
        """Return one with low parts in int8 where that is allowed and faster."""
        guard = problem.precision == "float32"
        return self.variant(config, guard, int8=not guard and problem.k >= LEAST_INT8_DEPTH)

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return the tiles with the shortest expected time, then the others."""
        return tuple(map(Choice, wgmma_configs(shape, traits.limits)))

    def plainest(self, traits: Traits) -> Choice:
        """Return narrow tiles, one at a time in local memory."""
        return Choice(WgmmaConfig(swizzle=1, tile_n=128, stages=1))


class Mma(Tensor[MmaConfig]):
    """Uses mma.sync: compute capability 8.0, and later ones of data-centre GPUs."""

    config = MmaConfig
    instructions = "mma"
    least_depth = 256

    def variant(self, config: MmaConfig, guard: bool, int8: bool = False) -> MmaVariant:
        """Return the config of one call."""
        return variant_of(MmaVariant, config, guard=guard, int8=int8)

    def runs_on(self, traits: Traits) -> bool:
        """Run where three products on tensor cores are faster than one on the other units.

        That excludes graphics cards, whose compute capability has a minor number above 0.
        """
        major, minor = traits.capability
        return traits.is_nvidia and traits.kind == "GPU" and major >= 8 and minor == 0

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return one config, whatever the shape."""
        return (Choice(MmaConfig(swizzle=8)),)

    def plainest(self, traits: Traits) -> Choice:
        """Return a config that visits tiles in row order."""
        return Choice(MmaConfig(swizzle=1))


class Narrow(Family[NarrowConfig, KernelConfig]):
    """Uses wgmma for few rows or columns. It splits the larger operand while loading it."""

    config = NarrowConfig
    is_modelled = True
    instructions = "wgmma"
    takes_any_strides = False

    def runs_on(self, traits: Traits) -> bool:
        """Run on compute capability 9.0."""
        return _has_wgmma(traits)

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the defaults for few rows or columns, unless the precision is strict."""
        short = min(problem.m, problem.n)
        is_able = _allows_splitting(problem) and problem.k >= LEAST_NARROW_DEPTH
        is_able = is_able and LEAST_NARROW <= short <= MOST_NARROW
        return self.defaults(problem.shape, traits) if is_able and self.fits(problem) else ()

    def fits(self, problem: Problem) -> bool:
        """Tell whether the larger operand has contiguous rows or columns."""
        return fits_narrow(*problem.layouts)

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return the fewest columns per tile that hold the shorter side.

        Where that needs many columns, return each of these, those with the least padding first.
        """
        short = min(shape.m, shape.n)
        if short <= STEP_COLUMNS:
            found = [min(columns for columns in NARROW_COLUMNS if columns >= short)]
        else:
            several = [columns for columns in NARROW_COLUMNS if columns >= STEP_COLUMNS]
            found = sorted(several, key=lambda columns: (round_up(short, columns), -columns))
        return tuple(Choice(NarrowConfig(columns, ahead=2)) for columns in found)

    def plainest(self, traits: Traits) -> Choice:
        """Return the fewest columns per tile."""
        return Choice(NarrowConfig(NARROW_COLUMNS[0], ahead=1))

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launch that multiplies, and with split-k one that adds up."""
        return make_narrow_plan(*problem.layouts, self.config_of(choice), traits.limits)

    def scope(self, problem: Problem, choice: Choice, traits: Traits) -> str:
        """Return the config: each has a kernel of its own."""
        return repr(choice)

    def fault(self, problem: Problem, choice: Choice, multiply: Multiply) -> str:
        """Return what is wrong on data of narrow and of wide range."""
        m, n = NARROW_TRIAL
        short = min(self.config_of(choice).columns, problem.m, problem.n)
        shape = Shape(m, short, TRIAL.k) if problem.m >= problem.n else Shape(short, n, TRIAL.k)
        return inexact(multiply, shape, is_guarded=True)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return an empty space: the family is not tuned."""
        return SearchSpace({}, (), {}, lambda _: default, lambda _: {})

    def samples(self, kind: str) -> Samples:
        """Return no shapes: the family is not tuned."""
        return {}

    def edge_shapes(self, config: NarrowConfig) -> list[Shape]:
        """Return sizes around a tile."""
        return tile_edges(config.tile_m, config.columns, config.chunk)


NARROW = Narrow()
WGMMA = Wgmma()
MMA = Mma()
