"""The kernel that tells whether elements are finite: its config and its launch. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clgemm.core.config import KernelConfig, vector
from clgemm.core.plan import Argument, Element, Plan, Step, ceil_div
from clgemm.core.traits import Limits

# On lanes: work-items of a work-group, elements of it at least, and work-groups of a compute unit
# at most: as many as run there at the same time on an H100.
GROUP, WIDTH = 256, 4
LEAST_ELEMENTS, GROUPS = 2**12, 8
# The same on CPUs, where a work-group is one work-item.
LEAST_ELEMENTS_OF_VECTORS, GROUPS_OF_VECTORS = 2**15, 4


@dataclass(frozen=True)
class FiniteConfig(KernelConfig):
    """Tells whether elements are finite."""

    group: int  # work-items per work-group
    width: int  # elements that a work-item reads at once, one vector

    family: ClassVar[str] = "finite"
    source: ClassVar[str] = "finite/finite.cl"
    entry: ClassVar[str] = "finite"

    @property
    def local_memory_bytes(self) -> int:
        return 4

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        yield from vector(self, "width")
        if self.width == 1:
            yield "width=1 is no vector"


def count_flags(elements: int, limits: Limits) -> int:
    """Return how many flags, one for each work-group, tell of so many elements."""
    (step,) = finite_plan(elements, limits).steps
    return step.groups


@functools.lru_cache(maxsize=256)
def finite_plan(elements: int, limits: Limits) -> Plan:
    """Return the launch that tells whether elements are finite; there is at least one.

    Its operand "a" has the elements, one after the other. Of its operand "c" it sets the first
    `count_flags` elements: to 1 if what a work-group reads is finite, else to 0. Both may lie in
    one buffer.
    """
    if limits.has_vectors:
        config, least, most = FiniteConfig(1, 16), LEAST_ELEMENTS_OF_VECTORS, GROUPS_OF_VECTORS
    else:
        config = FiniteConfig(min(GROUP, limits.work_group_size), WIDTH)
        least, most = LEAST_ELEMENTS, GROUPS
    groups = min(ceil_div(elements, least), most * limits.compute_units)
    arguments: dict[str, Argument] = {
        "count": elements,
        "from": "a",
        "from_offset": Element("a", 0),
        "flags": "c",
        "flags_offset": Element("c", 0),
    }
    return Plan((Step(config, groups, arguments),))
