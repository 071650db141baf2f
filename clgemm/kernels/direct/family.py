"""The direct family: small products in one launch, operands of any strides. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig, Launch, vector
from clgemm.core.costs import joined
from clgemm.core.plan import Plan, ceil_div
from clgemm.core.problem import FLOAT_BYTES, Problem, Shape
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import (
    FLAGS,
    Choice,
    Fallback,
    Family,
    Samples,
    SearchSpace,
    space_of_fields,
)
from clgemm.kernels.common.in_place import steps_in_place

# The model's constants are for work-groups of so many elements of C.
MODELLED_SIZE = 256
CPU_SIZE = 32  # the same on CPUs
COLUMN_READS = 1.1  # a work-group takes so much longer, as a share, if it reads A along k
# A B of more bytes is in no cache of a core. Reading parts of cache lines takes so many times as
# long as skinny_cpu's reading in order: fitted on Zen 3 under PoCL 3.1.
CACHED_BYTES, PART_OF_LINE = 2**20, 8
OVERLAP = 2.0  # as in `clgemm.core.costs.joined`: latency and work
# Multiply-adds of each product, up to which packing costs more than it saves, where expected times
# do not hold.
SMALL = 32**3
MODELLED_WORK = 2**26  # multiply-adds, up to which its time was fitted


@dataclass(frozen=True)
class DirectConfig(KernelConfig):
    """Reads operands of any strides in place: one launch, for small products."""

    items_m: int  # work-items along the rows of C
    items_n: int  # work-items along the columns of C
    work_m: int  # rows of C per work-item
    width: int  # columns of C per work-item, one vector
    fma: bool  # as in TiledConfig

    family: ClassVar[str] = "direct"
    source: ClassVar[str] = "direct/direct.cl"
    entry: ClassVar[str] = "direct_product"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl",)

    @property
    def items(self) -> int:
        return self.items_m * self.items_n

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch: its steps over k, or their latency."""
        if launch.limits.has_vectors:
            return self._microseconds_on_cpu(launch)
        costs, k = launch.limits.costs, launch.arguments["k"]
        size = self.items * self.work_m * self.width / MODELLED_SIZE
        rounds = ceil_div(launch.groups, launch.limits.compute_units)
        # Neighbours along a row of C read neighbours along a row of B, but one column of A.
        strided = 1 + (abs(launch.arguments["a_column"]) == 1) * COLUMN_READS
        steps = rounds * k * size * strided / costs.direct_items
        return joined(OVERLAP, k * costs.direct_step_us, steps) + rounds * size * costs.direct_store

    def _microseconds_on_cpu(self, launch: Launch) -> float:
        x, costs = launch.arguments, launch.limits.cpu_costs
        size = self.items * self.work_m * self.width / CPU_SIZE
        gathers = x["b_column"] != 1 or x["n"] < self.width
        step_us = costs.direct_step_us * (1 + costs.direct_strided * gathers)
        rounds = ceil_div(launch.groups, launch.limits.compute_units)
        computing = rounds * size * (costs.direct_group_us + x["k"] * step_us)
        size_bytes = FLOAT_BYTES * x["n"] * x["k"]
        if size_bytes <= CACHED_BYTES:
            return float(computing)
        # A work-item reads a part of a cache line of each row of B.
        read = ceil_div(x["m"], self.work_m) * size_bytes * PART_OF_LINE / costs.skinny_bytes
        return float(joined(OVERLAP, computing, read))

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from vector(self, "width")


def direct_config(limits: Limits) -> DirectConfig:
    """Return the config for a device of these limits."""
    if limits.has_vectors:
        return DirectConfig(
            items_m=1, items_n=1, work_m=4, width=min(limits.vector_width, 8), fma=False
        )
    return DirectConfig(items_m=8, items_n=8, work_m=2, width=2, fma=False)


class Direct(Family[DirectConfig, KernelConfig]):
    """One launch that reads operands of any strides in place, for small products."""

    config = DirectConfig
    shapes: ClassVar[Samples] = {
        "tiny": (Shape(12, 12, 12), Shape(32, 32, 32)),
        "batched": (Shape(12, 12, 12, 2000), Shape(32, 32, 32, 1000)),
    }
    gpu_shapes: ClassVar[Samples] = {
        "tiny": shapes["tiny"],
        "batched": (Shape(12, 12, 12, 2000), Shape(16, 16, 16, 1000)),
        "small": (Shape(64, 64, 64), Shape(96, 96, 96)),
    }

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Suit products that are too small to pack."""
        m, n, k, _ = problem.shape
        return m * n * k <= SMALL

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the default for all products but those that take long in any case."""
        shape = problem.shape
        return self.defaults(shape, traits) if shape.work <= MODELLED_WORK else ()

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        return (Choice(direct_config(traits.limits)),)

    def plainest(self, traits: Traits) -> Choice:
        """Return one element of C for each work-group."""
        return Choice(DirectConfig(items_m=1, items_n=1, work_m=1, width=1, fma=False))

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return one launch, or more where a batch has many loops."""
        config = self.config_of(choice)
        tile = config.items_m * config.work_m, config.items_n * config.width
        return Plan(tuple(steps_in_place(*problem.layouts, config, tile)))

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        vectors = traits.has_vectors
        items = (1, 2, 4, 8) if vectors else (1, 2, 4, 8, 16, 32)
        groups = ((1, 1), (4, 4)) if vectors else ((8, 8), (16, 16), (4, 16))
        work = ((4, 8), (4, 4), (2, 16), (8, 4)) if vectors else ((2, 2), (1, 1), (4, 4))
        return space_of_fields(
            default.config,
            values={
                "items_m": items,
                "items_n": items,
                "work_m": (1, 2, 3, 4, 6, 8),
                "width": (1, 2, 4, 8, 16),
                "fma": FLAGS,
            },
            couples=(("items_m", "items_n"), ("work_m", "width"), ("items_m", "work_m")),
            coarse={("items_m", "items_n"): groups, ("work_m", "width"): work},
        )

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
