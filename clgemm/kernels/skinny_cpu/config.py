"""The config of the skinny_cpu family: products with few rows or columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig, positive, vector
from clgemm.kernels.pack.config import PackConfig
from clgemm.kernels.split_k.config import ReduceConfig

__all__ = ["SkinnyCpuConfig"]


@dataclass(frozen=True)
class SkinnyCpuConfig(KernelConfig):
    """Multiplies by an operand of a few rows; reads the other once, in place, by vectors."""

    rows: int  # rows of C at a time
    vectors: int  # vectors of B's rows, or columns of B, at a time
    width: int  # floats per vector
    strip: int  # columns of C per work-group
    chunk: int  # rows of B at a time
    prefetch: int  # rows of B to prefetch ahead; 0 leaves it to the processor
    fma: bool  # as in TiledConfig

    family: ClassVar[str] = "skinny_cpu"
    source: ClassVar[str] = "skinny_cpu/skinny_cpu.cl"
    entry: ClassVar[str] = "skinny_product"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl",)
    companions: ClassVar[tuple[type[KernelConfig], ...]] = (PackConfig, ReduceConfig)

    @property
    def items(self) -> int:
        return 1

    def problems(self) -> Iterator[str]:
        bad = [*positive(self, "prefetch"), *vector(self, "width")]
        yield from bad
        if not bad and self.strip % (span := self.vectors * self.width):
            yield f"strip={self.strip} is not a multiple of vectors x width = {span}"
