"""The outer_product family: products with a short k, written at the speed of memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from clgemm.core.config import KernelConfig, Launch, variant_of
from clgemm.core.costs import joined
from clgemm.core.plan import Plan, ceil_div, matrices_of
from clgemm.core.problem import FLOAT_BYTES, Layout, Problem, Shape
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import (
    FLAGS,
    Choice,
    Fallback,
    Family,
    SearchSpace,
    space_of_fields,
)
from clgemm.kernels.common.in_place import steps_in_place

DEPTHS = (1, 2, 4, 8, 16)  # the values of `depth`; with a longer k, tiles are faster
MOST_REGISTERS = 64  # elements of B that a work-item keeps
OVERLAP = 2.0  # as in `clgemm.core.costs.joined`: the writing of C and the arithmetic
# With fewer work-groups per compute unit than this, tiles have fewer rows.
LEAST_GROUPS = 4
# Up to this `depth`, work-items load so few elements of B that half the rows are enough for them.
SHALLOW = 4
# From this `depth` on, they load so many that they have twice the rows, and work-groups may be
# fewer. On an H100 9001 x 9003 x 16 takes 154 us so, and 166 with as many rows as for `depth` 8.
DEEP, LEAST_DEEP_GROUPS = 16, 3
# Floats that a memory writes as a whole: 32 bytes.
BLOCK = 8
# The longest k where rows of C begin aligned. Elsewhere tiles would write parts of blocks of
# memory, so there a longer one pays.
LONGEST_IF_ALIGNED = 8


@dataclass(frozen=True)
class OuterProductConfig(KernelConfig):
    """Keeps columns of B in registers and rows of A in local memory, and writes C once."""

    items_m: int  # work-items along the rows of C
    items_n: int  # work-items along the columns of C
    work_m: int  # rows of C per work-item, `items_m` apart
    work_n: int  # columns of C per work-item, `items_n` apart
    fma: bool  # as in TiledConfig

    family: ClassVar[str] = "outer_product"
    source: ClassVar[str] = "outer_product/outer_product.cl"
    entry: ClassVar[str] = "outer_product"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl",)

    @property
    def items(self) -> int:
        return self.items_m * self.items_n

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of C per work-group."""
        return self.items_m * self.work_m, self.items_n * self.work_n

    @property
    def local_memory_bytes(self) -> int:
        return FLOAT_BYTES * self.tile[0] * DEPTHS[-1]


@dataclass(frozen=True)
class OuterProductVariant(OuterProductConfig):
    """The config of one launch."""

    depth: int = DEPTHS[-1]  # the largest k
    align: int = 1  # floats of a block of C that neighbours write as a whole; 1: in parts, too

    @property
    def local_memory_bytes(self) -> int:
        return FLOAT_BYTES * self.tile[0] * self.depth

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch: the writing of C, or the arithmetic and loads."""
        _, arguments, limits = launch
        costs = limits.costs
        elements = arguments["m"] * arguments["n"] * matrices_of(arguments["counts"])
        of_b = launch.groups * self.items * self.work_n * self.depth  # elements that are loaded
        computing = of_b * (self.work_m + costs.outer_load) / costs.outer_multiply_adds
        writing = FLOAT_BYTES * elements / costs.outer_bytes
        return joined(OVERLAP, writing, computing / limits.compute_units) + costs.outer_us

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.align & (self.align - 1):
            yield f"align={self.align} is not a power of two"
        if self.depth not in DEPTHS:
            yield f"depth={self.depth} is not one of {DEPTHS}"
        elif self.depth * self.work_n > MOST_REGISTERS:
            yield (
                f"depth={self.depth} times work_n={self.work_n} exceeds {MOST_REGISTERS}: "
                "a work-item keeps so many elements of B in registers"
            )


def outer_config(limits: Limits) -> OuterProductConfig:
    """Return the config for a device of these limits."""
    items_n = min(32, limits.work_group_size)
    items_m = min(8, limits.work_group_size // items_n)
    return OuterProductConfig(items_m, items_n, work_m=32, work_n=4, fma=False)


def fitted(config: OuterProductConfig, a: Layout, c: Layout, limits: Limits) -> OuterProductVariant:
    """Return a config for this k, with tiles that leave no compute unit without work."""
    depth = next(depth for depth in DEPTHS if depth >= a.columns)
    work_n = min(config.work_n, MOST_REGISTERS // depth)
    while work_n > 1 and config.items_n * (work_n // 2) >= c.columns:
        work_n //= 2
    work_m, least_groups = config.work_m, LEAST_GROUPS
    if depth <= SHALLOW:
        work_m = max(1, work_m // 2)
    elif depth >= DEEP:
        work_m, least_groups = 2 * work_m, LEAST_DEEP_GROUPS
    fit = variant_of(
        OuterProductVariant, replace(config, work_m=work_m, work_n=work_n), depth=depth
    )

    def is_too_high(fit: OuterProductVariant) -> bool:
        tile_m, tile_n = fit.tile
        groups = ceil_div(c.rows, tile_m) * ceil_div(c.columns, tile_n) * math.prod(c.batch)
        fits = fit.local_memory_bytes <= limits.local_memory_bytes
        return groups < least_groups * limits.compute_units or not fits

    while fit.work_m > 1 and is_too_high(fit):
        fit = replace(fit, work_m=fit.work_m // 2)
    return replace(fit, align=block_of(fit, c))


def block_of(config: OuterProductConfig, c: Layout) -> int:
    """Return how many floats of C neighbours should write as a whole; 1 where rows begin aligned.

    All rows of a work-item must have the same place within blocks.
    """
    divides = config.items_m * c.row_stride % BLOCK == 0
    return BLOCK if c.column_stride == 1 and divides and not begins_aligned(c) else 1


def begins_aligned(c: Layout) -> bool:
    """Return whether all rows of C begin where a block does."""
    strides = (*c.strides[:-2], c.row_stride)
    is_aligned = all(stride % BLOCK == 0 for stride in strides)
    return is_aligned and c.alignment_bytes % (FLOAT_BYTES * BLOCK) == 0


class OuterProduct(Family[OuterProductConfig, KernelConfig]):
    """Products with a short k, on devices that spread work-items over lanes."""

    config = OuterProductConfig
    for_vectors = False
    # No `shapes`: no shape class has a short k alone, and the default is near the limit.

    def fits(self, problem: Problem) -> bool:
        """Return whether k is short."""
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
        a, b, c = problem.layouts
        fit = fitted(self.config_of(choice), a, c, traits.limits)
        return Plan(tuple(steps_in_place(a, b, c, fit, fit.tile, fit.align - 1)))

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        return space_of_fields(
            default.config,
            values={
                "items_m": (1, 2, 4, 8, 16),
                "items_n": (8, 16, 32, 64, 128),
                "work_m": (1, 2, 4, 8, 16, 32),
                "work_n": (1, 2, 4),
                "fma": FLAGS,
            },
            couples=(("items_m", "items_n"), ("items_m", "work_m"), ("work_m", "work_n")),
            coarse={
                ("items_m", "items_n"): ((8, 32), (8, 64), (16, 32), (4, 32)),
                ("work_m", "work_n"): ((32, 4), (16, 4), (16, 2), (32, 1)),
            },
        )

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
