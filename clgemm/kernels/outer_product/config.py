"""The config of the outer_product family: products with a short k. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import FLOAT_BYTES, KernelConfig, Launch, positive
from clgemm.core.costs import joined
from clgemm.core.steps import matrices_of

__all__ = ["DEPTHS", "MOST_REGISTERS", "OuterProductConfig", "OuterProductVariant"]

DEPTHS = (1, 2, 4, 8, 16)  # the values of `depth`; with a longer k, tiles are faster
MOST_REGISTERS = 64  # elements of B that a work-item keeps
OVERLAP = 2.0  # as in `clgemm.core.costs.joined`: the writing of C and the arithmetic


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

    def problems(self) -> Iterator[str]:
        yield from positive(self)


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
