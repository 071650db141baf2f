"""The config of the direct family, for small products. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig, positive, vector

__all__ = ["DirectConfig"]


@dataclass(frozen=True)
class DirectConfig(KernelConfig):
    """Reads operands of any strides in place: one launch, for small products."""

    items_m: int  # work-items along the rows of C
    items_n: int  # work-items along the columns of C
    work_m: int  # rows of C per work-item
    width: int  # columns of C per work-item, one vector
    fma: bool  # as in TiledConfig

    family: ClassVar[str] = "direct"
    source: ClassVar[str] = "direct/direct.cl"
    entry: ClassVar[str] = "direct_product"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl",)

    @property
    def items(self) -> int:
        return self.items_m * self.items_n

    def problems(self) -> Iterator[str]:
        yield from positive(self)
        yield from vector(self, "width")
