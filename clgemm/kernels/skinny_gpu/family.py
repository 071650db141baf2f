"""The skinny_gpu family: few rows or columns; the large operand is read once. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from clgemm.core.config import KernelConfig, Launch, multiple, positive, variant_of, vector
from clgemm.core.plan import (
    LAST_GROUP,
    Element,
    Plan,
    Step,
    batch_of,
    ceil_div,
    matrices_of,
    operand_in_place,
    round_up,
    slices,
    widest_load,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, Problem, Shape, batch_levels
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import (
    FEW_ROWS_SAMPLES,
    FLAGS,
    Choice,
    Fallback,
    Family,
    SearchSpace,
    space_of_fields,
)
from clgemm.kernels.common.in_place import (
    LEAST_WORK,
    MOST_ROWS,
    SMALLEST_SLICE,
    FewRows,
    few_rows,
    fits_few_rows,
    slice_of_k,
)
from clgemm.kernels.common.panels import Scratch
from clgemm.kernels.split_k.plan import ReduceConfig, product_arguments, target

HINTED_WIDTH = 4  # floats of a load that can carry a hint for the last cache
ITEMS_PER_REGISTER = 4  # of a work-group, for each register that work-items have
RUNNING_ITEMS = 2048  # work-items that run side by side on a compute unit
ABREAST_FLOATS = 128  # of k, which the work-items side by side read in a step
MOST_OF_A = 16  # floats of A that a work-item copies to local memory at a time


@dataclass(frozen=True)
class SkinnyGpuConfig(KernelConfig):
    """Multiplies by an operand of a few rows; large work-groups read the other once, in place."""

    rows: int  # rows of C at a time
    width: int  # floats per load of B
    group: int  # work-items per work-group
    abreast: int  # of them, those side by side along a row of B, if its rows are contiguous
    chunk: int  # columns of A in local memory; 0: read A in place, if B's rows are contiguous
    fma: bool  # as in TiledConfig
    ahead: int = 4  # loads of B in flight

    family: ClassVar[str] = "skinny_gpu"
    source: ClassVar[str] = "skinny_gpu/skinny_gpu.cl"
    entry: ClassVar[str] = "skinny_product"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl", "split_k/fused.cl")
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (ReduceConfig,)

    @property
    def strip(self) -> int:
        """Columns of C per work-group."""
        return self.abreast * self.width

    @property
    def local_memory_bytes(self) -> int:
        return FLOAT_BYTES * (self.rows * self.chunk + self.group * self.width)

    def problems(self) -> Iterator[str]:
        bad = [*positive(self, "chunk", "cached_loads"), *vector(self, "width")]
        yield from bad
        if not bad:
            yield from multiple(self, "group", of="abreast")
            yield from multiple(self, "chunk", of="width")
            if self.rows * self.chunk > MOST_OF_A * self.group:
                yield (
                    f"chunk={self.chunk} columns of rows={self.rows} are more than {MOST_OF_A} "
                    f"floats for each of group={self.group} work-items"
                )


@dataclass(frozen=True)
class SkinnyGpuVariant(SkinnyGpuConfig):
    """The config of one launch."""

    along_k: bool = False  # B's columns are contiguous, not its rows
    unaligned: bool = False  # they begin and end anywhere, not at multiples of `width`
    fused_split_k: bool = False  # the kernel itself adds up slices of k
    # Of the loads in flight, those that the last cache is told to keep; it evicts the others first.
    # 0: no hints.
    cached_loads: int = 0

    @property
    def strip(self) -> int:
        """Columns of C per work-group."""
        return self.group // self.abreast if self.along_k else super().strip

    @property
    def step(self) -> int:
        """Rows of B that the work-items read by a load each."""
        return self.abreast * self.width if self.along_k else self.group // self.abreast

    @property
    def local_memory_bytes(self) -> int:
        more_of_a = self.rows * self.width if self.unaligned else 0
        return super().local_memory_bytes + FLOAT_BYTES * more_of_a

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch: the bytes of B, and the latency of its steps."""
        _, arguments, limits = launch
        costs = limits.costs
        m, n, k, slice_k = (arguments[name] for name in ("m", "n", "k", "slice_k"))
        # Along k, a work-group takes as long for fewer columns.
        columns = round_up(n, self.strip) if self.along_k else n
        read = FLOAT_BYTES * matrices_of(arguments["counts"]) * columns * k * ceil_div(m, self.rows)
        rounds = ceil_div(launch.groups * self.group, RUNNING_ITEMS * limits.compute_units)
        fused = costs.fused_us if self.fused_split_k else 0.0
        depth = min(k, slice_k)
        if self.along_k:
            reading = read / costs.dots_bytes * (1 + costs.dots_row * (self.rows - 1))
            latency = costs.dots_us + depth / ABREAST_FLOATS * costs.dots_step_us
        else:
            reading = read / costs.skinny_bytes * (1 + costs.skinny_row * (self.rows - 1) ** 2)
            steps = depth / (self.group // self.abreast * self.ahead)
            latency = costs.skinny_us + steps * costs.skinny_step_us
        return float(reading + rounds * latency + fused)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.along_k and not self.chunk:
            yield "along_k needs a chunk of A in local memory, not chunk=0"
        if self.unaligned and not self.along_k:
            yield "unaligned needs along_k"
        if self.chunk % (self.ahead * self.step):
            yield (
                f"chunk={self.chunk} columns of A are no multiple of the {self.ahead * self.step} "
                f"that ahead={self.ahead} loads of all work-items bring"
            )
        if self.cached_loads and self.width != HINTED_WIDTH:
            yield (
                f"cached_loads={self.cached_loads} needs loads of {HINTED_WIDTH} floats, "
                f"not {self.width}"
            )
        if self.cached_loads >= self.ahead:
            yield f"cached_loads={self.cached_loads} is not below ahead={self.ahead}"


MOST_LANES_ROWS = 2  # rows or columns: with more, tiles in local memory are faster
# On NVIDIA's GPUs: loads in flight, for all rows together; work-items, and those of them that lie
# side by side along a row of B.
LOADS_AHEAD = 8
GROUP = 256
ABREAST = 32


def skinny_lanes_config(rows: int, limits: Limits) -> SkinnyGpuConfig:
    """Return the config that multiplies by an operand of few rows.

    Work-groups are as large as the device allows, as long as each work-item keeps its registers.
    They take at most 32 KiB of local memory.
    """
    rows = next(r for r in (1, 2, 4, 8) if r >= rows or r == 8)
    group = min(1024 if rows <= MOST_LANES_ROWS else 256, ITEMS_PER_REGISTER * limits.registers)
    while group > limits.work_group_size or 16 * group > limits.local_memory_bytes // 2:
        group //= 2
    chunk = min(max(1024, 4 * group), MOST_OF_A * group) // rows
    return SkinnyGpuConfig(
        rows=rows, width=4, group=group, abreast=min(8, group), chunk=chunk, fma=False, ahead=4
    )


# Most work-items per compute unit for which k is cut: it is slower to cut k into more work-groups
# than can run at the same time.
LANES_PER_UNIT = 1024
# The last cache keeps most of B without hints if B is at most this many times
# `persisting_cache_bytes`.
MOSTLY_CACHED = 1.5
# Where B's rows are contiguous, a config's `abreast` is divided by at most this.
MOST_FEWER_ABREAST = 4
# Where B's columns are contiguous. Measured on an H100, 22 products of 2e6 to 3e8 multiply-adds.
ABREAST_ALONG_K = 16  # work-items side by side: together they read 256 bytes
GROUP_ALONG_K = 256  # work-items
AHEAD_ALONG_K = 4  # loads in flight
# With more rows of loads that begin anywhere, one is in flight: two take so many registers that
# kernels spill on Intel's GPUs, and that one work-group fits on a compute unit of NVIDIA's.
MOST_ROWS_AHEAD = 4
CHUNK_ALONG_K = 2  # floats of A that each work-item copies to local memory at a time, at least


def fitted(config: SkinnyGpuConfig, b: Layout, limits: Limits) -> SkinnyGpuVariant:
    """Return a config that reads B where it is contiguous, by the widest loads that fit."""
    along_k = b.column_stride != 1
    width = widest_load(b, along_k, config.width)
    if not along_k:
        # With narrower loads, more of them side by side and in flight read as much.
        abreast = abreast_along_rows(config, b, width, limits)
        ahead = config.ahead * (config.width // width)
        fit = replace(config, width=width, abreast=abreast, ahead=ahead)
        return with_whole_loads(variant_of(SkinnyGpuVariant, fit, along_k=False))
    group, unaligned = min(config.group, GROUP_ALONG_K), width < config.width
    # Powers of two: the second is the largest that divides the work-group.
    abreast = min(ABREAST_ALONG_K, group & -group)
    ahead = 1 if unaligned and config.rows > MOST_ROWS_AHEAD else min(config.ahead, AHEAD_ALONG_K)
    chunk = max(CHUNK_ALONG_K * group // config.rows, ahead * abreast * config.width)
    chunk = min(config.chunk or chunk, chunk)
    fit = replace(config, group=group, abreast=abreast, ahead=ahead, chunk=chunk)
    return with_whole_loads(variant_of(SkinnyGpuVariant, fit, along_k=True, unaligned=unaligned))


def with_whole_loads(config: SkinnyGpuVariant) -> SkinnyGpuVariant:
    """Return a config whose loads in flight divide its chunk: fewer of them, and a smaller chunk.

    A chunk is as long as one load of all work-items at least.
    """
    if not config.chunk:
        return config
    ahead = max(1, min(config.ahead, config.chunk // config.step))
    loads = ahead * config.step
    return replace(config, ahead=ahead, chunk=max(1, config.chunk // loads) * loads)


def abreast_along_rows(config: SkinnyGpuConfig, b: Layout, width: int, limits: Limits) -> int:
    """Return how many work-items read a row of B together: as many as occupy all compute units."""
    abreast = config.abreast * (config.width // width)
    if config.group % abreast:
        abreast = config.abreast
    least = abreast // MOST_FEWER_ABREAST
    slices = math.prod(b.batch) * max(1, b.rows // SMALLEST_SLICE)
    while abreast % 2 == 0 and abreast // 2 >= least:
        strips = ceil_div(b.columns, abreast * width)
        if strips * slices >= limits.compute_units:
            break
        abreast //= 2
    return abreast


def loads_to_cache(config: SkinnyGpuConfig, b_bytes: int, limits: Limits) -> int:
    """Return how many of the loads in flight the last cache is told to keep.

    They are the part of B that it can keep. None if it keeps most of B anyway, or if it could keep
    hardly any of B.
    """
    if config.width != HINTED_WIDTH or b_bytes < MOSTLY_CACHED * limits.persisting_cache_bytes:
        return 0
    return config.ahead * limits.persisting_cache_bytes // b_bytes


def _steps(
    few: FewRows, config: SkinnyGpuConfig, limits: Limits, scratch: Scratch
) -> Iterator[Step]:
    """Yield each launch of ``C = alpha A B + beta C``, and reserve its scratch memory."""
    a, b, c, slot_a, slot_b = few
    m, n, k = c.rows, c.columns, a.columns
    fit = fitted(config, b, limits)
    blocks = ceil_div(m, fit.rows) * ceil_div(n, fit.strip)
    for offsets, levels in slices(batch_levels(a, b, c), LAST_GROUP // (blocks * k), 3):
        batch = batch_of(levels, 3)
        running_groups = limits.compute_units * LANES_PER_UNIT // fit.items
        slice_k = slice_of_k(k, running_groups // (blocks * batch.matrices), fit.width)
        cuts = ceil_div(k, slice_k)
        matrices_b = math.prod(level.count for level in levels if level.strides[1])
        cached_loads = loads_to_cache(fit, FLOAT_BYTES * matrices_b * n * k, limits)
        fused = blocks * batch.matrices, fit.rows * fit.strip
        result = target((m, n, cuts), levels, batch, "beta", c, offsets[2], limits, fused)
        scratch.reserve("partial", result.partial_bytes)
        place_a = operand_in_place("a", slot_a, Element(slot_a, offsets[0]), a)
        place_b = operand_in_place("b", slot_b, Element(slot_b, offsets[1]), b)
        sizes = {"m": m, "n": n, "k": k, "slice_k": slice_k}
        arguments = product_arguments(sizes, batch, place_a, place_b, result)
        launched = replace(fit, cached_loads=cached_loads, fused_split_k=result.fused_split_k)
        yield Step(launched, blocks * cuts * batch.matrices, arguments)
        yield from result.adding


class SkinnyGpu(Family[SkinnyGpuConfig, KernelConfig]):
    """Products with few rows or columns, on devices that spread work-items over lanes."""

    config = SkinnyGpuConfig
    for_vectors = False
    takes_any_strides = False
    shapes = FEW_ROWS_SAMPLES | {
        "tall": (Shape(4096, 2, 4096), Shape(16384, 2, 1024)),
        "wide": (Shape(2, 4096, 4096), Shape(2, 16384, 1024)),
    }

    def suits(self, problem: Problem, traits: Traits) -> bool:
        """Suit products with at most two rows or columns: with more, tiles are faster."""
        m, n, k, _ = problem.shape
        few = min(m, n) <= MOST_LANES_ROWS
        return n * m * k > LEAST_WORK and few and self.fits(problem)

    def candidates(self, problem: Problem, traits: Traits) -> tuple[Choice, ...]:
        return super().candidates(problem, traits) if problem.k else ()

    def fits(self, problem: Problem) -> bool:
        """Return whether C has few rows or columns and the large operand is contiguous."""
        return fits_few_rows(*problem.layouts)

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return a config for this number of rows or columns."""
        config = skinny_lanes_config(min(shape.m, shape.n), traits.limits)
        if traits.is_nvidia and config.rows <= MOST_LANES_ROWS:
            # NVIDIA's caches serve few rows as fast as local memory, without barriers.
            group = min(config.group, GROUP)
            ahead = LOADS_AHEAD // config.rows
            abreast = min(ABREAST, group)
            config = replace(config, group=group, abreast=abreast, chunk=0, ahead=ahead)
        return (Choice(config),)

    def plainest(self, traits: Traits) -> Choice:
        """Return a config with loads of one float."""
        return Choice(replace(skinny_lanes_config(4, traits.limits), width=1))

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launch that multiplies, and with split-k one that adds up."""
        few, config, scratch = few_rows(*problem.layouts), self.config_of(choice), Scratch()
        return scratch.plan(_steps(few, config, traits.limits, scratch))

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        return space_of_fields(
            default.config,
            values={
                "rows": (1, 2, 4, 8),
                "width": (1, 2, 4, 8),
                "group": (32, 64, 128, 256, 512, 1024),
                "abreast": (2, 4, 8, 16, 32, 64),
                "chunk": (64, 128, 256, 512, 1024, 2048, 4096),
                "fma": FLAGS,
                "ahead": (1, 2, 4, 6, 8),
            },
            couples=(("rows", "chunk"), ("group", "abreast"), ("group", "ahead")),
            coarse={
                ("rows", "chunk"): ((1, 1024), (1, 4096), (2, 512), (2, 2048), (4, 256), (8, 128)),
                ("width",): ((4,), (2,)),
                ("group", "abreast"): ((1024, 8), (256, 8), (256, 32), (1024, 32)),
            },
        )

    def edge_shapes(self, config: SkinnyGpuConfig) -> list[Shape]:
        """Return sizes around a strip and a chunk, or loads in flight where there is no chunk."""
        strip, chunk = config.strip, config.chunk or config.ahead * config.width
        return [
            Shape(1, strip + 1, 2 * chunk + 1),
            Shape(min(config.rows + 1, MOST_ROWS), 2 * strip - 1, chunk - 1 or 1),
            Shape(MOST_ROWS - 1, 37, 1501),
            Shape(config.rows, 2 * strip, chunk),
        ]


SKINNY_GPU = SkinnyGpu()
