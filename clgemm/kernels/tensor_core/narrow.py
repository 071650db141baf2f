"""The family of tensor cores for few rows or columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from clgemm.core.config import KernelConfig, Launch, variant_of
from clgemm.core.costs import joined
from clgemm.core.plan import (
    COUNTERS,
    LAST_GROUP,
    LONGEST_SUM,
    Argument,
    Element,
    Plan,
    Side,
    Step,
    batch_of,
    ceil_div,
    matrices_of,
    operand_in_place,
    round_up,
    slices,
    widest_load,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, Level, Problem, Shape, batch_levels
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import Choice, Fallback, Family, Multiply, tile_edges
from clgemm.kernels.common.panels import Scratch, own_levels, packed_strides
from clgemm.kernels.split_k.plan import ReduceConfig, product_arguments, target
from clgemm.kernels.tensor_core.family import TRIAL, allows_splitting, inexact
from clgemm.kernels.tensor_core.plan import least_exponent

OVERLAP = 2.0  # as in `joined`: steps and memory traffic
# How much longer launches take that go on in tf32, on an H100: microseconds, and a share.
TF32_US, TF32_MORE = 9.0, 0.3
NARROW_COLUMNS = 16, 32, 64, 96, 128  # of C per tile, in kernels/tensor_core/narrow.cl
STEP = 64  # of k, whose time is modelled
STEP_COLUMNS = 64  # with so many columns of C or fewer, a tile has all
PACK_COUNTERS = 5  # of packing, before the counters of fused split-k
MOST_SLICES = 16  # of k
# Chunks of B in halves, and twice as many in tf32 for data that need it.
METHODS = 1 + 2
LEAST_NARROW, MOST_NARROW = 3, 640  # rows or columns of the narrow family
LEAST_NARROW_DEPTH = 128  # from which on the error bound is proved: docs/tensor_cores.md
NARROW_TRIAL = 700, 900  # the larger sides of products that try a config


@dataclass(frozen=True)
class NarrowConfig(KernelConfig):
    """For a B of few columns. It splits A on the way from memory to registers."""

    columns: int  # of C per tile, one of NARROW_COLUMNS
    ahead: int  # chunks by which A is prefetched to the second-level cache

    tile_m: ClassVar[int] = 128  # rows of C per tile
    chunk: ClassVar[int] = 64  # of k, in halves

    family: ClassVar[str] = "tensor_narrow"
    source: ClassVar[str] = "tensor_core/narrow.cl"
    entry: ClassVar[str] = "tensor_narrow"
    includes: ClassVar[tuple[str, ...]] = (
        *("common/store.cl", "split_k/fused.cl"),
        *("tensor_core/barriers.cl", "tensor_core/eleven_bits.cl"),
        *("tensor_core/chunk.cl", "tensor_core/turns.cl"),
    )
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (ReduceConfig,)

    @property
    def items(self) -> int:
        return 256

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a packed chunk of B."""
        return FLOAT_BYTES * self.chunk * self.columns + 128

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.columns not in NARROW_COLUMNS:
            yield f"columns={self.columns} is not one of {NARROW_COLUMNS}"


@dataclass(frozen=True)
class NarrowVariant(NarrowConfig):
    """The config of one launch."""

    load_a: int  # floats per load of A
    along_k: bool  # A's rows are contiguous, not its columns
    fused_split_k: bool = False  # the kernel itself adds up slices of k

    def busy_us(self, groups: int, depth: int, slices: int, packs: int, limits: Limits) -> float:
        """Return how long work-groups keep the device busy; the parameters are `narrow_us`'s."""
        return narrow_us(groups, self.columns, depth, slices, packs, self.load_a == 1, limits)

    def microseconds(self, launch: Launch) -> float:
        groups, sizes, limits = launch
        m, n, k, depth = (sizes[name] for name in ("m", "n", "k", "slice_k"))
        matrices = matrices_of(sizes["counts"])
        slices = ceil_div(k, depth)
        steps = self.busy_us(groups, min(k, depth), slices, sizes["packs"], limits)
        read = FLOAT_BYTES * matrices * (m * k * ceil_div(n, self.columns) + m * n)
        rest: float = limits.costs.narrow_us - limits.costs.start_us
        return joined(OVERLAP, steps, read / limits.costs.narrow_bytes) + rest

    def fallback_us(self, launch: Launch) -> float:
        """Return how much longer a launch takes that goes on in tf32."""
        return TF32_US + TF32_MORE * self.microseconds(launch)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.load_a not in ((1, 2, 4) if self.along_k else (1, 2)):
            yield f"load_a={self.load_a} is not 1, 2 or, with along_k, 4"


def narrow_us(
    groups: int, columns: int, depth: int, slices: int, packs: int, is_single: bool, limits: Limits
) -> float:
    """Return how long work-groups with so many columns keep the device busy.

    Parameters
    ----------
    depth : int
        Of a slice of k.
    packs : int
        Chunks of the smaller operand that all work-groups pack together.
    is_single : bool
        Whether loads bring single elements.
    """
    costs = limits.costs
    rounds = ceil_div(groups, limits.compute_units)
    step_us = costs.narrow_step_us + costs.narrow_column_us * columns
    if is_single:
        step_us *= costs.narrow_single
    packing = ceil_div(packs, min(groups, limits.compute_units)) * costs.narrow_pack_us
    adding = costs.narrow_fused_us + slices * costs.narrow_slice_us if slices > 1 else 0.0
    computing = rounds * (ceil_div(depth, STEP) * step_us + costs.narrow_round_us)
    return packing + computing + adding


