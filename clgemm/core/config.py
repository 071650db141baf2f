"""What the configs of all kernel families share: constraints, macros, expected times. Pure.

Each kernel has one frozen dataclass in ``kernels/<family>/``. Its fields are the kernel's
parameters; in capitals they are its macros. It states each constraint once, for the planner, the
tuner and the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

from clgemm.core.traits import Limits

VECTOR_WIDTHS = (1, 2, 4, 8, 16)  # OpenCL C has float3 too, but it is stored as float4


class Launch(NamedTuple):
    """A launch of a kernel on a device, whose time is expected."""

    groups: int  # work-groups
    arguments: Mapping[str, Any]  # the kernel's arguments by name: see `clgemm.core.plan.Step`
    limits: Limits


@dataclass(frozen=True)
class KernelConfig:
    """The base of every kernel's config."""

    family: ClassVar[str]  # what records and messages call it
    source: ClassVar[str]  # the kernel's file, below clgemm/kernels
    entry: ClassVar[str]  # the kernel's name
    includes: ClassVar[tuple[str, ...]] = ()  # files that are compiled before the source
    options: ClassVar[tuple[str, ...]] = ()  # compiler options besides the macros
    # The configs of the other kernels that a product of this family can launch.
    companions: ClassVar[tuple[type[KernelConfig], ...]] = ()
    # Fields, in capitals, that only the planner reads: the kernel has no macro for them.
    planned: ClassVar[frozenset[str]] = frozenset()

    @property
    def items(self) -> int:
        """Work-items per work-group: 1 where each computes alone, as with the vectors of CPUs."""
        return int(getattr(self, "group", 1))

    @property
    def local_memory_bytes(self) -> int:
        """Bytes of local memory per work-group."""
        return 0

    @property
    def build_options(self) -> tuple[str, ...]:
        """Compiler options: those of the family, and those of this config."""
        return self.options

    @property
    def standard(self) -> str:
        """The version of OpenCL C: split_k/fused.cl needs the atomic functions of 3.0."""
        return "CL3.0" if getattr(self, "fused_split_k", False) else "CL1.2"

    def problems(self) -> Iterator[str]:
        """Yield each broken constraint that does not depend on the device."""
        yield from positive(self)

    def problems_on(self, limits: Limits) -> Iterator[str]:
        """Yield each broken constraint, those of the device included."""
        broken = list(self.problems())
        yield from broken
        if broken:  # sizes derived from a broken config mean nothing
            return
        if self.items > limits.work_group_size:
            yield (
                f"{self.items} work-items per work-group exceed the device's "
                f"{limits.work_group_size}"
            )
        if self.local_memory_bytes > limits.local_memory_bytes:
            yield (
                f"{self.local_memory_bytes} bytes of local memory exceed the device's "
                f"{limits.local_memory_bytes}"
            )

    def require(self, limits: Limits) -> None:
        """Raise ValueError with every broken constraint if the device cannot run this config."""
        if found := list(self.problems_on(limits)):
            raise ValueError(f"{self}: " + "; ".join(found))

    def microseconds(self, launch: Launch) -> float:  # noqa: ARG002 - for subclasses
        """Return how long a launch is expected to keep the device busy; 0 without a model."""
        return 0.0

    def fallback_us(self, launch: Launch) -> float:  # noqa: ARG002 - for subclasses
        """Return the expected time of what it does only for data that need a fallback."""
        return 0.0

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return the -D macros of the family's source."""
        fields = ((name.upper(), int(value)) for name, value in asdict(self).items())
        return tuple((name, value) for name, value in fields if name not in self.planned)


Variant = TypeVar("Variant", bound=KernelConfig)


def variant_of(kind: type[Variant], config: KernelConfig, **planned: int) -> Variant:
    """Return the config of one launch: a tunable config plus the fields that the planner sets.

    A kernel with such fields has a second dataclass, derived from the tunable one. Records hold
    the tunable one.
    """
    return kind(**_values(config, config), **planned)


def tunable_of(kind: type[Variant], variant: KernelConfig) -> Variant:
    """Return the tunable config, of the class `kind`, of one launch's config."""
    return kind(**_values(kind, variant))


def _values(kind: Any, config: KernelConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(kind)}


def positive(config: KernelConfig, *optional: str) -> Iterator[str]:
    """Yield a problem for each field below 1. Flags and the `optional` fields may be 0."""
    for name in (field.name for field in fields(config)):
        value = getattr(config, name)
        least = 0 if name in optional else 1
        if not isinstance(value, bool) and value < least:
            yield f"{name}={value} is less than {least}"


def multiple(config: KernelConfig, name: str, of: str) -> Iterator[str]:
    """Yield a problem unless the field ``name`` is a multiple of the field ``of``."""
    value, unit = getattr(config, name), getattr(config, of)
    if value % unit:
        yield f"{name}={value} is not a multiple of {of}={unit}"


def vector(config: KernelConfig, name: str) -> Iterator[str]:
    """Yield a problem unless the field ``name`` is a vector width of OpenCL C."""
    if (value := getattr(config, name)) not in VECTOR_WIDTHS:
        yield f"{name}={value} is not one of {VECTOR_WIDTHS}"


def vector_block_of(panel: int) -> tuple[int, int]:
    """Return the rows that one vector copies, and the columns that are transposed together."""
    rows = math.gcd(panel, 16)
    return rows, rows if rows < panel else 16
