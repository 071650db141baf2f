"""What is known of a device before anything runs on it: limits, traits and identity. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from clgemm.core.costs import H200, POCL, Costs, CpuCosts

# Of a launch: drivers end those that keep a display waiting for about two seconds. And how many
# times as long as with an H200's costs one may take a GPU of which none were measured.
LONGEST_US, MOST_SLOWER = 5e5, 32
# Compute units. From this number on, waiting for other cores costs more than packing.
MANY_CORES = 8


class Unit(NamedTuple):
    """What the work-groups on a compute unit of a GPU share. The default is an H100's."""

    registers: int = 65536  # of 32 bits
    local_bytes: int = 228 << 10
    items: int = 2048  # work-items
    lanes: int = 32  # work-items that an instruction serves


H100_UNIT = Unit()


@dataclass(frozen=True)
class Limits:
    """The limits of a device, and what its kernels can use."""

    local_memory_bytes: int  # local memory of one work-group
    work_group_size: int  # most work-items in the first dimension of one work-group
    allocation_bytes: int  # the largest single buffer
    compute_units: int  # work-groups that can run at the same time
    # Floats in one native vector of a work-item; 1 on GPUs, whose hardware spreads work-items over
    # its lanes.
    vector_width: int
    # Whether work-groups can read what others of the same launch have written
    # (kernels/split_k/fused.cl).
    fused_split_k: bool = False
    # Whether kernels can copy from global to local memory without registers, and limit their
    # registers: those of NVIDIA's GPUs from compute capability 8.0 on (kernels/tiled/copies.cl).
    asynchronous_copies: bool = False
    # Whether kernels can add up the products of four pairs of bytes at once: dp4a of NVIDIA's GPUs
    # from compute capability 6.1 on (kernels/exact/stored.cl).
    byte_products: bool = False
    # Whether tensor cores multiply bytes and float16 by mma.sync: those of NVIDIA's GPUs from
    # compute capability 8.0 on (kernels/exact/in_place.cl).
    matrix_products: bool = False
    # Whether tensor cores multiply tiles of bytes, and doubles: NVIDIA's compute capability 9.0
    # (kernels/exact/digits_product.cl and doubles.cl).
    exact_tensors: bool = False
    # The part of a large operand that kernels can keep in the last cache from call to call
    # (kernels/skinny_gpu/skinny_gpu.cl); 0 if kernels cannot control that.
    persisting_cache_bytes: int = 0
    # Whether local memory is ordinary memory, where a tile that is copied there is read no faster.
    emulates_local_memory: bool = False
    # Of 32 bits, those that a work-item can use while enough work-items share a compute unit.
    registers: int = 256
    unit: Unit = H100_UNIT
    # Whether tiles are transposed on their way to local memory even if many work-groups read them.
    # Each float is then stored alone, which only NVIDIA's GPUs hardly notice.
    transposes_tiles: bool = True
    # Of the device's compiler, for every kernel.
    build_options: tuple[str, ...] = ()
    # The longest launch in microseconds, by its expected time: GPUs whose displays wait for it.
    longest_us: float = math.inf
    # What launches cost where hardware spreads work-items over lanes, and where they have vectors.
    costs: Costs = H200
    cpu_costs: CpuCosts = POCL

    @property
    def has_vectors(self) -> bool:
        """Whether work-items have vectors; otherwise the hardware spreads work-items over lanes."""
        return self.vector_width > 1

    def with_costs(self, costs: Costs | CpuCosts) -> Limits:
        """Return limits with other costs."""
        if isinstance(costs, CpuCosts):
            return replace(self, cpu_costs=costs)
        longest_us = self.longest_us
        if costs != H200 and longest_us < math.inf:  # they were measured on the device itself
            longest_us = LONGEST_US
        return replace(self, costs=costs, longest_us=longest_us)


@dataclass(frozen=True)
class Traits:
    """The traits of a device, from which kernel families decide."""

    limits: Limits  # the limits of its kernels
    kind: str  # {"CPU", "GPU", "accelerator"}
    # Whether NVIDIA's driver runs it: registers, caches and assembly are then NVIDIA's.
    is_nvidia: bool = False
    capability: tuple[int, int] = (0, 0)  # NVIDIA's compute capability; (0, 0) for other devices
    # Floats in a vector register of a CPU, as the runtime's compiler uses it; 1 for other devices.
    register_width: int = 1
    # Whether the compiler is a Clang for the CPU itself, which has ``__builtin_prefetch``.
    is_vector_compiler: bool = False
    # Whether kernels are faster with ``fma()`` than with ``a * b + c``: Intel's compiler for CPUs.
    wants_fma: bool = False
    is_amd: bool = False  # whether a CPU is AMD's
    # Whether free threads of a CPU's runtime take over the work of those that wait for a core.
    steals_work: bool = False

    @property
    def has_vectors(self) -> bool:
        """Whether work-items have vectors; otherwise the hardware spreads work-items over lanes."""
        return self.limits.has_vectors

    @property
    def has_cost_model(self) -> bool:
        """Whether the expected times of families hold.

        They are made for GPUs, and for CPUs whose work-items have vectors.
        """
        return self.kind != "CPU" or self.has_vectors

    @property
    def has_wgmma(self) -> bool:
        """Whether there may be wgmma instructions: compute capability 9.0 alone has them."""
        return self.is_nvidia and self.kind == "GPU" and self.capability == (9, 0)

    @property
    def has_many_cores(self) -> bool:
        """Whether there are so many cores that waiting for one another is expensive."""
        return self.limits.compute_units >= MANY_CORES


def short_platform(platform: str) -> str:
    """Return a platform's name and version, without the options of PoCL's build."""
    return platform.partition("  ")[0]  # two spaces precede the options


def runtime_of(platform: str) -> str:
    """Return a platform's name without its version."""
    return platform.partition(",")[0]


class Identity(NamedTuple):
    """The facts about a device that records are matched against."""

    # As the driver reports them; `platform` includes the runtime's version.
    name: str
    kind: str
    vendor: str
    platform: str
    driver: str
    architecture: str  # the vector extension of a CPU or the generation of a GPU

    @property
    def runtime(self) -> str:
        """The platform without its version."""
        return runtime_of(self.platform)
