"""The config of the skinny_cpu family: products with few rows or columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import FLOAT_BYTES, KernelConfig, Launch, positive, vector
from clgemm.core.costs import joined
from clgemm.core.steps import ceil_div, matrices_of, round_up
from clgemm.kernels.pack.plan import PackConfig
from clgemm.kernels.split_k.plan import ReduceConfig

__all__ = ["SkinnyCpuConfig"]

OVERLAP = 3.0  # as in `clgemm.core.costs.joined`: reading and the arithmetic
CACHED_BYTES = 2**21  # a smaller operand is read again, for further rows, at no cost


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

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time: reading the large operand, or the multiply-adds."""
        x, limits = launch.arguments, launch.limits
        costs, units, matrices = limits.cpu_costs, limits.compute_units, matrices_of(x["counts"])
        n, k = x["n"], x["k"]
        rows = round_up(x["m"], self.rows)
        if x["b_column"] != 1:  # scalar products
            computing = k * round_up(n, self.vectors) / costs.skinny_along_k
            computing += n * ceil_div(k, x["slice_k"]) / costs.skinny_dots
        else:  # a few columns past whole vectors take as long as a vector, or each as long
            columns = round_up(n, self.width) if n >= self.width else n * self.width
            computing = k * columns / costs.skinny_multiply_adds
        rounds = ceil_div(launch.groups, units)
        computing += n * ceil_div(k, x["slice_k"]) / costs.skinny_stored
        busy = rounds * matrices * rows * computing / launch.groups
        again = costs.skinny_again * (rows // self.rows - 1) * (FLOAT_BYTES * n * k > CACHED_BYTES)
        read = matrices * FLOAT_BYTES * n * k * (1 + again) / costs.skinny_bytes
        return joined(OVERLAP, read, busy) + rounds * costs.skinny_group_us

    def problems(self) -> Iterator[str]:
        bad = [*positive(self, "prefetch"), *vector(self, "width")]
        yield from bad
        if not bad and self.strip % (span := self.vectors * self.width):
            yield f"strip={self.strip} is not a multiple of vectors x width = {span}"
