"""The config of the kernel that adds up the partial products of split-k. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import FLOAT_BYTES, KernelConfig, Launch, multiple, positive, vector
from clgemm.core.steps import matrices_of
from clgemm.kernels.split_k.estimate import reduce_us

__all__ = ["ReduceConfig"]


@dataclass(frozen=True)
class ReduceConfig(KernelConfig):
    """Adds up the partial products of split-k."""

    group: int  # work-items per work-group
    parts: int  # of them, those that share the slices of one element of C
    width: int  # columns per work-item, one vector
    aligned: bool = False  # the rows of partial products are whole vectors

    family: ClassVar[str] = "reduce"
    source: ClassVar[str] = "split_k/reduce.cl"
    entry: ClassVar[str] = "reduce"
    includes: ClassVar[tuple[str, ...]] = ("common/store.cl",)

    @property
    def items(self) -> int:
        return self.group

    @property
    def local_memory_bytes(self) -> int:
        return FLOAT_BYTES * self.group * self.width

    def microseconds(self, launch: Launch) -> float:
        """Return the expected time of a launch."""
        arguments = launch.arguments
        elements = arguments["m"] * arguments["n"] * matrices_of(arguments["counts"])
        limits = launch.limits
        if limits.has_vectors:
            added = elements * arguments["slices"]
            return float(added / limits.cpu_costs.added / limits.compute_units)
        return reduce_us(elements, arguments["slices"], limits.costs)

    def problems(self) -> Iterator[str]:
        bad = list(positive(self))
        yield from bad
        yield from vector(self, "width")
        if not bad:
            yield from multiple(self, "group", of="parts")
