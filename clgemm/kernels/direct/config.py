"""The config of the direct family, for small products. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig, Launch, positive, vector
from clgemm.core.costs import joined
from clgemm.core.steps import ceil_div

__all__ = ["DirectConfig"]

# The model's constants are for work-groups of so many elements of C.
MODELLED_SIZE = 256
CPU_SIZE = 32  # the same on CPUs
COLUMN_READS = 1.1  # a work-group takes so much longer, as a share, if it reads A along k
OVERLAP = 2.0  # as in `clgemm.core.costs.joined`: latency and work


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

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch: its steps over k, or their latency."""
        if launch.limits.has_vectors:
            return self._microseconds_on_cpu(launch)
        costs, k = launch.limits.costs, launch.arguments["k"]
        size = self.items * self.work_m * self.width / MODELLED_SIZE
        rounds = ceil_div(launch.groups, launch.limits.compute_units)
        # Neighbours along a row of C read neighbours along a row of B, but one column of A.
        strided = 1 + (abs(launch.arguments["a_column"]) == 1) * COLUMN_READS
        steps = rounds * k * size * strided / costs.direct_items
        return joined(OVERLAP, k * costs.direct_step_us, steps) + rounds * size * costs.direct_store

    def _microseconds_on_cpu(self, launch: Launch) -> float:
        x, costs = launch.arguments, launch.limits.cpu_costs
        size = self.items * self.work_m * self.width / CPU_SIZE
        gathers = x["b_column"] != 1 or x["n"] < self.width
        step_us = costs.direct_step_us * (1 + costs.direct_strided * gathers)
        rounds = ceil_div(launch.groups, launch.limits.compute_units)
        return float(rounds * size * (costs.direct_group_us + x["k"] * step_us))

    def problems(self) -> Iterator[str]:
        yield from positive(self)
        yield from vector(self, "width")
