"""The families of tensor cores: the products that suit, the defaults, what is tried. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from clgemm.core.config import KernelConfig, variant_of
from clgemm.core.plan import Plan
from clgemm.core.problem import Problem, Shape, batch_levels
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import (
    GPU_PANEL_SAMPLES,
    Choice,
    Fallback,
    Family,
    Multiply,
    SearchSpace,
    space_of_fields,
    tile_edges,
)
from clgemm.kernels.tensor_core.plan import (
    TILE_DEPTH,
    MmaConfig,
    MmaVariant,
    TensorConfig,
    TensorVariant,
    WgmmaConfig,
    WgmmaVariant,
    make_tensor_plan,
)

Config = TypeVar("Config", bound=TensorConfig)

# k, from which on `"fast"` keeps its bound with low parts in int8: docs/tensor_cores.md.
LEAST_INT8_DEPTH = 2048
MOST_LAUNCHES = 256  # of a batch whose loops cannot be joined: each part has its own
# Expected times were fitted for products from here on.
LEAST_MODELLED_WORK = 2**24  # multiply-adds
LEAST_MODELLED_SIDE = 48  # of m and n
# Products that try a config. The deep one has low parts in int8, and is cut along k.
TRIAL, DEEP_TRIAL = Shape(700, 900, 713), Shape(300, 200, 5000)
SLACK = 1.1  # how many times faster a record's config may be than its expected time

SHAPES = {
    "medium": (Shape(1000, 1000, 1000), Shape(1408, 1408, 1408)),
    "large": GPU_PANEL_SAMPLES["large"],
    "deep": (Shape(1024, 1024, 10240), Shape(1536, 1536, 16384)),
    "tall": (Shape(8192, 512, 1024), Shape(16384, 1024, 1024)),
    "wide": (Shape(512, 8192, 1024), Shape(1024, 16384, 1024)),
}
SWIZZLES = 1, 2, 4, 8, 16, 32
NARROW_TILES = WgmmaConfig(swizzle=16, tile_n=128, stages=3)
WIDE_TILES = WgmmaConfig(swizzle=16, tile_n=256, stages=2)

# Of what is tried: errors on data of narrow and of wide range.
# 64 u, with u = 2**-24: far above the errors of right results, far below those of wrong ones.
ALLOWED = 64 * 2.0**-24
NARROW_RANGE, WIDE_RANGE = 0.0, 5.0  # deviations of the exponents, in natural logarithms


class Tensor(Family[Config, KernelConfig]):
    """Splits operands in two parts and multiplies them on tensor cores. For both instructions.

    Attributes
    ----------
    launched : type
        The class of the configs of calls.
    least_depth : int
        The least k, from which on the error bounds are proved: docs/tensor_cores.md.
    """

    shapes = SHAPES
    launched: type[TensorVariant]
    least_depth: int

    def variant_for(self, problem: Problem, config: Config) -> TensorVariant:
        """Return the config of a call for this problem."""
        guard = problem.precision == "float32"
        return variant_of(self.launched, config, guard=guard, triangle=problem.is_half)

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return all defaults for products that are not small, unless the precision is strict."""
        m, n, k, _ = problem.shape
        is_able = allows_splitting(problem) and k >= self.least_depth
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
        config = variant_of(self.launched, self.config_of(choice), guard=True)
        return make_tensor_plan(*problem.layouts, config, fallback, traits.limits)

    def scope(self, problem: Problem, choice: Choice, traits: Traits) -> str:
        """Return the config of one call: each has a kernel of its own, which tries no triangle."""
        return repr(self.variant_for(problem._replace(is_half=False), self.config_of(choice)))

    def fault(self, problem: Problem, choice: Choice, multiply: Multiply) -> str:
        """Return what is wrong on data of narrow and of wide range, and with fine sums."""
        variant = self.variant_for(problem, self.config_of(choice))
        shape = DEEP_TRIAL if variant.int8 else TRIAL
        found = inexact(multiply, shape, variant.guard)
        if self.instructions == "wgmma" and variant.guard:
            found = found or adds_coarsely(multiply) or adds_coarsely(multiply, tf32=True)
        return found

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the orders of tiles.

        How operands are split, and whether with a guard, depends on the call: it is not searched.
        """
        return space_of_fields(
            default.config, {"swizzle": SWIZZLES}, couples=(), coarse={("swizzle",): ((4,), (16,))}
        )

    def edge_shapes(self, config: Config) -> list[Shape]:
        """Return sizes around a tile."""
        return tile_edges(config.tile_m, config.tile_columns, TILE_DEPTH)


class Wgmma(Tensor[WgmmaConfig]):
    """Uses wgmma: compute capability 9.0."""

    config, launched = WgmmaConfig, WgmmaVariant
    instructions = "wgmma"
    least_depth = 32  # the bounds hold for any k, but below this it is no faster

    def runs_on(self, traits: Traits) -> bool:
        """Run on compute capability 9.0."""
        return traits.has_wgmma

    def variant_for(self, problem: Problem, config: WgmmaConfig) -> TensorVariant:
        """Return one with low parts in int8 where that is allowed and faster."""
        found = super().variant_for(problem, config)
        return replace(found, int8=not found.guard and problem.k >= LEAST_INT8_DEPTH)

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return the tiles with the shortest expected time, then the others."""
        return tuple(map(Choice, wgmma_configs(shape, traits.limits)))

    def plainest(self, traits: Traits) -> Choice:
        """Return narrow tiles, one at a time in local memory."""
        return Choice(WgmmaConfig(swizzle=1, tile_n=128, stages=1))

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        """Return the tiles and their orders."""
        return space_of_fields(
            default.config,
            values={"tile_n": (128, 256), "stages": (1, 2, 3, 4), "swizzle": SWIZZLES},
            couples=(("tile_n", "stages"),),
            coarse={
                ("tile_n", "stages"): ((256, 2), (128, 3), (128, 2), (128, 4)),
                ("swizzle",): ((4,), (16,)),
            },
        )


