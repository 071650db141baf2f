"""The traits of a device: numbers and flags, known before anything runs on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from clgemm.core.config import Limits

__all__ = ["MANY_CORES", "Traits"]

# Compute units. From this number on, waiting for other cores costs more than packing.
MANY_CORES = 8


@dataclass(frozen=True)
class Traits:
    """The traits of a device, from which kernel families decide.

    Attributes
    ----------
    limits : Limits
        The limits of its kernels.
    kind : {"CPU", "GPU", "accelerator"}
    is_nvidia : bool
        Whether NVIDIA's driver runs it: registers, caches and assembly are then NVIDIA's.
    capability : tuple of int
        NVIDIA's compute capability; (0, 0) for other devices.
    register_width : int
        Floats in a vector register of a CPU, as the runtime's compiler uses it; 1 for other
        devices.
    is_vector_compiler : bool
        Whether the compiler is a Clang for the CPU itself, which has ``__builtin_prefetch``.
    is_amd : bool
        Whether a CPU is AMD's.
    wants_fma : bool
        Whether kernels are faster with ``fma()`` than with ``a * b + c``: Intel's compiler for
        CPUs.
    steals_work : bool
        Whether free threads of a CPU's runtime take over the work of those that wait for a core.
    """

    limits: Limits
    kind: str
    is_nvidia: bool = False
    capability: tuple[int, int] = (0, 0)
    register_width: int = 1
    is_vector_compiler: bool = False
    wants_fma: bool = False
    is_amd: bool = False
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
    def has_many_cores(self) -> bool:
        """Whether there are so many cores that waiting for one another is expensive."""
        return self.limits.compute_units >= MANY_CORES
