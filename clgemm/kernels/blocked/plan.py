"""The launches of the blocked family: panels for vector registers and caches. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from clgemm.core.config import variant_of
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
from clgemm.core.problem import FLOAT_BYTES, Layout, Level
from clgemm.core.traits import Limits
from clgemm.kernels.blocked.config import (
    NEAR,
    BlockedConfig,
    BlockedEstimate,
    BlockedVariant,
    cuts_k,
    register_spread,
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
from clgemm.kernels.split_k.plan import product_arguments

__all__ = ["is_faster_transposed", "make_blocked_plan"]

# Fitted on Xeons with AVX-512; the data and the script of the fit were not kept.
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


def make_blocked_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: BlockedConfig,
    pack: tuple[VectorPackConfig, ...],
    limits: Limits,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C``.

    Parameters
    ----------
    pack : tuple of VectorPackConfig
        The config that packs A, if A is packed. Work-groups pack B themselves.
    """
    config = replace(config, in_place=_is_read_in_place(a, config))
    panels = RegisterPanels(
        *(a, b, c),
        tiles=(config.tile_m, config.tile_n),
        packed=(not config.in_place, False),
        pack=pack,
        limits=limits,
        config=config,
    )
    return make_panel_plan(panels)