class Mma(Tensor[MmaConfig]):
    """Uses mma.sync: compute capability 8.0, and later ones of data-centre GPUs."""

    config, launched = MmaConfig, MmaVariant
    instructions = "mma"
    least_depth = 256

    def runs_on(self, traits: Traits) -> bool:
        """Run where three products on tensor cores are faster than one on the other units.

        That excludes graphics cards, whose compute capability has a minor number above 0.
        """
        major, minor = traits.capability
        return traits.is_nvidia and traits.kind == "GPU" and major >= 8 and minor == 0

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        return (Choice(MmaConfig(swizzle=8)),)

    def plainest(self, traits: Traits) -> Choice:
        """Return a config that visits tiles in row order."""
        return Choice(MmaConfig(swizzle=1))


WGMMA = Wgmma()
MMA = Mma()


def allows_splitting(problem: Problem) -> bool:
    """Return whether a product's precision allows split operands, and it is not small."""
    return problem.precision not in ("strict", None) and problem.shape.work >= LEAST_MODELLED_WORK


def _launches(problem: Problem) -> int:
    """Return how many parts of a batch need launches of their own."""
    return math.prod(level.count for level in batch_levels(*problem.layouts)[:-1])


def wgmma_configs(shape: Shape, limits: Limits) -> tuple[WgmmaConfig, ...]:
    """Return all, the one first whose tiles are expected to take the shortest time."""

    def us(config: WgmmaConfig) -> float:
        variant = variant_of(WgmmaVariant, config, guard=True)
        return variant.cuts(variant.tiles(shape.matrices, shape.m, shape.n), shape.k, limits).us

    return tuple(sorted((NARROW_TILES, WIDE_TILES), key=us))


def inexact(multiply: Multiply, shape: Shape, is_guarded: bool) -> str:
    """Return what is wrong with products of a shape, "" if nothing is.

    Parameters
    ----------
    multiply : callable
        Takes and returns matrices of float32.
    is_guarded : bool
        Whether data of any range are to be multiplied right. They then have an infinity and a tiny
        element.
    """
    m, n, k, _ = shape
    for spread in (NARROW_RANGE, WIDE_RANGE) if is_guarded else (NARROW_RANGE,):
        rng = np.random.default_rng(0)
        a, b = (
            rng.standard_normal(sizes) * np.exp(spread * rng.standard_normal(sizes))
            for sizes in ((m, k), (k, n))
        )
        if is_guarded:
            a[3, 5], b[7, n // 3] = 1e-36, np.inf
        a, b = a.astype(np.float32), b.astype(np.float32)
        c = multiply(a, b)
        with np.errstate(invalid="ignore"):  # infinities
            exact = a.astype(np.float64) @ b
            sizes = np.abs(a.astype(np.float64)) @ np.abs(b)
            errors = np.abs(c - exact)
        finite = np.isfinite(exact)
        where = f"at {shape.label}, spread {spread:g}"
        if not np.array_equal(finite, np.isfinite(c)):
            return f"other elements than those of IEEE arithmetic are not finite {where}"
        error = float(np.max(errors[finite] / sizes[finite], initial=0.0))
        if not error <= ALLOWED:
            return f"an element's error is {error:.2g} of its bound's sum {where}"
    return ""


def adds_coarsely(multiply: Multiply, tf32: bool = False) -> str:
    """Return what is wrong if products of 2**-25 do not count beside one of 1; "" if they do.

    The error bounds for short k take for granted that they do.

    Parameters
    ----------
    multiply : callable
        Takes and returns matrices of float32.
    tf32 : bool, optional
        Whether other rows of A need the range of TF32.
    """
    depth = 8 if tf32 else 16  # what is added in one step
    a, b = np.full((128, depth), 2.0**-12), np.full((depth, 128), 2.0**-13)
    a[:, 0], b[0] = 1, 1
    if tf32:
        a[64:, 1::2] = 2.0**-30
    exact = 1 + (depth - 1) * 2.0**-25
    c = multiply(a.astype(np.float32), b.astype(np.float32))[:64].astype(np.float64)
    is_fine = bool((np.abs(c - exact) < 2.0**-23).all())
    return "" if is_fine else f"small products are lost beside large ones ({tf32=})"
