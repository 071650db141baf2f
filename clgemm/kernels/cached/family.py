"""The cached family: panels read through the caches, where local memory is no faster. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from clgemm.core.config import KernelConfig, Launch, multiple, positive, variant_of, vector
from clgemm.core.costs import joined
from clgemm.core.plan import Argument, Plan, Step, ceil_div, operand_at, tiles_of
from clgemm.core.problem import FLOAT_BYTES, Problem, Shape
from clgemm.core.traits import Traits
from clgemm.kernels.common.family import (
    FLAGS,
    GPU_PANEL_SAMPLES,
    PANEL_SAMPLES,
    Choice,
    Fallback,
    Family,
    SearchSpace,
    Sketch,
    changed,
    tile_edges,
    values_of,
)
from clgemm.kernels.common.panels import (
    PACKED,
    LanePanels,
    Place,
    Scratch,
    batch_over,
    make_panel_plan,
    packed_strides,
    target_of,
    with_panels,
)
from clgemm.kernels.pack.plan import PackConfig
from clgemm.kernels.split_k.plan import ReduceConfig, product_arguments

OVERLAP = 1.8  # as in `joined`: arithmetic and memory traffic
SUMS_SHARE = 0.5  # of a work-item's registers, at most, in defaults
MOST_SUMS = 64  # of a work-item, in a search
SMALLEST_SLICE = 256  # of k
MOST_GROUPS = 4  # work-groups per compute unit from which on k is not cut


@dataclass(frozen=True)
class CachedConfig(KernelConfig):
    """Keeps a block of C in each work-item's registers, and reads packed operands as they lie."""

    tile_m: int  # rows of C per work-group
    tile_n: int  # columns of C per work-group
    work_m: int  # rows of C per work-item
    work_n: int  # columns of C per work-item
    width_a: int  # floats per load of A
    width_b: int  # floats per load of B and per store of C
    unroll: int  # steps over k that are written out
    swizzle: int  # rows of tiles that work-groups visit together, for the last cache
    fma: bool  # as in TiledConfig

    family: ClassVar[str] = "cached"
    source: ClassVar[str] = "cached/cached.cl"
    entry: ClassVar[str] = "cached_product"
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (PackConfig, ReduceConfig)
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl", "common/swizzle.cl")

    @property
    def items(self) -> int:
        return self.tile_m // self.work_m * (self.tile_n // self.work_n)

    def problems(self) -> Iterator[str]:
        bad = [*positive(self), *vector(self, "width_a"), *vector(self, "width_b")]
        yield from bad
        if not bad:
            yield from multiple(self, "tile_m", of="work_m")
            yield from multiple(self, "tile_n", of="work_n")
            yield from multiple(self, "work_m", of="width_a")
            yield from multiple(self, "work_n", of="width_b")


