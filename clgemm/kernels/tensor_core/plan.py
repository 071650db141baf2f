"""The configs of kernels for tensor cores, their expected times, and the launches. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import ClassVar, NamedTuple

from clgemm.core.config import KernelConfig, Launch
from clgemm.core.plan import (
    Argument,
    Element,
    OutlierCounter,
    Plan,
    Slice,
    Slot,
    Step,
    ceil_div,
    operand_in_place,
    round_up,
    slices,
    tiles_of,
)
from clgemm.core.problem import FLOAT_BYTES, Layout, Level, Problem, batch_levels
from clgemm.core.traits import Limits
from clgemm.kernels.common.family import Fallback
from clgemm.kernels.common.panels import PACKED, Scratch
from clgemm.kernels.tiled.plan import TiledConfig

# The same as in kernels/tensor_core/tile.cl, which describes a tile.
TILE_ROWS = 128
TILE_DEPTH = 64  # along k, in half precision
TF32_DEPTH = TILE_DEPTH // 2
TILE_BYTES = 2 * 16 * TILE_ROWS * 8 + 4 * TILE_ROWS + 2 * 64
TF32_SPLITTING = 2.0  # time in the launch that multiplies, over that of halves in another
LENGTH_BYTES = 4  # of the length of a list, in the directory behind the tiles
# Of the wgmma kernel: barriers, a part of C for each warp, and what splitting takes.
OTHER_BYTES = 128 + 8 * 16 * 48 * 4 + 1280
LOCAL_BYTES = 226 * 1024  # local memory of a work-group on compute capability 9.0

# Of the cuts along k.
MODELLED_ELEMENTS = 128 * 128  # of a tile, for which the costs of split-k hold
MOST_SLICES = 16
LEAST_DEPTHS = 2  # of a slice
MOST_ROUNDS = 4  # of slices: each takes scratch memory


@dataclass(frozen=True)
class SplitConfig(KernelConfig):
    """Splits both operands into tiles of two parts."""

    guard: bool  # list the elements that two parts cannot represent
    int8: bool = False  # low parts in int8, and the high ones in int8 too

    family: ClassVar[str] = "tensor_pack"
    source: ClassVar[str] = "tensor_core/pack.cl"
    entry: ClassVar[str] = "tensor_pack"
    includes: ClassVar[tuple[str, ...]] = (
        *("tensor_core/tile.cl", "tensor_core/eleven_bits.cl"),
        "tensor_core/split.cl",
    )

    @property
    def items(self) -> int:
        return 256

    def microseconds(self, launch: Launch) -> float:
        return split_us(_split_elements(launch), _is_strided(launch), launch.limits)

    def problems(self) -> Iterator[str]:
        if self.int8 and self.guard:
            yield "int8=True needs guard=False"


@dataclass(frozen=True)
class TensorConfig(KernelConfig):
    """Multiplies split tiles on tensor cores: what the wgmma and mma families share."""

    swizzle: int  # rows of tiles that work-groups visit together, for the second-level cache

    entry: ClassVar[str] = "tensor_product"
    includes: ClassVar[tuple[str, ...]] = (
        *("common/store.cl", "common/swizzle.cl"),
        "tensor_core/tile.cl",
        "tensor_core/outliers.cl",
        "tensor_core/store.cl",
    )
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (SplitConfig,)

    @property
    def tile_m(self) -> int:
        """Rows of C per tile."""
        return TILE_ROWS

    @property
    def tile_columns(self) -> int:
        """Columns of C per tile."""
        return TILE_ROWS


@dataclass(frozen=True)
class TensorVariant(TensorConfig):
    """The config of one call: what the wgmma and mma families share."""

    guard: bool  # as in SplitConfig
    int8: bool = field(default=False, kw_only=True)  # as there
    # Leave out the tiles left of the diagonal of C. B is A's transpose and has A's packed tiles.
    triangle: bool = field(default=False, kw_only=True)

    @property
    def packed_depth(self) -> int:
        """The least depth of the tiles for which packed operands have room."""
        return TILE_DEPTH

    @property
    def split(self) -> SplitConfig:
        """The config that splits the operands for it."""
        return SplitConfig(self.guard, self.int8)

    def step_us(self, limits: Limits) -> float:
        """Return the expected time of a step over a tile's depth in microseconds."""
        costs = limits.costs
        is_wide = self.tile_columns > self.tile_m
        return costs.tensor_step_us * (costs.tensor_wide if is_wide else 1.0)

    @property
    def tile_elements(self) -> int:
        """Elements of C per tile."""
        return self.tile_m * self.tile_columns

    def tiles(self, matrices: int, m: int, n: int) -> int:
        """Return the tiles of C that are computed."""
        return matrices * tiles_of(m, n, self.tile_m, self.tile_columns, self.triangle)

    def cuts(self, tiles: int, k: int, limits: Limits) -> Cuts:
        """Return how tiles of C are cut along k."""
        depths = ceil_div(k, TILE_DEPTH)
        return uncut(tiles, depths, self.step_us(limits), self.tile_elements, limits)

    def microseconds(self, launch: Launch) -> float:
        _, sizes, limits = launch
        tiles = self.tiles(sizes["matrices"], sizes["m"], sizes["n"])
        elements = sizes["matrices"] * sizes["m"] * sizes["n"]
        stored: int = 2 * FLOAT_BYTES * min(elements, tiles * self.tile_elements)
        costs = limits.costs
        last = FLOAT_BYTES * self.tile_elements * limits.compute_units
        storing = stored + costs.tensor_last_tile * last
        if sizes["c_column"] != 1 or sizes["c_row"] % 4:
            # Half of it for the ends of a tile's rows: blocks that two work-groups write in parts.
            storing += costs.tensor_unaligned * (1 + TILE_ROWS / self.tile_columns) / 2 * stored
        computing = self.cuts(tiles, sizes["k"], limits).us
        return costs.tensor_us - costs.start_us + computing + storing / costs.memory_bytes

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from self.split.problems()


