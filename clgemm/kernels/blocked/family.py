"""The blocked family: blocks of C in vector registers, panels in the caches, for CPUs. Pure.

The model by which it divides C among cores is for cores that have vectors and their own caches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import ClassVar, NamedTuple

from clgemm.core.config import (
    KernelConfig,
    Launch,
    positive,
    tunable_of,
    variant_of,
    vector,
    vector_block_of,
)
from clgemm.core.plan import (
    COUNTERS,
    LAST_GROUP,
    Argument,
    Batch,
    Element,
    Plan,
    Step,
    batch_of,
    ceil_div,
    operand_at,
    operand_in_place,
    round_up,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, Level, Problem, Shape
from clgemm.core.traits import Limits, Traits
from clgemm.kernels.common.family import (
    FLAGS,
    PANEL_SAMPLES,
    Choice,
    Fallback,
    Family,
    SearchSpace,
    changed,
    values_of,
)
from clgemm.kernels.common.panels import (
    Panels,
    Place,
    Scratch,
    batch_over,
    make_panel_plan,
    own_levels,
    packed_strides,
    strides_of,
    target_of,
)
from clgemm.kernels.pack.plan import VectorPackConfig, VectorPackVariant
from clgemm.kernels.split_k.plan import ReduceConfig, product_arguments

# Fitted on Xeons with AVX-512.
# Costs are in multiply-adds of a vector by a row of A.
PANEL_COST = 0.25  # vectors: overhead of a panel of B
NARROW_COST = 0.15  # vectors: overhead of a panel, times the square of its missing vectors
BLOCK_COST = 0.9  # vectors: overhead of a block
FAR_COST = 1.5  # the same where the caches do not hold A
STRIP_COST = 300  # multiply-adds: storing each row of a block of C, which begins in another page
PACK_COST = 32  # rows: packing a block of B
TAKE_COST = 8000  # multiply-adds: taking a block of A from a list
SLICE_COST = 48  # steps over k: writing and reading C for a slice
# Multiply-adds: a second launch, which adds slices up. Set on two cores of a Xeon.
CUT_COST = 200_000
SMALLEST_SLICE = 512  # of k
NEAR = 2**19  # elements of A per compute unit that the last cache holds
FEW_PANELS = 64  # pairs of panels per compute unit; from here on k is not cut


@dataclass(frozen=True)
class BlockedConfig(KernelConfig):
    """Streams panels through the caches; a work-item holds a block of C in vector registers.

    Work-groups pack B themselves, block by block, into memory that stays in their caches.
    """

    work_m: int  # rows of C in registers
    vectors: int  # vectors of each row of C in registers
    width: int  # floats per vector
    block_m: int  # most panels of A that are multiplied by the same panels of B
    block_n: int  # most panels of B per work-group: they stay in the second-level cache
    block_k: int  # most steps over k that are summed in registers
    unroll: int  # steps of the loop over k that are written out
    prefetch: int  # steps over k by which B is prefetched; 0 leaves it to the processor
    prefetch_a: int  # the same for panels of A
    in_place: bool  # read A in place, not packed, if its rows are contiguous
    aliasing: int  # but pack A if its row stride, in floats, is a multiple of this; 0: never
    fma: bool  # as in TiledConfig

    family: ClassVar[str] = "blocked"
    source: ClassVar[str] = "blocked/blocked.cl"
    entry: ClassVar[str] = "blocked_product"
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (VectorPackConfig, ReduceConfig)
    includes: ClassVar[tuple[str, ...]] = (
        "common/store.cl",
        *("blocked/panels_of_a.cl", "pack/vector_panels.cl"),
        *("blocked/panels_of_b.cl", "pack/vector_panels.cl"),
    )
    planned: ClassVar[frozenset[str]] = frozenset({"BLOCK_M", "BLOCK_N", "BLOCK_K", "ALIASING"})

    @property
    def tile_m(self) -> int:
        """Rows of a panel of A."""
        return self.work_m

    @property
    def tile_n(self) -> int:
        """Columns of a panel of B."""
        return self.vectors * self.width

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return also the macros for how panels are packed."""
        rows_a, columns_a = vector_block_of(self.tile_m)
        rows_b, columns_b = vector_block_of(self.tile_n)
        return (
            *super().macros(),
            *(("VECTOR_ROWS_A", rows_a), ("VECTOR_ROWS_B", rows_b)),
            *(("VECTOR_COLUMNS_A", columns_a), ("VECTOR_COLUMNS_B", columns_b)),
        )

    def problems(self) -> Iterator[str]:
        yield from positive(self, "prefetch", "prefetch_a", "aliasing")
        yield from vector(self, "width")
        if self.vectors > 3:
            yield f"vectors={self.vectors} is more than 3"


