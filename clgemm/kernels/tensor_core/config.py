"""The configs of kernels for tensor cores, their expected times, and how they cut k. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from clgemm.core.config import KernelConfig, Launch
from clgemm.core.plan import ceil_div, tiles_of
from clgemm.core.problem import FLOAT_BYTES
from clgemm.core.traits import Limits
from clgemm.kernels.tiled.config import TiledConfig

__all__ = [
    "LENGTH_BYTES",
    "LOCAL_BYTES",
    "TILE_BYTES",
    "TILE_DEPTH",
    "TILE_ROWS",
    "Cuts",
    "MmaConfig",
    "MmaVariant",
    "SplitConfig",
    "TensorConfig",
    "TensorVariant",
    "WgmmaConfig",
    "WgmmaVariant",
    "best_cuts",
    "split_us",
    "uncut",
]

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
        for slices in {ceil_div(depths, ceil_div(depths, some)) for some in range(2, most + 1)}:
            steps = rounds * depths + _rounds(cut * slices, limits) * ceil_div(depths, slices)
            adding = costs.tensor_slice_us * slices
            adding += costs.tensor_round_us * ceil_div(cut * slices, units)
            us = step_us * steps + elements / MODELLED_ELEMENTS * adding
            yield Cuts(tiles, rounds * units, slices, elements, us)


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
