"""The default config of the blocked family. Pure."""

from __future__ import annotations

from clgemm.kernels.blocked.config import BlockedConfig

__all__ = ["register_config"]


def register_config(width: int, can_prefetch: bool, fma: bool) -> BlockedConfig:
    """Return the config whose accumulators fill the vector registers of a CPU core.

    A register holds one vector of `width` floats. The registers that the accumulators leave free
    hold a row of B and an element of A. Sixteen floats are AVX-512 (32 registers), eight AVX (16),
    four NEON (32) and SSE (16). Three vectors a row need the fewest loads: 11 loads for 24
    multiply-adds.

    `fma` depends on the compiler. Intel's makes a slower kernel without it where A is read in
    place. With it, Intel's spills registers unless one stays free, and with AVX also if A is
    prefetched. PoCL 3.0 aborts on `fma` of vectors wider than those that it compiles for.
    """
    work_m, vectors = {16: (8, 3), 8: (6, 2) if fma else (4, 3)}.get(width, (4, 2))
    return BlockedConfig(
        work_m=work_m,
        vectors=vectors,
        width=width,
        block_m=4096 // work_m,
        block_n=144 // (vectors * width),
        block_k=1024 if width == 16 else 512,
        unroll=8,
        prefetch=8 if can_prefetch else 0,
        prefetch_a=64 if can_prefetch and width == 16 else 0,
        in_place=True,
        aliasing=1024,  # floats: rows so far apart share a set of a first-level cache
        fma=fma,
    )
