"""One frozen dataclass per kernel family: its parameters, its constraints, its macros.

Pure: the planner, the tuner and the tests all read the constraints written here. A family's file
is ``kernels/<family>.cl``; the macros are its fields in capitals. What all families have in common
is here, with those that multiply tiles; packing, an operand of few rows and tensor cores have
modules of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import ClassVar, TypeVar

__all__ = [
    "FLOAT_BYTES",
    "KernelConfig",
    "Limits",
    "multiple",
    "positive",
    "variant_of",
    "vector",
    "vector_block_of",
]

FLOAT_BYTES = 4
VECTOR_WIDTHS = (1, 2, 4, 8, 16)  # OpenCL C has float3 too, but it is stored as float4


@dataclass(frozen=True)
class Limits:
    """What a device can hold and how it likes to be fed.

    Attributes
    ----------
    local_memory_bytes : int
        Local memory of one work-group.
    work_group_size : int
        Most work-items in the first dimension of one work-group.
    allocation_bytes : int
        The largest single buffer.
    compute_units : int
        Work-groups that can run at the same time.
    vector_width : int
        Floats in one native vector of a work-item; 1 where the hardware spreads work-items, not
        vectors, over its lanes (GPUs).
    fused_split_k : bool
        Work-groups can see what others of the same launch have written (kernels/split_k/fused.cl).
    persisting_cache_bytes : int
        Of an operand too large for the last cache, what stays there from call to call if kernels
        let the rest leave first (kernels/skinny/skinny_gpu.cl); 0 where they cannot say so.
    """

    local_memory_bytes: int
    work_group_size: int
    allocation_bytes: int
    compute_units: int
    vector_width: int
    fused_split_k: bool = False
    persisting_cache_bytes: int = 0


@dataclass(frozen=True)
class KernelConfig:
    """What every kernel family's config can do."""

    family: ClassVar[str]  # what records and messages call it
    source: ClassVar[str]  # the kernel's file, below clgemm/kernels
    entry: ClassVar[str]  # the kernel's name
    includes: ClassVar[tuple[str, ...]] = ()  # files that the source builds on
    options: ClassVar[tuple[str, ...]] = ()  # of the compiler, besides the macros
    # The configs of the other kernels that a product of this family can launch.
    companions: ClassVar[tuple[type[KernelConfig], ...]] = ()
    planned: ClassVar[frozenset[str]] = frozenset()  # fields that are the planner's: no macros

    @property
    def items(self) -> int:
        """Work-items per work-group."""
        raise NotImplementedError

    @property
    def local_memory_bytes(self) -> int:
        """Local memory that one work-group takes."""
        return 0

    @property
    def standard(self) -> str:
        """The OpenCL C that the source is written in: split_k/fused.cl's atomics came later."""
        return "CL3.0" if getattr(self, "fused_split_k", False) else "CL1.2"

    def problems(self) -> Iterator[str]:
        """Yield each broken constraint of the family, whatever the device."""
        raise NotImplementedError

    def problems_on(self, limits: Limits) -> Iterator[str]:
        """Yield each broken constraint, those of the device included."""
        own = list(self.problems())
        yield from own
        if own:  # sizes derived from a broken config mean nothing
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
        """Raise ValueError, naming every broken constraint, unless the device can run this."""
        if found := list(self.problems_on(limits)):
            raise ValueError(f"{self}: " + "; ".join(found))

    def macros(self) -> tuple[tuple[str, int], ...]:
        """Return the -D macros of the family's source."""
        fields = ((name.upper(), int(value)) for name, value in asdict(self).items())
        return tuple((name, value) for name, value in fields if name not in self.planned)


Variant = TypeVar("Variant", bound=KernelConfig)


def variant_of(kind: type[Variant], config: KernelConfig, **planned: int) -> Variant:
    """Return the config of a launch: a tunable one, with the fields that the planner adds to it.

    A family whose planner adds fields has a second dataclass for them, derived from the first.
    Records hold the first.
    """
    own = {field.name: getattr(config, field.name) for field in fields(config)}
    return kind(**own, **planned)


def positive(config: KernelConfig, *optional: str) -> Iterator[str]:
    """Yield a problem for each field below one (flags and `optional` ones may be zero)."""
    for name, value in asdict(config).items():
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
    """Return the rows of a panel that vectors copy, and the columns that they transpose."""
    rows = math.gcd(panel, 16)
    return rows, rows if rows < panel else 16