@dataclass(frozen=True)
class BlockedVariant(BlockedConfig):
    """The config of one launch."""

    packs: bool  # A is not packed yet: work-groups pack it for one another

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time: multiplying, and besides that packing and storing."""
        x, limits = launch.arguments, launch.limits
        costs, units = limits.cpu_costs, limits.compute_units
        m, n, k, matrices = x["m"], x["n"], x["k"], x["matrices"]
        tunable = tunable_of(BlockedConfig, self)
        cost = register_spread(tunable, m, n, k, matrices, x["block_k"], units).cost
        packed = x["a_matrices"] * m * k / costs.packed if self.packs else 0.0
        if x["b_column"] != 1:
            packed += matrices * n * k / costs.transposed
        stored = matrices * m * n * ceil_div(k, x["block_k"]) / costs.stored
        return float(cost / costs.blocked_vectors + (packed + stored) / units)


class BlockedEstimate(NamedTuple):
    """The blocks of C, and the lists that divide them among work-groups.

    Several work-groups may share a list. Each takes blocks from its own list, then from the others.
    """

    block_m: int  # panels of A in a block
    block_n: int  # columns of B in a block
    slice_k: int  # depth of a slice of k
    lists: int  # lists that the columns of blocks are divided among
    cost: float = 0.0  # expected time, in multiply-adds of a vector by an element of A


def cuts_k(config: BlockedConfig, m: int, n: int, matrices: int, units: int) -> bool:
    """Return whether there are so few blocks of C per core that k may be cut."""
    panels = ceil_div(m, config.tile_m) * ceil_div(n, config.tile_n)
    return matrices * panels < FEW_PANELS * units


@functools.lru_cache(maxsize=256)  # most blocks of one product have the same sizes
def register_spread(
    config: BlockedConfig, m: int, n: int, k: int, matrices: int, block_k: int, units: int
) -> BlockedEstimate:
    """Return the blocks that should end first: cores stay busy, and little is packed twice."""
    panels_m, vectors = ceil_div(m, config.tile_m), ceil_div(n, config.width)
    block_cost = BLOCK_COST if m * k <= NEAR * units else FAR_COST

    def width(vectors: int) -> float:
        panels = ceil_div(vectors, config.vectors)
        missing = panels * config.vectors - vectors
        return vectors + PANEL_COST * panels + NARROW_COST * missing**2 + block_cost

    cuts, slices_k = 1, [k]
    few = cuts_k(config, m, n, matrices, units)
    while few and cuts < units * 4 and k // (2 * cuts) >= SMALLEST_SLICE:
        cuts *= 2
        slices_k.append(round_up(ceil_div(k, cuts), block_k))
    best, least = (1, 1, k, 1), math.inf
    columns_of = []  # for each width: itself, columns of blocks, the last one's vectors, mean width
    for block_n in _widths(config, vectors, block_k):
        whole, rest = divmod(vectors, block_n)  # the last column is narrower
        across = whole + (rest > 0)
        mean = (whole * width(block_n) + (width(rest) if rest else 0)) / across
        columns_of.append((block_n, across, rest, mean))
    for block_m in _even_parts(panels_m, config.block_m):
        blocks_m = ceil_div(panels_m, block_m)
        for block_n, across, rest, mean in columns_of:
            for slice_k in slices_k:
                depth = slice_k + (SLICE_COST if slice_k < k else 0)
                stacked = matrices * ceil_div(k, slice_k)
                columns = stacked * across
                each = (mean * depth + STRIP_COST) * block_m * config.tile_m + TAKE_COST
                # B's block of a column is packed once; with several blocks of k, for each of A.
                pack = mean * depth * PACK_COST
                # Units that are slowed down end later, by less if blocks are small.
                late, cut = each / 4, CUT_COST if slice_k < k else 0
                for i in range(units.bit_length()):
                    lists = max(1, min(columns, units // 2**i))  # 2**i work-groups share each
                    (rounds, over), (groups, spare) = divmod(columns, lists), divmod(units, lists)
                    if over or spare or (rest and stacked % lists):
                        # Some help other lists, and pack again.
                        taken, rounds = ceil_div(columns * blocks_m, units) + 1, rounds + 1
                    else:
                        taken = ceil_div(rounds * blocks_m, groups)
                    packed = rounds if slice_k <= block_k else taken
                    cost = taken * each + packed * pack + late + cut
                    if cost < least:
                        best, least = (block_m, block_n, slice_k, lists), cost
    block_m, block_n, slice_k, lists = best
    return BlockedEstimate(block_m, block_n * config.width, slice_k, lists, least)


def _widths(config: BlockedConfig, vectors: int, depth: int) -> Iterable[int]:
    """Return the numbers of vectors that a block of C may be wide.

    The second-level cache holds a block of B. So with a short k, blocks are wider, and rows of C
    are written in few pieces.
    """
    most = config.block_n * config.vectors
    if depth <= config.block_k // 2:
        return _even_parts(vectors, most * config.block_k // depth)
    return range(1, min(vectors, most) + 1)


def _even_parts(count: int, most: int) -> list[int]:
    """Return the sizes, up to `most`, that cut `count` items into parts of nearly one size."""
    parts = range(ceil_div(count, most), count + 1)
    sizes = dict.fromkeys(ceil_div(count, n) for n in parts[: 4 * most])
    return list(sizes)


# Fitted likewise.
RUN_COST = 12  # rows: overhead of each run of rows that packing reads
GROUPS_PER_UNIT = 2  # work-groups per compute unit that copy contiguous columns
LONGEST_RUN = 4096  # rows of a contiguous column per work-group: panels are in many pages
PACKED_COST = 0.7  # nanoseconds to pack an element of A
NEAR_COST = 0.45  # the same if the caches hold a block of k
BLOCKED_COST = 0.2  # nanoseconds to pack an element of B, in blocks that stay in the caches
TRANSPOSED_COST = 1.0  # nanoseconds per element and block of k to store C along columns
PACKED_NEAR = 2**20  # bytes of A per compute unit that the launch packs before it multiplies
PACKED_MEANWHILE = 2**22  # the same where it packs while it multiplies
# Floats. Columns that are a multiple of it apart share sets of the caches, which then evict what is
# prefetched.
FETCHED_ALIASING = 512
ALIASED_ROWS = 8  # rows that fill a set of a first-level cache, through which B passes too
LAUNCH_WORK = 2**27  # multiply-adds per compute unit of a launch: k is not cut below that
TRANSPOSED = 16  # most columns that packing transposes at once; blocks of k are multiples of it


def is_faster_transposed(
    a: Layout, b: Layout, c: Layout, config: BlockedConfig, limits: Limits
) -> bool:
    """Return whether packing and storing take less time for ``C' = B' A'`` than for ``C = A B``.

    All of A is packed unless it is read in place. So A should be the smaller operand, or the one
    that can be read in place. C is stored fastest along its rows.
    """

    def cost(a: Layout, b: Layout, c: Layout) -> float:
        blocks_k = ceil_div(a.columns, config.block_k)
        near = a.rows * config.block_k <= NEAR * limits.compute_units
        packed_cost = NEAR_COST if near else PACKED_COST
        packed = 0 if _is_read_in_place(a, config) else packed_cost * _elements(a)
        stored = (c.column_stride != 1) * TRANSPOSED_COST * blocks_k * _elements(c)
        return packed + BLOCKED_COST * _elements(b) + stored

    return cost(b.transposed(), a.transposed(), c.transposed()) < cost(a, b, c)


def _is_read_in_place(a: Layout, config: BlockedConfig) -> bool:
    fills_set = config.aliasing > 0 and config.work_m >= ALIASED_ROWS
    aliases = fills_set and a.row_stride % config.aliasing == 0
    return config.in_place and a.column_stride == 1 and not aliases


def _sharing(levels: tuple[Level, ...]) -> int:
    """Return how many consecutive matrices of a batch have the same B."""
    shared = takewhile(lambda level: level.strides[1] == 0, reversed(levels))
    return math.prod(level.count for level in shared)


def _elements(x: Layout) -> int:
    """Return the elements of a batch, repeated matrices counted once."""
    batch = zip(x.batch, x.strides[:-2], strict=True)
    return x.rows * x.columns * math.prod(count for count, stride in batch if stride != 0)


class _Work(NamedTuple):
    """The work of one launch."""

    batch: Batch
    spread: BlockedEstimate
    cuts: int  # slices of k
    columns: int  # columns of blocks of C
    groups: int  # work-groups
    matrices_a: int  # distinct matrices of A
    packs: bool  # the launch packs A
    meanwhile: bool  # it packs A while it multiplies


@dataclass(frozen=True)
class RegisterPanels(Panels[VectorPackConfig]):
    """A product of panels, with blocks of C in vector registers.

    The panels of one block of k are stored together. One launch multiplies: each work-group packs
    its blocks of B, and the blocks of A that no other work-group has packed. An A that can be read
    in place is not packed. A large A is packed before, by its own launch, in blocks of k that the
    caches hold.
    """

    config: BlockedConfig

    @property
    def grain(self) -> int:
        """The columns that packing transposes at once."""
        return TRANSPOSED

    @property
    def longest(self) -> int:
        """The depth of A that the caches hold, if several columns of blocks read A; else any depth.

        Launches add their blocks of k up in C. Each launch has a minimum of work.
        """
        m, n, matrices = self.c.rows, self.c.columns, math.prod(self.c.batch)
        units = self.limits.compute_units
        if self.config.in_place:
            one_column = n <= self.config.block_n * self.config.tile_n
            if one_column or cuts_k(self.config, m, n, matrices, units):
                return LAST_GROUP
        near = NEAR * units // round_up(m, self.config.tile_m)
        enough = LAUNCH_WORK * units // (m * n * matrices)
        return max(min(near, enough), self.config.block_k)

    def padded(self, depth: int) -> int:
        """Return the columns of a packed block: there is no padding along k."""
        return depth

    def block_depth(self, depth: int) -> int:
        """Return the depth of the blocks of k: the same for all, a little less for the last."""
        cuts = ceil_div(depth, self.config.block_k)
        return min(round_up(ceil_div(depth, cuts), TRANSPOSED), self.config.block_k)

    def pack_sizes(self, operand: int, rows: int, depth: int) -> dict[str, int]:
        """Return rows, columns, the depth of a block, and the panels and columns per work-group."""
        panels, columns = self._cuts(operand, rows, depth)
        return {
            "rows": rows,
            "columns": depth,
            "block_k": self.block_depth(depth),
            "cut_panels": panels,
            "cut_columns": columns,
        }

    def pack_groups(self, operand: int, rows: int, depth: int) -> int:
        """Return the work-groups that pack one matrix."""
        block, (panels, columns) = self.block_depth(depth), self._cuts(operand, rows, depth)
        cuts = ceil_div(ceil_div(rows, self.pack[operand].panel), panels)
        return cuts * ceil_div(block, columns) * ceil_div(depth, block)

    def _cuts(self, operand: int, rows: int, depth: int) -> tuple[int, int]:
        """Return the panels and the columns of a block that one work-group packs.

        Memory is read fastest in long runs: along contiguous columns, else along k.
        """
        pack, block = self.pack[operand], self.block_depth(depth)
        panels, blocks = ceil_div(rows, pack.panel), ceil_div(depth, block)
        if self.rows[operand].row_stride == 1:
            wanted = ceil_div(GROUPS_PER_UNIT * self.limits.compute_units, blocks)
            columns = round_up(ceil_div(block, wanted), TRANSPOSED)
            cuts = ceil_div(wanted, ceil_div(block, columns))
            return min(ceil_div(panels, cuts), LONGEST_RUN // pack.panel), columns

        def expected(panels_here: int) -> float:
            rounds = ceil_div(ceil_div(panels, panels_here) * blocks, self.limits.compute_units)
            return rounds * (panels_here * pack.panel + RUN_COST)

        return min(range(1, min(pack.panels, panels) + 1), key=expected), block

    def multiply(self, place: Place, scratch: Scratch) -> Iterator[Step]:
        """Yield the launch that multiplies, and with split-k the one that adds up."""
        (m, n, k), part, a, b = place.sizes, place.part, *self.rows
        work, levels, origins = self._work(place), part.levels, place.origins
        batch, spread, block_k = work.batch, work.spread, self.block_depth(k)
        first_a = Element("a", part.offsets[0] + origins[0])
        first_b = Element("b", part.offsets[1] + origins[1])
        if self.config.in_place:
            place_a = operand_at("a", "a", first_a, row=a.row_stride)
        else:
            place_a = operand_at("a", "packed_a", 0, row=0)
        place_b = operand_in_place("b", "b", first_b, b.transposed())
        source: dict[str, Argument] = {}
        if work.packs:
            source_strides = batch_of(levels, 3).strides[0]
            source = operand_in_place("source", "a", first_a, a, strides=source_strides)
            source |= {"a_matrices": work.matrices_a, "meanwhile": work.meanwhile}
            scratch.reserve("packed_a", work.matrices_a * self.packed_bytes(0, m, k))
        packed = round_up(spread.block_n, self.config.tile_n) * block_k
        scratch.reserve("packed_b", FLOAT_BYTES * work.groups * packed)
        result = target_of(self, place, work.cuts, batch, scratch)
        sizes = {"m": m, "n": n, "k": k, "slice_k": spread.slice_k}
        sizes |= {"block_m": spread.block_m, "block_n": spread.block_n, "block_k": block_k}
        scratch_b: dict[str, Argument] = {"scratch": "packed_b", "scratch_size": packed}
        yield Step(
            variant_of(BlockedVariant, self.config, packs=work.packs),
            work.groups,
            {
                **product_arguments(sizes, batch, place_a, place_b, result, scratch_b),
                "matrices": batch.matrices,
                "sharing": _sharing(levels),
                "all": work.columns,
                "lists": spread.lists,
                "counters": "counters",
                **source,
            },
        )
        yield from result.adding

    def packs_itself(self, place: Place) -> bool:
        """Return whether the caches hold A and it is enough for every work-group to pack."""
        return self._work(place).packs

    def most_matrices(self, rows: int, depth: int) -> int:
        """Return how many packed matrices the caches hold; no limit if A is read in place."""
        if self.config.in_place:
            return LAST_GROUP
        matrix = round_up(rows, self.config.tile_m) * depth
        return max(1, NEAR * self.limits.compute_units // matrix)

    def _is_far(self, rows: int, depth: int, near: int) -> bool:
        return self.packed_bytes(0, rows, depth) > near * self.limits.compute_units

    def pack_config(self, operand: int, rows: int, depth: int) -> VectorPackConfig:
        """Return the config that packs A. It copies an A that no cache holds past the caches."""
        pack = self.pack[operand]
        copied = self.rows[operand].row_stride == 1
        streams = copied and self._is_far(rows, depth, PACKED_NEAR)
        return variant_of(VectorPackVariant, pack, streams=streams)

    def _work(self, place: Place) -> _Work:
        (m, n, k), part = place.sizes, place.part
        levels = part.levels
        strides_a = packed_strides(levels, 0, round_up(m, self.config.tile_m) * k)
        if self.config.in_place:
            strides_a = strides_of(levels, 0)
        batch = batch_over(part, strides_a, strides_of(levels, 1))
        units, block_k = self.limits.compute_units, self.block_depth(k)
        spread = register_spread(self.config, m, n, k, batch.matrices, block_k, units)
        cuts = ceil_div(k, spread.slice_k)
        blocks_m = ceil_div(m, spread.block_m * self.config.tile_m)
        columns = batch.matrices * cuts * ceil_div(n, spread.block_n)
        groups = min(columns * blocks_m, units)
        matrices_a = math.prod(level.count for level in own_levels(levels, 0))
        blocks = matrices_a * blocks_m
        counters = blocks * ceil_div(k, block_k) + units + 1
        a = self.rows[0]
        meanwhile = (
            a.row_stride == 1
            and a.column_stride % FETCHED_ALIASING != 0
            and blocks_m >= groups  # otherwise work-groups wait for one another too long
            and not self._is_far(m, k, PACKED_MEANWHILE)
        )
        packs = (
            not self.config.in_place
            and (meanwhile or not self._is_far(m, k, PACKED_NEAR))
            and 2 * blocks * cuts >= groups
            and counters <= COUNTERS * units
        )
        return _Work(batch, spread, cuts, columns, groups, matrices_a, packs, meanwhile)


MOST_ROWS = 512  # of a block of A in an edge shape


def register_config(width: int, can_prefetch: bool, fma: bool) -> BlockedConfig:
    """Return the config whose accumulators fill the vector registers of a CPU core.

    A register holds one vector of `width` floats. The registers that the accumulators leave free
    hold a row of B and an element of A. Sixteen floats are AVX-512 (32 registers), eight AVX (16),
    four NEON (32) and SSE (16). Three vectors a row need the fewest loads: 11 loads for 24
    multiply-adds.

    `fma` depends on the compiler. Intel's makes a slower kernel without it where A is read in
    place. With it, Intel's spills registers unless one stays free, and with AVX also if A is
    prefetched. PoCL 3.0 aborts on `fma` of vectors wider than those that it compiles for.
    """
    work_m, vectors = {16: (8, 3), 8: (6, 2) if fma else (4, 3)}.get(width, (4, 2))
    return BlockedConfig(
        work_m=work_m,
        vectors=vectors,
        width=width,
        block_m=4096 // work_m,
        block_n=144 // (vectors * width),
        block_k=1024 if width == 16 else 512,
        unroll=8,
        prefetch=8 if can_prefetch else 0,
        prefetch_a=64 if can_prefetch and width == 16 else 0,
        in_place=True,
        aliasing=1024,  # floats: rows so far apart share a set of a first-level cache
        fma=fma,
    )


def _with_packing(config: BlockedConfig) -> Choice:
    return Choice(config, (VectorPackConfig.of(config.tile_m, config.prefetch > 0),))


class Blocked(Family[BlockedConfig, VectorPackConfig]):
    """Blocks of C in vector registers, panels in the caches, for CPUs."""

    config = BlockedConfig
    packs = (VectorPackConfig,)  # of A: work-groups pack B themselves
    stores_columns = True
    for_vectors = True
    shapes = PANEL_SAMPLES

    def defaults(self, shape: Shape, traits: Traits) -> tuple[Choice, ...]:
        """Return the config whose accumulators fill the registers."""
        config = register_config(traits.register_width, traits.is_vector_compiler, traits.wants_fma)
        # Many cores lose more time waiting for packing than rows that share sets of a cache cost.
        return (_with_packing(replace(config, aliasing=0) if traits.has_many_cores else config),)

    def plainest(self, traits: Traits) -> Choice:
        """Return a config with vectors of two floats."""
        return _with_packing(register_config(2, False, False))

    def panels(self, config: BlockedConfig) -> tuple[int, ...]:
        """Return the rows of panels of A."""
        return (config.tile_m,)

    def plan(self, problem: Problem, choice: Choice, traits: Traits, fallback: Fallback) -> Plan:
        """Return the launch that multiplies, after one that packs A if A is large."""
        config = self.config_of(choice)
        config = replace(config, in_place=_is_read_in_place(problem.a, config))
        panels = RegisterPanels(
            *problem.layouts,
            tiles=(config.tile_m, config.tile_n),
            packed=(not config.in_place, False),
            pack=self.packing(choice),
            limits=traits.limits,
            config=config,
        )
        return make_panel_plan(panels)

    def is_faster_transposed(self, problem: Problem, choice: Choice, traits: Traits) -> bool:
        """Return whether packing and storing cost less for ``C' = B' A'``."""
        return is_faster_transposed(*problem.layouts, self.config_of(choice), traits.limits)

    def search_space(self, default: Choice, traits: Traits) -> SearchSpace:
        config = self.config_of(default)
        distances = (0, 8, 16, 32) if traits.is_vector_compiler else (0,)
        values = {
            "work_m": (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14),
            "vectors": (1, 2, 3),
            "width": tuple(w for w in (4, 8, 16) if w <= traits.limits.vector_width) or (2,),
            "block_rows": (256, 512, 1024, 4096),
            "block_columns": (48, 96, 144, 192, 256, 384),
            "block_k": (256, 384, 512, 768, 1024, 1536),
            "unroll": (1, 2, 4, 8),
            "prefetch": distances,
            "prefetch_a": (0, 32, 64, 128) if traits.is_vector_compiler else (0,),
            "in_place": FLAGS,
            "fma": FLAGS,
            "pack_rows": (64, 128, 256, 384, 768),
            "pack_prefetch": FLAGS if traits.is_vector_compiler else (0,),
        }
        couples = ("work_m", "vectors"), ("vectors", "width"), ("block_rows", "block_columns")
        coarse = {
            ("width",): tuple((width,) for width in values["width"]),
            # A compiler that contracts a * b + c by itself may do so less well for a given tile.
            ("fma",): tuple((flag,) for flag in FLAGS),
            ("work_m", "vectors"): ((8, 3), (4, 3), (6, 2), (12, 2), (12, 1), (4, 2)),
        }

        def make(point: dict[str, int]) -> Choice:
            # Points give blocks in rows and columns, which do not depend on the size of the panels.
            tile_m, tile_n = point["work_m"], point["vectors"] * point["width"]
            blocks = {
                "block_m": max(1, point["block_rows"] // tile_m),
                "block_n": max(1, point["block_columns"] // tile_n),
            }
            made = changed(config, point | blocks)
            pack = VectorPackConfig.of(tile_m, bool(point["pack_prefetch"]), point["pack_rows"])
            return Choice(made, (pack,))

        def read(choice: Choice) -> dict[str, int]:
            made, (pack,) = self.config_of(choice), self.packing(choice)
            return values_of(made, values) | {
                "block_rows": made.block_m * made.tile_m,
                "block_columns": made.block_n * made.tile_n,
                "pack_rows": pack.panels * pack.panel,
                "pack_prefetch": int(pack.prefetch),
            }

        return SearchSpace(values, couples, coarse, make, read)

    def edge_shapes(self, config: BlockedConfig) -> list[Shape]:
        """Return sizes around a panel, and around a block of panels."""
        m, n, k = config.tile_m, config.tile_n, config.block_k
        return [
            Shape(m + 1, 2 * n - 1, 37),
            Shape(m * min(config.block_m, MOST_ROWS // m) + m + 1, n + 1, 9),
            Shape(2 * m - 1, n * config.block_n + 3, k + 1),
            Shape(m, n, 16),
            Shape(3, 5, 4 * k + 1),
            Shape(m + 3, n - 1, 21, 5),
        ]


BLOCKED = Blocked()