def _transposed(a: Layout, b: Layout, c: Layout) -> tuple[Layout, Layout, Layout, bool]:
    """Return the product with the shorter side as columns, and whether that is its transpose."""
    if c.rows >= c.columns:
        return a, b, c, False
    return b.transposed(), a.transposed(), c.transposed(), True


def fitted(config: NarrowConfig, a: Layout) -> NarrowVariant:
    """Return a config that reads A where it is contiguous, by the widest loads that fit."""
    along_k = a.column_stride == 1
    load = widest_load(a, not along_k, 4 if along_k else 2)
    return variant_of(NarrowVariant, config, along_k=along_k, load_a=load)


def slices_of_k(config: NarrowVariant, tiles: int, packs: int, k: int, limits: Limits) -> int:
    """Return the number of slices of k with the least expected time."""
    chunks = ceil_div(k, config.chunk)

    def time(cuts: int) -> float:
        depth = ceil_div(chunks, cuts) * config.chunk
        return config.busy_us(tiles * cuts, depth, cuts, packs, limits)

    return min(range(1, min(chunks, MOST_SLICES) + 1), key=time)


def _steps(
    a: Layout,
    b: Layout,
    c: Layout,
    transposed: bool,
    config: NarrowVariant,
    limits: Limits,
    scratch: Scratch,
) -> Iterator[Step]:
    """Yield each launch, and reserve its scratch memory."""
    m, n, k = c.rows, c.columns, a.columns
    slot_a: Side = "b" if transposed else "a"
    slot_b: Side = "a" if transposed else "b"
    tiles_n, chunks = ceil_div(n, config.columns), ceil_div(k, config.chunk)
    tiles = ceil_div(m, config.tile_m) * tiles_n
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // (tiles * chunks), 3):
        batch_b = batch_of(own_levels(levels, 1), 1)
        packs = batch_b.matrices * tiles_n * chunks
        packed = packed_strides(levels, 1, tiles_n * chunks)
        every = zip(levels, packed, strict=True)
        # The strides of A, B and C, and those over the chunks of packed B.
        batch = batch_of(tuple(Level(x.count, (*x.strides, stride)) for x, stride in every), 4)
        scratch.reserve("packed_b", METHODS * packs * config.chunk_bytes)
        cuts = slices_of_k(config, tiles * batch.matrices, packs, k, limits)
        cuts = max(cuts, ceil_div(k, LONGEST_SUM))
        slice_k = round_up(ceil_div(k, cuts), config.chunk)
        cuts = ceil_div(k, slice_k)
        fused = None
        if tiles * batch.matrices + PACK_COUNTERS <= COUNTERS * limits.compute_units:
            fused = tiles * batch.matrices, config.tile_m * config.columns
        result = target((m, n, cuts), levels, batch, "beta", c, offsets[2], limits, fused)
        scratch.reserve("partial", result.partial_bytes)
        first_a, first_b = Element(slot_a, offsets[0]), Element(slot_b, offsets[1])
        place_a = operand_in_place("a", slot_a, first_a, a)
        place_b = operand_in_place("b", slot_b, first_b, b)
        sizes = {"m": m, "n": n, "k": k, "slice_k": slice_k, "least": least_exponent(k)}
        packing: dict[str, Argument] = {
            "packed": "packed_b",
            "packed_strides": batch.strides[3],
            "packs": packs,
            "own_counts": batch_b.counts,
            "own_strides": batch_b.strides[0],
            "pack_counters": "counters",
        }
        yield Step(
            replace(config, fused_split_k=result.fused_split_k),
            tiles * cuts * batch.matrices,
            product_arguments(sizes, batch, place_a, place_b, result, packing),
        )
        yield from result.adding


class Narrow(Family[NarrowConfig, KernelConfig]):
    """Uses wgmma for few rows or columns. It splits the larger operand while loading it."""

    config = NarrowConfig
    instructions = "wgmma"
    takes_any_strides = False

    def runs_on(self, traits: Traits) -> bool:
        """Run on compute capability 9.0."""
        return traits.has_wgmma

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        """Return the defaults for few rows or columns, unless the precision is strict."""
        short = min(problem.m, problem.n)
        is_able = allows_splitting(problem) and problem.k >= LEAST_NARROW_DEPTH
        is_able = is_able and LEAST_NARROW <= short <= MOST_NARROW
        return self.defaults(problem.shape, traits) if is_able and self.fits(problem) else ()

    def fits(self, problem: Problem) -> bool:
        """Return whether the larger operand has contiguous rows or columns."""
        a, *_ = _transposed(*problem.layouts)
        return 1 in (a.row_stride, a.column_stride)

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
        scratch, (a, b, c, transposed) = Scratch(), _transposed(*problem.layouts)
        config = fitted(self.config_of(choice), a)
        return scratch.plan(_steps(a, b, c, transposed, config, traits.limits, scratch))

    def fault(self, problem: Problem, choice: Choice, multiply: Multiply) -> str:
        """Return what is wrong on data of narrow and of wide range."""
        m, n = NARROW_TRIAL
        short = min(self.config_of(choice).columns, problem.m, problem.n)
        shape = Shape(m, short, TRIAL.k) if problem.m >= problem.n else Shape(short, n, TRIAL.k)
        return inexact(multiply, shape, is_guarded=True)

    def edge_shapes(self, config: NarrowConfig) -> list[Shape]:
        """Return sizes around a tile."""
        return tile_edges(config.tile_m, config.columns, config.chunk)


NARROW = Narrow()
