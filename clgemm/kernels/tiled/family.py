"""The tiled family: tiles in local memory, for devices that spread work-items over lanes. Pure."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from clgemm.core.plan import Plan, ceil_div, expected_us
from clgemm.core.problem import Problem, Shape
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import (
    FLAGS,
    GPU_PANEL_SAMPLES,
    PANEL_SAMPLES,
    Choice,
    Fallback,
    Family,
    SearchSpace,
    changed,
    tile_edges,
    values_of,
)
from clgemm.kernels.common.panels import with_panels
from clgemm.kernels.pack.plan import PackConfig
from clgemm.kernels.tiled.plan import (
    MOST_READS,
    TiledConfig,
    in_place_us,
    make_tiled_plan,
    reads_narrowly,
    tiled_estimate,
)

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
DEEPEST_PLAIN = 16  # steps over k of a tile, on NVIDIA's GPUs without asynchronous copies
SUMS_SHARE = 0.5  # of a work-item's registers, at most, in defaults
MOST_SUMS = 144  # of a work-item: with more, compilers take minutes and kernels spill registers


@functools.lru_cache(maxsize=16)
def that_fit(traits: Traits) -> tuple[TiledConfig, ...]:
    """Return the default configs that a device with these traits can run."""
    limits = traits.limits
    if traits.kind == "CPU":  # it emulates lanes, and takes very long for partly used large tiles
        configs = lane_configs()[1:]
    elif traits.is_nvidia:
        configs = nvidia_configs(limits.asynchronous_copies)
    else:
        configs = gpu_configs()
    most_sums = SUMS_SHARE * limits.registers
    return tuple(
        config
        for config in configs
        if config.work_m * config.work_n <= most_sums and not any(config.problems_on(limits))
    )


def lane_configs() -> tuple[TiledConfig, ...]:
    """Return tiles for devices that spread work-items over their lanes.

    The largest takes 32 KiB of local memory. The next takes 16 KiB, half of what the smallest
    devices have, so that two work-groups fit on a compute unit.
    """
    largest = TiledConfig(
        tile_m=128,
        tile_n=128,
        tile_k=16,
        work_m=8,
        work_n=8,
        width_a=4,
        width_b=4,
        grid_n=16,
        unroll=16,
        buffers=2,
        swizzle=8,
        fma=False,
        in_place=True,
    )
    smallest = replace(largest, tile_m=32, tile_n=32, work_m=4, work_n=4, grid_n=8)
    return (
        largest,
        replace(largest, tile_m=64, tile_n=64, work_m=4, grid_n=8),
        smallest,
        replace(smallest, tile_m=16, tile_n=16, grid_n=4, tile_k=8, unroll=8, buffers=1),
    )


def gpu_configs() -> tuple[TiledConfig, ...]:
    """Return tiles for GPUs of other makers than NVIDIA.

    With one buffer and few steps written out, AMD's and Intel's compilers spill no registers
    (docs/measured/compiled.json).
    """
    steps = (2, 4, 2, 2)
    return tuple(
        replace(each, buffers=1, unroll=unroll)
        for each, unroll in zip(lane_configs(), steps, strict=True)
    )


def nvidia_configs(asynchronous_copies: bool = True) -> tuple[TiledConfig, ...]:
    """Return tiles for NVIDIA's GPUs, with 255 registers per work-item. Chosen on an H200.

    Parameters
    ----------
    asynchronous_copies : bool, optional
        As in `clgemm.core.traits.Limits`: without, those that copy so are left out, and registers
        are not limited. So are the deepest tiles, whose loads of single floats spill there.
    """
    small = replace(lane_configs()[1], work_m=8, work_n=4, grid_n=8)
    single = replace(small, buffers=1, grid_n=2, registers=128)
    shallow = replace(small, tile_k=8, unroll=8, grid_n=2)
    large = replace(shallow, tile_m=128, tile_n=128, work_m=16, work_n=8)
    copied = replace(shallow, work_n=8, grid_n=4, asynchronous=True, buffers=3)
    short = replace(small, tile_m=16, work_m=4, tile_k=32, unroll=32)
    measured = (  # the percent of the model's time, and the rest
        (82, replace(large, buffers=1)),
        (82, replace(large, asynchronous=True, buffers=3)),
        (91, small),
        (86, single),
        (91, replace(single, grid_n=8)),
        (83, replace(single, tile_m=32, parts=2)),
        (91, replace(shallow, buffers=1, registers=96)),
        (89, replace(small, tile_m=128, work_n=8, parts=2)),
        (99, replace(small, tile_m=32, tile_n=32, work_m=4, registers=96)),
        (113, short),
        (106, replace(small, tile_m=128, tile_n=16, work_m=4, grid_n=4, tile_k=32, unroll=32)),
        (85, replace(shallow, grid_n=8, asynchronous=True, buffers=4)),
        (84, replace(copied, tile_m=128, grid_n=8, registers=168)),
        (95, replace(copied, tile_m=128, tile_n=96)),
        (85, replace(copied, tile_k=16, unroll=16)),
        (93, replace(small, tile_m=32, asynchronous=True, buffers=3)),
        (97, replace(short, asynchronous=True, buffers=3)),
    )
    configs = tuple(replace(config, percent=percent) for percent, config in measured)
    if asynchronous_copies:
        return configs
    plain = (
        replace(config, registers=0)
        for config in configs
        if not config.asynchronous and config.tile_k <= DEEPEST_PLAIN
    )
    return tuple(dict.fromkeys(plain))


def _with_launches(plan: Plan, limits: Limits) -> float:
    """Return what a fallback costs those who need it, and for each launch those who do not."""
    return expected_us(plan, limits) + LEAST_SAVED_US * len(plan.steps)


class Tiled(Family[TiledConfig, PackConfig]):
    """Tiles in local memory, for devices that spread work-items over lanes."""

    config = TiledConfig
    packs = (PackConfig, PackConfig)
    for_vectors = False
    shapes, gpu_shapes = PANEL_SAMPLES, GPU_PANEL_SAMPLES

    def runs_on(self, traits: Traits) -> bool:
        """Run where local memory is faster than other memory."""
        return super().runs_on(traits) and not traits.limits.emulates_local_memory

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Suit every product."""
        return True

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the configs whose tiles are not far from the best ones, a few at most."""
        shape = problem.shape
        if problem.is_half:  # it has about as many tiles
            shape = shape._replace(n=ceil_div(shape.n, 2))
        turned = shape._replace(m=shape.n, n=shape.m)
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
        return tuple(
            with_panels(config, self.panels(config), traits.limits)
            for config in dict.fromkeys((best, *fitting))
        )

    def plainest(self, traits: Traits) -> Choice:
        """Return the smallest tiles."""
        config = lane_configs()[-1]
        return with_panels(config, self.panels(config), traits.limits)

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
        limits = traits.limits

        def launches(most_reads: float) -> Plan:
            a, b, c = problem.layouts
            return make_tiled_plan(a, b, c, config, pack, limits, most_reads, problem.is_half)

        if not traits.has_cost_model or not reads_narrowly(*problem.layouts[:2], config):
            return launches(MOST_READS)
        return min(map(launches, PACKING), key=lambda plan: expected_us(plan, limits))

    def is_faster_transposed(self, problem: Problem, choice: Choice, traits: Traits) -> bool:
        """Return which way tiles that are not square cover C sooner."""
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
            return make_tiled_plan(*part.layouts, config, pack, limits, most_reads, part.is_half)

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
        config, copies = self.config_of(default), traits.limits.asynchronous_copies
        # A point gives a tile by its work-items and the work of each: either can change alone.
        items, work, widths = (2, 4, 8, 16, 32), (2, 4, 6, 8, 12, 16), (1, 2, 4, 8)
        values = {
            "items_m": items,
            "items_n": items,
            "work_m": work,
            "work_n": work,
            "tile_k": (4, 8, 16, 32),
            "width_a": widths,
            "width_b": widths,
            "grid_n": (1, 2, 4, 8, 16),
            "rolled": (1, 2, 4, 8),  # iterations of the loop over a tile's depth
            "buffers": (1, 2, 3, 4) if copies else (1, 2),
            "swizzle": (1, 2, 4, 8, 16),
            "parts": (1, 2, 4),
            "fma": FLAGS,
            "asynchronous": FLAGS if copies else (0,),
            "registers": (0, 80, 96, 128, 144, 168) if copies else (0,),
            "in_place": FLAGS,
            "percent": (100,),  # only the defaults were measured
            "pack_depth": (8, 16, 32, 64),
            "pack_group": (1, 32, 64, 128, 256, 512),
        }
        couples = (
            *(("items_m", "items_n"), ("items_m", "work_m"), ("items_n", "work_n")),
            *(("work_m", "work_n"), ("work_m", "tile_k"), ("work_n", "tile_k")),
            *(("width_a", "width_b"), ("tile_k", "rolled"), ("tile_k", "buffers")),
            *(("parts", "items_m"), ("parts", "items_n"), ("parts", "tile_k")),
            *(("asynchronous", "buffers"), ("asynchronous", "tile_k"), ("registers", "buffers")),
        )
        nearly_square = tuple(
            (items_m, items_n, work_m, work_n)
            for work_m, work_n in ((4, 4), (8, 8), (16, 8), (8, 4), (4, 8), (8, 16))
            for items_m, items_n in ((8, 8), (16, 16), (8, 16), (16, 8))
            if 1 / 2 <= items_m * work_m / (items_n * work_n) <= 2
        )
        coarse = {
            ("tile_k",): ((8,), (16,)),
            ("items_m", "items_n", "work_m", "work_n"): nearly_square,
        }

        def make(point: dict[str, int]) -> Choice | None:
            if point["work_m"] * point["work_n"] > MOST_SUMS:
                return None
            tile_m, tile_n = (point[f"items_{x}"] * point[f"work_{x}"] for x in "mn")
            made = changed(
                config,
                point
                | {
                    "tile_m": tile_m,
                    "tile_n": tile_n,
                    "width_a": math.gcd(point["width_a"], point["work_m"]),
                    "width_b": math.gcd(point["width_b"], point["work_n"]),
                    "grid_n": math.gcd(point["grid_n"], point["items_n"]),
                    "unroll": max(1, point["tile_k"] // point["rolled"]),
                },
            )
            depth, group = point["pack_depth"], point["pack_group"]
            pack = (PackConfig(panel, depth, group) for panel in (made.tile_m, made.tile_n))
            return Choice(made, tuple(pack))

        def read(choice: Choice) -> dict[str, int]:
            made, (pack, _) = self.config_of(choice), self.packing(choice)
            return values_of(made, values) | {
                "rolled": made.tile_k // made.unroll,
                "pack_depth": pack.depth,
                "pack_group": pack.group,
            }

        return SearchSpace(values, couples, coarse, make, read)

    def edge_shapes(self, config: TiledConfig) -> list[Shape]:
        """Return sizes around a tile."""
        return tile_edges(config.tile_m, config.tile_n, config.tile_k)


TILED = Tiled()
