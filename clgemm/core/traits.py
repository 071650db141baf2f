"""What is known of a device before anything runs on it: numbers and flags, no OpenCL. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from clgemm.core.config import Limits

__all__ = ["MANY_CORES", "Traits"]

MANY_CORES = (
    8  # compute units; from here on, cores that wait for one another cost more than packing
)


@dataclass(frozen=True)
class Traits:
    """What kernel families decide from.

    Attributes
    ----------
    limits : Limits
        What its kernels can take.
    kind : {"CPU", "GPU", "accelerator"}
    is_nvidia : bool
        NVIDIA's driver runs it: registers, caches and assembly are NVIDIA's.
    capability : tuple of int
        NVIDIA's compute capability; (0, 0) of other GPUs.
    register_width : int
        Floats in a vector register of a CPU, as the runtime's compiler uses it; 1 of others.
    is_vector_compiler : bool
        The compiler is a Clang for the CPU itself, which has ``__builtin_prefetch``.
    wants_fma : bool
        The compiler makes faster kernels of ``fma()`` than of ``a * b + c``: Intel's for CPUs.
    instructions : str, optional
        Of tensor cores, such as ``"wgmma"``; "" if there are none that work. None as long as
        nobody has tried them: `clgemm.planning.validation` does.
    """

    limits: Limits
    kind: str
    is_nvidia: bool = False
    capability: tuple[int, int] = (0, 0)
    register_width: int = 1
    is_vector_compiler: bool = False
    wants_fma: bool = False
    instructions: str | None = None

    @property
    def has_vectors(self) -> bool:
        """Whether each work-item has vectors; else the hardware spreads work-items over lanes."""
        return self.limits.vector_width > 1

    @property
    def has_many_cores(self) -> bool:
        """Whether so many cores work together that what all wait for is expensive."""
        return self.limits.compute_units >= MANY_CORES
