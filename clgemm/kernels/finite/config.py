"""The config of the kernel that tells whether elements are finite. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig, positive, vector

__all__ = ["FiniteConfig"]


@dataclass(frozen=True)
class FiniteConfig(KernelConfig):
    """Tells whether elements are finite."""

    group: int  # work-items per work-group
    width: int  # elements that a work-item reads at once, one vector

    family: ClassVar[str] = "finite"
    source: ClassVar[str] = "finite/finite.cl"
    entry: ClassVar[str] = "finite"

    @property
    def items(self) -> int:
        return self.group

    @property
    def local_memory_bytes(self) -> int:
        return 4

    def problems(self) -> Iterator[str]:
        yield from positive(self)
        yield from vector(self, "width")
        if self.width == 1:
            yield "width=1 is no vector"