@dataclass(frozen=True)
class MmaConfig(TensorConfig):
    """Uses mma.sync: compute capability 8.0 and later."""

    family: ClassVar[str] = "tensor_mma"
    source: ClassVar[str] = "tensor_core/mma.cl"
    # TiledConfig is the fallback, for data that two parts cannot represent.
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (SplitConfig, TiledConfig)

    @property
    def items(self) -> int:
        return 256

    @property
    def local_memory_bytes(self) -> int:
        return 2 * (16 * TILE_ROWS * 8 + 8 * TILE_ROWS)


@dataclass(frozen=True)
class MmaVariant(MmaConfig, TensorVariant):
    """The config of one call."""

    def step_us(self, limits: Limits) -> float:
        """Return more: mma.sync takes longer."""
        return limits.costs.mma * super().step_us(limits)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.int8:
            yield "int8=True needs wgmma"


@dataclass(frozen=True)
class WgmmaConfig(TensorConfig):
    """Uses wgmma: compute capability 9.0."""

    tile_n: int  # columns of C per tile
    stages: int  # tiles of A and B in local memory

    family: ClassVar[str] = "tensor"
    source: ClassVar[str] = "tensor_core/wgmma.cl"
    includes: ClassVar[tuple[str, ...]] = (
        *TensorConfig.includes,
        *("tensor_core/barriers.cl", "tensor_core/eleven_bits.cl", "tensor_core/split.cl"),
        "tensor_core/warp_groups.cl",
        *("tensor_core/plain.cl", "tensor_core/methods.cl"),
    )
    # 384 work-items start with 168 registers each; the kernel then divides the registers anew.
    options: ClassVar[tuple[str, ...]] = ("-cl-nv-maxrregcount=168",)

    @property
    def tile_columns(self) -> int:
        return self.tile_n

    @property
    def items(self) -> int:
        return 384

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.tile_n not in (TILE_ROWS, 2 * TILE_ROWS):
            yield f"tile_n={self.tile_n} is neither {TILE_ROWS} nor {2 * TILE_ROWS}"
        # Static local memory may exceed what the device reports.
        needed = self.stages * (1 + self.tile_n // TILE_ROWS) * TILE_BYTES + OTHER_BYTES
        if needed > LOCAL_BYTES:
            yield f"{needed} bytes of local memory exceed {LOCAL_BYTES}"


@dataclass(frozen=True)
class WgmmaVariant(WgmmaConfig, TensorVariant):
    """The config of one call."""

    plain_m: ClassVar[int] = 128  # rows of C per tile of the plain method
    plain_n: ClassVar[int] = 64  # and its columns
    plain_k: ClassVar[int] = 32  # and its depth
    plain_step_us: ClassVar[float] = 2.4  # microseconds of a step there, on an H100

    @property
    def packed_depth(self) -> int:
        """That of tf32, if it may need that."""
        return TF32_DEPTH if self.guard else TILE_DEPTH

    def cuts(self, tiles: int, k: int, limits: Limits) -> Cuts:
        """Return the cuts that leave the fewest compute units idle."""
        depths = ceil_div(k, TILE_DEPTH)
        return best_cuts(tiles, depths, self.step_us(limits), self.tile_elements, limits)

    def plain_cuts(self, matrices: int, m: int, n: int, k: int, limits: Limits) -> Cuts:
        """Return how the plain method cuts its tiles along k."""
        tiles = matrices * ceil_div(m, self.plain_m) * ceil_div(n, self.plain_n)
        depths, elements = ceil_div(k, self.plain_k), self.plain_m * self.plain_n
        return best_cuts(tiles, depths, self.plain_step_us, elements, limits)

    def fallback_us(self, launch: Launch) -> float:
        """Return the time in tf32: splitting, and twice as many steps."""
        if not self.guard:
            return 0.0
        _, sizes, limits = launch
        matrices, m, n, k = sizes["matrices"], sizes["m"], sizes["n"], sizes["k"]
        splitting = split_us(_split_elements(launch), _is_strided(launch), limits)
        multiplying = self.cuts(self.tiles(matrices, m, n), 2 * k, limits).us
        return TF32_SPLITTING * splitting + multiplying

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return also the macros of tensor_core/plain.cl."""
        plain = ("PLAIN_M", self.plain_m), ("PLAIN_N", self.plain_n), ("PLAIN_K", self.plain_k)
        return (*super().macros(), *plain)


class Cuts(NamedTuple):
    """How the tiles of C are cut along k: the first `whole` not at all, the others in slices."""

    tiles: int  # all
    whole: int  # those that are not cut
    slices: int  # of each other tile
    elements: int  # of C, of a tile
    us: float  # expected time in microseconds that the device is busy with all of them

    @property
    def parts(self) -> int:
        """What work-groups compute at a time: tiles that are not cut, and slices."""
        return self.whole + self.all_slices

    @property
    def all_slices(self) -> int:
        """The slices of all tiles that are cut."""
        return (self.tiles - self.whole) * self.slices

    @property
    def slices_bytes(self) -> int:
        """The scratch memory that all slices take."""
        return FLOAT_BYTES * self.elements * self.all_slices


@functools.lru_cache(maxsize=1024)
def best_cuts(tiles: int, depths: int, step_us: float, elements: int, limits: Limits) -> Cuts:
    """Return the cuts that leave the fewest compute units idle in the last round of tiles.

    Parameters
    ----------
    depths : int
        Steps over k of a tile that is not cut.
    step_us : float
        Time of a step.
    elements : int
        Elements of C of a tile.
    """
    found = _cuts(tiles, depths, step_us, elements, limits)
    return min((uncut(tiles, depths, step_us, elements, limits), *found), key=lambda cuts: cuts.us)


def uncut(tiles: int, depths: int, step_us: float, elements: int, limits: Limits) -> Cuts:
    """Return no cuts; the parameters are those of `best_cuts`."""
    return Cuts(tiles, tiles, 1, elements, _rounds(tiles, limits) * depths * step_us)


def _cuts(tiles: int, depths: int, step_us: float, elements: int, limits: Limits) -> Iterator[Cuts]:
    units, costs = limits.compute_units, limits.costs
    full = tiles // units
    for rounds in {max(full - 1, 0), full} - {tiles / units}:
        cut = tiles - rounds * units
        most = min(MOST_SLICES, depths // LEAST_DEPTHS, MOST_ROUNDS * units // cut)
        for parts in {ceil_div(depths, ceil_div(depths, some)) for some in range(2, most + 1)}:
            steps = rounds * depths + _rounds(cut * parts, limits) * ceil_div(depths, parts)
            adding = costs.tensor_slice_us * parts
            adding += costs.tensor_round_us * ceil_div(cut * parts, units)
            us = step_us * steps + elements / MODELLED_ELEMENTS * adding
            yield Cuts(tiles, rounds * units, parts, elements, us)


def _rounds(parts: int, limits: Limits) -> float:
    """Return how many rounds of work-groups so many parts take."""
    rounds = parts / limits.compute_units
    return rounds + limits.costs.tensor_tail * (ceil_div(parts, limits.compute_units) - rounds)


def _split_elements(launch: Launch) -> int:
    """Return the elements of both operands; of one, if its tiles serve for both."""
    sizes = launch.arguments
    rows = sizes["m"] + sizes["n"] * (sizes["packed_b"] != sizes["packed_a"])
    return int(sizes["matrices"] * rows * sizes["k"])


def _is_strided(launch: Launch) -> bool:
    """Return whether A or B has no unit stride."""
    places = ((launch.arguments[f"{x}_row"], launch.arguments[f"{x}_column"]) for x in "ab")
    return any(1 not in map(abs, place) for place in places)


def split_us(elements: int, is_strided: bool, limits: Limits) -> float:
    """Return how long splitting so many elements of both operands takes."""
    costs = limits.costs
    slower = 1 + costs.tensor_strided * is_strided
    return 2 * FLOAT_BYTES * elements / costs.tensor_pack_bytes * slower


OPERANDS: tuple[Slot, Slot, Slot] = ("a", "b", "c")

# The most bytes of both split operands together; larger products are cut into blocks. A pair of
# 8192 x 8192 matrices fits, in tf32 too.
SCRATCH_BYTES = 3 * 2**29
# The smallest depth of a block of k.
SMALLEST_DEPTH = 4096
MOST_GROUPS = 2**11 - 1  # work-groups that kernels can count
# Most listed elements per panel of 128 rows or columns; with more, the fallback takes over. With as
# many in every panel, adding their products takes about as long as all others.
LISTED_PER_PANEL = 16


def make_tensor_plan(
    a: Layout,
    b: Layout,
    c: Layout,
    config: TensorVariant,
    fallback: Fallback,
    limits: Limits,
) -> Plan:
    """Return the launches of ``C = alpha A B + beta C`` for batches of one shape, none empty.

    Parameters
    ----------
    a, b, c : Layout
        (*batch, m, k), (*batch, k, n) and (*batch, m, n).
    config : TensorVariant
        The config of the call.
    fallback : callable
        Plans products for data whose range is too wide, if the config has a guard. Those of wgmma
        do not need it: the kernel itself falls back.
    """
    m, n, k = c.rows, c.columns, a.columns
    most_bytes = min(SCRATCH_BYTES // 2, limits.allocation_bytes)
    rows, columns, depth = _blocks(m, n, k, config, most_bytes)
    if min(rows, columns) < max(m, n):  # the tiles of a block do not begin at the diagonal
        config = replace(config, triangle=False)
    most_matrices = most_bytes // _packed_bytes(max(rows, columns), depth, config)
    steps: list[Step] = []
    scratch, products = Scratch(), 0
    for part in slices(batch_levels(a, b, c), most_matrices, 3, loops=1):
        for n_0, k_0, m_0 in product(range(0, n, columns), range(0, k, depth), range(0, m, rows)):
            sizes = min(rows, m - m_0), min(columns, n - n_0), min(depth, k - k_0)
            origins = (
                part.offsets[0] + m_0 * a.row_stride + k_0 * a.column_stride,
                part.offsets[1] + k_0 * b.row_stride + n_0 * b.column_stride,
                part.offsets[2] + m_0 * c.row_stride + n_0 * c.column_stride,
            )
            blocks = (
                _block(a, part, 0, sizes[0], sizes[2], origins[0]),
                _block(b, part, 1, sizes[2], sizes[1], origins[1]),
                _block(c, part, 2, sizes[0], sizes[1], origins[2]),
            )
            for i in range(1 if config.triangle else 2):
                each = _packed_bytes(sizes[i], sizes[2], config)
                scratch.reserve(PACKED[i], _packed_matrices(blocks[i]) * each)
            beta: Argument = "beta" if k_0 == 0 else 1.0
            counter = OutlierCounter(products)
            products += config.guard
            steps += _tensor_steps(*blocks, origins, beta, config, limits, counter, scratch)
            if config.guard and not isinstance(config, WgmmaVariant):
                plan = fallback(Problem(*blocks, "strict", is_half=config.triangle))
                for slot, size in plan.scratch:
                    scratch.reserve(slot, size)
                first = dict(zip("abc", origins, strict=True))
                most = LISTED_PER_PANEL * _panels(*blocks[:2], config)
                condition: dict[str, Argument] = {"gate": counter, "gate_most": most}
                steps += (_conditional(step, first, beta, condition) for step in plan.steps)
    return scratch.plan(steps, products)


def _packed_matrices(x: Layout) -> int:
    """Return how many matrices of a block's batch are packed: a repeated one is packed once."""
    return x.batch[0] if x.strides[0] else 1


def _packed_bytes(rows: int, depth: int, config: TensorVariant) -> int:
    """Return the bytes of an operand's tiles and of their directory."""
    tiles = ceil_div(rows, TILE_ROWS) * ceil_div(depth, config.packed_depth)
    return tiles * (TILE_BYTES + LENGTH_BYTES)


def _blocks(m: int, n: int, k: int, config: TensorVariant, most_bytes: int) -> tuple[int, int, int]:
    """Return the rows, columns and depth of blocks whose split operands fit. Cut k first."""

    def too_large(rows: int, depth: int) -> bool:
        return _packed_bytes(rows, depth, config) > most_bytes

    depth = k
    while depth > SMALLEST_DEPTH and too_large(max(m, n), depth):
        depth = max(round_up(ceil_div(depth, 2), 64), SMALLEST_DEPTH)
    sides = []
    for side in (m, n):
        while too_large(side, depth) and side > 2 * TILE_ROWS:
            side = round_up(ceil_div(side, 2), 2 * TILE_ROWS)
        sides.append(side)
    return sides[0], sides[1], depth


def _block(x: Layout, part: Slice, operand: int, rows: int, columns: int, origin: int) -> Layout:
    """Return the blocks of a batch's matrices, `origin` elements after the operand's first."""
    (level,) = part.levels or (Level(1, (0, 0, 0)),)
    stride = level.strides[operand]
    address = FLOAT_BYTES * (origin | stride) | x.alignment_bytes
    return Layout((level.count, rows, columns), (stride, *x.strides[-2:]), address & -address)


def _panels(a: Layout, b: Layout, config: TensorVariant) -> int:
    """Return the number of panels of both operands, in all packed matrices."""
    panels_a = _packed_matrices(a) * ceil_div(a.rows, TILE_ROWS)
    if config.triangle:  # A's serve for both
        return panels_a
    return panels_a + _packed_matrices(b) * ceil_div(b.columns, TILE_ROWS)


def least_exponent(k: int) -> int:
    """Return the least exponent, relative to the scale, of an element that may be split in halves.

    docs/tensor_cores.md has its effect on the error bound.
    """
    return max((2 if k < 1024 else 1) - (k.bit_length() - 1), -14)


def _tensor_steps(
    a: Layout,
    b: Layout,
    c: Layout,
    origins: tuple[int, int, int],
    beta: Argument,
    config: TensorVariant,
    limits: Limits,
    counter: OutlierCounter,
    scratch: Scratch,
) -> Iterator[Step]:
    (matrices,), m, n, k = c.batch, c.rows, c.columns, a.columns
    first_a, first_b, first_c = map(Element, OPERANDS, origins)
    operands: dict[str, Argument] = {
        **operand_in_place("a", "a", first_a, a, stride=a.strides[0]),
        **operand_in_place("b", "b", first_b, b.transposed(), stride=b.strides[0]),  # read like A'
        "packed_a": "packed_a",
        "packed_b": "packed_a" if config.triangle else "packed_b",
    }
    tiles = _panels(a, b, config) * ceil_div(k, TILE_DEPTH)
    counters = _counters(config, counter)
    sizes: dict[str, Argument] = {"matrices": matrices, "m": m, "n": n, "k": k}
    most = LISTED_PER_PANEL * _panels(a, b, config)  # before the fallback takes over
    splitting = {**sizes, "least": least_exponent(k), "most": most, **operands}
    yield Step(config.split, tiles, {**splitting, "count": counters["count"]})
    cuts = config.cuts(config.tiles(matrices, m, n), k, limits)
    groups, split_k = min(cuts.parts, limits.compute_units), {}
    if isinstance(config, WgmmaVariant) and config.guard:
        split_k = _split_k(scratch, cuts, config.plain_cuts(matrices, m, n, k, limits))
        groups = min(limits.compute_units, MOST_GROUPS)  # all split, to fall back
    elif isinstance(config, WgmmaVariant):
        split_k = _split_k(scratch, cuts, cuts)  # without a guard, the last are not used
    yield Step(
        config,
        groups,
        {
            **sizes,
            "most": most,
            "alpha": "alpha",
            "beta": beta,
            **operands,
            **operand_in_place("c", "c", first_c, c, stride=c.strides[0]),
            **counters,
            **split_k,
        },
    )


def _counters(config: TensorVariant, counter: OutlierCounter) -> dict[str, Argument]:
    """Return a kernel's counters: its own, and that of the next product.

    Without a guard they are not used: any buffer will do.
    """
    if not config.guard:
        return {"count": "packed_a", "count_next": "packed_a"}
    return {"count": counter, "count_next": OutlierCounter(counter.product + 1)}


def _split_k(scratch: Scratch, cuts: Cuts, plain: Cuts) -> dict[str, Argument]:
    """Return a kernel's arguments for cuts, and reserve the memory of their slices.

    A launch makes those of `cuts`, or `plain`, those of the plain method.
    """
    partial: Slot = "packed_a"  # without slices not used: any buffer will do
    if size := max(each.slices_bytes for each in (cuts, plain)):
        partial = "partial"
        scratch.reserve(partial, size)
    return {
        "whole": cuts.whole,
        "slices": cuts.slices,
        "partial": partial,
        "counters": "counters",
        "plain_whole": plain.whole,
        "plain_slices": plain.slices,
    }


def _conditional(
    step: Step, origins: Mapping[str, int], beta: Argument, condition: Mapping[str, Argument]
) -> Step:
    """Return a conditional step of the fallback, moved to its block of the whole product."""

    def placed(argument: Argument) -> Argument:
        if isinstance(argument, Element) and argument.slot in origins:
            return Element(argument.slot, argument.offset + origins[argument.slot])
        return beta if argument == "beta" else argument

    arguments = {name: placed(x) for name, x in step.arguments.items()}
    return replace(step, arguments={**arguments, **condition}, conditional=True)
