"""The configs of products by tiles: in local memory, or in a work-item's vector registers.

Pure, as `clgemm.config`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.config import (
    FLOAT_BYTES,
    KernelConfig,
    ReduceConfig,
    multiple,
    piece_of,
    positive,
    vector,
)
from clgemm.pack_config import PackConfig, VectorPackConfig

__all__ = ["LocalConfig", "RegisterConfig"]


@dataclass(frozen=True)
class LocalConfig(KernelConfig):
    """Tiles in local memory, a block of C in the registers of each work-item."""

    tile_m: int  # rows of C per work-group
    tile_n: int  # columns of C per work-group
    tile_k: int  # depth of the tiles in local memory
    work_m: int  # rows of C per work-item
    work_n: int  # columns of C per work-item
    width_a: int  # floats per load of A
    width_b: int  # floats per load of B and per store of C
    patch_n: int  # work-items that lie side by side along N
    unroll: int  # steps of the loop over a tile's depth that are written out
    buffers: int  # 1: one tile of A and B in local memory; 2: the next is fetched meanwhile
    swizzle: int  # rows of tiles that work-groups visit together, for the second-level cache
    fma: bool  # fma() where it is an instruction; a * b + c, which compilers may contract, if not
    in_place: bool  # read operands where they are, without packing, if their strides allow
    parts: int = 1  # work-items that share the steps over a tile's depth, for a block each
    # The planner's, for the operands at hand: floats per load from where they lie; whether columns
    # of A, or rows of B, are what lies along memory, and turned on their way; whether C is whole
    # tiles of aligned vectors.
    load_a: int = 1
    load_b: int = 1
    turn_a: bool = False
    turn_b: bool = False
    whole: bool = False
    gathers: bool = False  # adds up slices of k itself

    family: ClassVar[str] = "local"
    entry: ClassVar[str] = "local_product"
    includes: ClassVar[tuple[str, ...]] = ("gather.cl",)
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (PackConfig, ReduceConfig)
    planned: ClassVar[frozenset[str]] = frozenset({"IN_PLACE"})

    @property
    def items_m(self) -> int:
        """Work-items along a tile's rows."""
        return self.tile_m // self.work_m

    @property
    def items_n(self) -> int:
        """Work-items along a tile's columns."""
        return self.tile_n // self.work_n

    @property
    def items(self) -> int:
        return self.items_m * self.items_n * self.parts

    @property
    def local_memory_bytes(self) -> int:
        pitch_a = self.tile_m + self.turn_a * self.width_a
        pitch_b = self.tile_n + self.turn_b * self.width_b
        return FLOAT_BYTES * self.buffers * self.tile_k * (pitch_a + pitch_b)

    def problems(self) -> Iterator[str]:
        bad = [*positive(self), *vector(self, "width_a"), *vector(self, "width_b")]
        yield from bad
        if bad:
            return
        yield from multiple(self, "tile_m", of="work_m")
        yield from multiple(self, "tile_n", of="work_n")
        yield from multiple(self, "work_m", of="width_a")
        yield from multiple(self, "work_n", of="width_b")
        yield from multiple(self, "tile_k", of="unroll")
        yield from multiple(self, "tile_k", of="parts")
        room = self.buffers * self.tile_k * self.work_m // self.tile_n
        if self.parts > 1 and (room == 0 or self.work_m % min(room, self.work_m)):
            yield f"work_m={self.work_m} is not a multiple of the {room} rows that A's tiles hold"
        if self.items_n % self.patch_n:
            yield f"patch_n={self.patch_n} does not divide {self.items_n} work-items along N"
        for side in "ab":
            yield from multiple(self, f"width_{side}", of=f"load_{side}")
            if getattr(self, f"turn_{side}"):
                yield from multiple(self, "tile_k", of=f"load_{side}")
        if self.buffers > 2:
            yield f"buffers={self.buffers} is neither 1 nor 2"
        for side, tile, width in (
            ("a", self.tile_m, self.width_a),
            ("b", self.tile_n, self.width_b),
        ):
            if (loads := tile * self.tile_k // width) % self.items:
                yield (
                    f"a tile of {side} takes {loads} loads of width_{side}={width}, "
                    f"not a multiple of the {self.items} work-items"
                )


@dataclass(frozen=True)
class RegisterConfig(KernelConfig):
    """Panels through the caches, a block of C in one work-item's vector registers.

    Work-groups pack B themselves, block by block, into memory that stays in their caches.
    """

    work_m: int  # rows of C in registers
    vectors: int  # vectors of each row of C in registers
    width: int  # floats per vector
    block_m: int  # panels of A that meet the same panels of B, at most
    block_n: int  # panels of B per work-group, at most: they stay in the second-level cache
    block_k: int  # steps over k that are summed in registers, at most
    unroll: int  # steps of the loop over k that are written out
    prefetch: int  # steps over k by which B is fetched ahead; 0 leaves it to the processor
    prefetch_a: int  # the same of A in panels
    in_place: bool  # A is read where it lies if its rows run along k, and not packed
    aliasing: int  # but not where many rows are a multiple of so many floats apart; 0: there too
    fma: bool  # as in LocalConfig
    packs: bool = False  # the planner's: A comes as it is, and work-groups pack it for one another

    family: ClassVar[str] = "register"
    entry: ClassVar[str] = "register_product"
    includes: ClassVar[tuple[str, ...]] = (
        *("panels_of_a.cl", "vector_panels.cl"),
        *("panels_of_b.cl", "vector_panels.cl"),
    )
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (VectorPackConfig, ReduceConfig)
    planned: ClassVar[frozenset[str]] = frozenset({"BLOCK_M", "BLOCK_N", "BLOCK_K", "ALIASING"})

    @property
    def tile_m(self) -> int:
        """Rows of a panel of A."""
        return self.work_m

    @property
    def tile_n(self) -> int:
        """Columns of a panel of B."""
        return self.vectors * self.width

    @property
    def items(self) -> int:
        return 1

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return also how panels are packed."""
        (piece_a, turn_a), (piece_b, turn_b) = piece_of(self.tile_m), piece_of(self.tile_n)
        pieces = (("PIECE_A", piece_a), ("PIECE_B", piece_b))
        return (*super().macros(), *pieces, ("TURN_A", turn_a), ("TURN_B", turn_b))

    def problems(self) -> Iterator[str]:
        yield from positive(self, "prefetch", "prefetch_a", "aliasing")
        yield from vector(self, "width")
        if self.vectors > 3:
            yield f"vectors={self.vectors} is more than 3"