@dataclass(frozen=True)
class CachedVariant(CachedConfig):
    """The config of one launch."""

    triangle: bool = False  # leave out the tiles left of the diagonal of C

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch: its steps over k, or its memory traffic."""
        limits, depth = launch.limits, launch.arguments["slice_k"]
        costs, area = limits.costs, self.tile_m * self.tile_n
        loads = self.items * (self.work_m // self.width_a + self.work_n // self.width_b)
        work = depth * (area + costs.vector_load * loads) + costs.tile_end * area
        rounds = ceil_div(launch.groups, limits.compute_units)
        traffic = FLOAT_BYTES * launch.groups * depth * (self.tile_m + self.tile_n)
        return joined(OVERLAP, rounds * work / costs.multiply_adds, traffic / costs.cache_bytes)


def cached_configs() -> tuple[CachedConfig, ...]:
    """Return tiles for GPUs, the largest first."""
    largest = CachedConfig(
        tile_m=32,
        tile_n=64,
        work_m=4,
        work_n=8,
        width_a=4,
        width_b=4,
        unroll=2,
        swizzle=8,
        fma=False,
    )
    return largest, CachedConfig(16, 32, 4, 4, 4, 4, 2, 8, False)


@dataclass(frozen=True)
class CachedPanels(LanePanels):
    """A product of panels that are read in steps of one column."""

    config: CachedVariant

    @property
    def grain(self) -> int:
        """One column."""
        return 1

    def padded(self, depth: int) -> int:
        """Return the columns of a packed block: no more than it has."""
        return depth

    def multiply(self, place: Place, scratch: Scratch) -> Iterator[Step]:
        """Yield the launch that multiplies, and with split-k the one that adds up."""
        config, (m, n, k), levels = self.config, place.sizes, place.part.levels
        panels = tuple(tile * k for tile in self.tiles)
        batch = batch_over(
            place.part,
            *(
                packed_strides(levels, operand, ceil_div(rows, self.tiles[operand]) * panel)
                for operand, rows, panel in ((0, m, panels[0]), (1, n, panels[1]))
            ),
        )
        whole = (m, n) == (self.c.rows, self.c.columns)
        config = replace(config, triangle=config.triangle and whole)
        slice_k = ceil_div(k, min(self.slices, k))
        cuts = ceil_div(k, slice_k)
        tiles = tiles_of(m, n, config.tile_m, config.tile_n, config.triangle)
        result = target_of(self, place, cuts, batch, scratch)
        sizes: dict[str, int] = {"m": m, "n": n, "k": k, "slice_k": slice_k}
        a, b = (
            operand_at(side, slot, 0, panel=panel)
            for side, slot, panel in zip("ab", PACKED, panels, strict=True)
        )
        arguments: dict[str, Argument] = product_arguments(sizes, batch, a, b, result)
        yield Step(config, tiles * cuts * batch.matrices, arguments)
        yield from result.adding


class Cached(Family[CachedConfig, PackConfig]):
    """Panels read through the caches, for GPUs whose local memory is ordinary memory."""

    config = CachedConfig
    packs = (PackConfig, PackConfig)
    for_vectors = False
    shapes, gpu_shapes = PANEL_SAMPLES, GPU_PANEL_SAMPLES

    def runs_on(self, traits: Traits) -> bool:
        """Run where the tiled family would copy tiles for nothing."""
        return super().runs_on(traits) and traits.limits.emulates_local_memory

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Suit every product."""
        return True

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return the configs that fit, the largest first."""
        limits = traits.limits
        fitting = [
            config
            for config in cached_configs()
            if config.work_m * config.work_n <= SUMS_SHARE * limits.registers
            and not any(config.problems_on(limits))
        ]
        choices = tuple(with_panels(each, self.panels(each), limits) for each in fitting)
        return choices or (self.plainest(traits),)

    def plainest(self, traits: Traits) -> Choice:
        """Return a tile of 16 x 16, by single floats."""
        config = CachedConfig(16, 16, 4, 4, 1, 1, 1, 1, False)
        return with_panels(config, self.panels(config), traits.limits)

    def panels(self, config: CachedConfig) -> tuple[int, ...]:
        """Return the rows of panels of A, and of B."""
        return config.tile_m, config.tile_n

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launches that pack both operands, and multiply."""
        config, c, limits = self.config_of(choice), problem.c, traits.limits
        is_square = config.tile_m % config.tile_n == 0 or config.tile_n % config.tile_m == 0
        tiles = tiles_of(c.rows, c.columns, config.tile_m, config.tile_n)
        most = ceil_div(MOST_GROUPS * limits.compute_units, tiles * problem.shape.matrices)
        return make_panel_plan(
            CachedPanels(
                *problem.layouts,
                tiles=(config.tile_m, config.tile_n),
                packed=(True, True),
                pack=self.packing(choice),
                limits=limits,
                config=variant_of(CachedVariant, config, triangle=problem.is_half and is_square),
                slices=max(1, min(most, problem.k // SMALLEST_SLICE)),
            )
        )

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        config, limits = self.config_of(default), traits.limits
        items, work, widths = (2, 4, 8, 16, 32), (1, 2, 4, 8, 16), (1, 2, 4, 8)
        values = {
            "items_m": items,
            "items_n": items,
            "work_m": work,
            "work_n": work,
            "width_a": widths,
            "width_b": widths,
            "unroll": (1, 2, 4, 8),
            "swizzle": (1, 2, 4, 8, 16),
            "fma": FLAGS,
        }
        couples = (
            *(("items_m", "items_n"), ("items_m", "work_m"), ("items_n", "work_n")),
            *(("work_m", "work_n"), ("width_a", "width_b")),
        )
        coarse: Sketch = {
            ("items_m", "items_n"): ((8, 8), (16, 16), (8, 16), (16, 8)),
            ("work_m", "work_n"): ((4, 8), (4, 4), (8, 8), (2, 8), (4, 16)),
        }

        def make(point: dict[str, int]) -> Choice | None:
            if point["work_m"] * point["work_n"] > MOST_SUMS:
                return None
            tiles = {f"tile_{x}": point[f"items_{x}"] * point[f"work_{x}"] for x in "mn"}
            made = changed(config, point | tiles)
            return with_panels(made, self.panels(made), limits)

        def read(choice: Choice) -> dict[str, int]:
            made = self.config_of(choice)
            return values_of(made, values) | {
                "items_m": made.tile_m // made.work_m,
                "items_n": made.tile_n // made.work_n,
            }

        return SearchSpace(values, couples, coarse, make, read)

    def edge_shapes(self, config: CachedConfig) -> list[Shape]:
        """Return sizes around a tile."""
        return tile_edges(config.tile_m, config.tile_n, 2 * config.unroll)


CACHED = Cached()
