"""The tiled family: the products that it suits, its defaults, its launches. Pure."""

from __future__ import annotations

import math

from clgemm.core.config import Limits
from clgemm.core.problem import Problem
from clgemm.core.shapes import Shape
from clgemm.core.steps import Plan, expected_us
from clgemm.core.traits import Traits
from clgemm.kernels.common.family import (
    GPU_PANEL_SAMPLES,
    PANEL_SAMPLES,
    Choice,
    Fallback,
    Family,
    Samples,
    SearchSpace,
    tile_edges,
)
from clgemm.kernels.pack.plan import PackConfig, pack_config
from clgemm.kernels.tiled.config import TiledConfig
from clgemm.kernels.tiled.defaults import lane_configs, that_fit
from clgemm.kernels.tiled.estimate import tiled_estimate
from clgemm.kernels.tiled.plan import in_place_us, make_tiled_plan, reads_narrowly
from clgemm.kernels.tiled.search_space import search_space

__all__ = ["TILED"]

# A record serves a shape if its estimate is at most this many times the default's. The model is not
# more accurate than that.
SLACK = 1.25
SLACK_IF_LARGE = 1.15  # the same for large products
LARGE_WORK = 2**30  # multiply-adds
# Configs whose time is at most this many times the best one's are compared for the operands'
# layouts, which change the times.
FAR = 1.7
MOST_CANDIDATES = 6  # with all of them, no plan of 470 random products is expected to be faster
# A launch of the fallback that is not needed takes about 3 us. It must save far more where it is.
LEAST_SAVED_US = 45.0
PACKING = (math.inf, 0)  # `most_reads` of the plans that are compared


def _with_packing(config: TiledConfig, traits: Traits) -> Choice:
    tiles = config.tile_m, config.tile_n
    return Choice(config, tuple(pack_config(traits.limits, tile) for tile in tiles))


def _with_launches(plan: Plan, limits: Limits) -> float:
    """Return what a fallback costs those who need it, and for each launch those who do not."""
    return expected_us(plan, limits) + LEAST_SAVED_US * len(plan.steps)


class Tiled(Family[TiledConfig, PackConfig]):
    """Tiles in local memory, for devices that spread work-items over lanes."""

    config = TiledConfig
    is_modelled = True
    packs = (PackConfig, PackConfig)

    def runs_on(self, traits: Traits) -> bool:
        """Run where work-items spread over lanes."""
        return not traits.has_vectors

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Suit every product."""
        return True

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the configs whose tiles are not far from the best ones, a few at most."""
        shape, turned = problem.shape, problem.transposed().shape
        times: dict[Choice, float] = {}
        for choice in self.defaults(shape, traits):
            config = self.config_of(choice)
            times[choice] = self.estimate(shape, config, traits)
            if not config.is_square:
                times[choice] = min(times[choice], self.estimate(turned, config, traits))
        most = FAR * min(times.values()) + traits.limits.costs.host_us
        near = (choice for choice, time in times.items() if time <= most)
        return tuple(sorted(near, key=lambda choice: times[choice])[:MOST_CANDIDATES])

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return every config that fits, the one with the shortest expected time first."""
        fitting = that_fit(traits)
        if not fitting:
            raise RuntimeError(f"no config of the {self.name} family fits {traits}")
        best = min(fitting, key=lambda config: self.estimate(shape, config, traits))
        return tuple(_with_packing(config, traits) for config in dict.fromkeys((best, *fitting)))

    def plainest(self, traits: Traits) -> Choice:
        """Return the smallest tiles."""
        return _with_packing(lane_configs()[-1], traits)

    def estimate(self, shape: Shape, config: TiledConfig, traits: Traits) -> float:
        """Return the expected time in microseconds, with the widest loads of A and B."""
        return tiled_estimate(config.tiles, *shape, traits.limits).time

    def slack(self, shape: Shape, traits: Traits) -> float:
        """Trust the model, except on CPUs: it is not made for them."""
        if traits.kind == "CPU":
            return float("inf")
        return SLACK_IF_LARGE if shape.work >= LARGE_WORK else SLACK

    def panels(self, config: TiledConfig) -> tuple[int, ...]:
        """Return the rows of panels of A, and of B."""
        return config.tile_m, config.tile_n

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launches that pack operands where needed, and multiply."""
        config, pack = self.config_of(choice), self.packing(choice)
        layouts, limits = problem.layouts, traits.limits
        if not traits.has_cost_model or not reads_narrowly(*problem.layouts[:2], config):
            return make_tiled_plan(*layouts, config, pack, limits)
        plans = (make_tiled_plan(*layouts, config, pack, limits, each) for each in PACKING)
        return min(plans, key=lambda plan: expected_us(plan, limits))

    def is_faster_transposed(self, problem: Problem, choice: Choice, traits: Traits) -> bool:
        """Tell which way tiles that are not square cover C sooner."""
        config = self.config_of(choice)
        if not traits.has_cost_model or config.is_square:
            return False
        straight, turned = (
            in_place_us(*each.layouts, config, traits.limits)
            for each in (problem, problem.transposed())
        )
        return turned < straight

    def fallback(self, problem: Problem, choice: Choice, traits: Traits) -> Fallback:
        """Return a fallback that reads operands in place, unless packing them saves far more.

        Where times are expected, it has the config that is the fastest at that.
        """
        limits = traits.limits

        def launches(part: Problem, each: Choice, most_reads: float) -> Plan:
            config, pack = self.config_of(each), self.packing(each)
            return make_tiled_plan(*part.layouts, config, pack, limits, most_reads)

        if not traits.has_cost_model:
            return lambda part: launches(part, choice, math.inf)

        def us_in_place(each: Choice) -> float:
            config = self.config_of(each)
            if config.is_crowded and reads_narrowly(*problem.layouts[:2], config):
                return math.inf  # it packs, and others do not
            return in_place_us(*problem.layouts, config, limits)

        def us_packed(each: Choice) -> float:
            return self.estimate(problem.shape, self.config_of(each), traits)

        choices = choice, *self.candidates(problem, traits)
        best, best_packed = min(choices, key=us_in_place), min(choices, key=us_packed)
        saves = us_in_place(best) - us_packed(best_packed) > LEAST_SAVED_US
        if not (saves and reads_narrowly(*problem.layouts[:2], self.config_of(best))):
            return lambda part: launches(part, best, math.inf)

        def plan(part: Problem) -> Plan:
            plans = launches(part, best, math.inf), launches(part, best_packed, 0)
            return min(plans, key=lambda plan: _with_launches(plan, limits))

        return plan

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the space of tiles, loads and loops."""
        return search_space(self.config_of(default), traits.limits)

    def samples(self, kind: str) -> Samples:
        """Return shapes of each class; larger ones on GPUs."""
        return PANEL_SAMPLES if kind == "CPU" else GPU_PANEL_SAMPLES

    def edge_shapes(self, config: TiledConfig) -> list[Shape]:
        """Return sizes around a tile."""
        return tile_edges(config.tile_m, config.tile_n, config.tile_k)


TILED = Tiled()
