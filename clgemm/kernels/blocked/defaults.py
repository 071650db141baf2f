"""The config of blocks in vector registers where there is no record. Pure."""

from __future__ import annotations

from clgemm.kernels.blocked.config import BlockedConfig

__all__ = ["register_config"]


def register_config(width: int, can_prefetch: bool, fma: bool) -> BlockedConfig:
    """Return the config whose accumulators fill the vector registers of a CPU core.

    A register holds one vector of `width` floats; what the accumulators leave free takes a row
    of B and an element of A. Sixteen floats are AVX-512 (32 registers), eight AVX (16), four
    NEON (32) and SSE (16). Three vectors a row load least: 11 loads for 24 multiply-adds.

    Without `fma`, Intel's compiler makes of A in place a kernel that is a fifth slower, and with it
    it spills unless a register is to spare, or with AVX if A is fetched ahead; PoCL 3.0 aborts on
    `fma` of vectors wider than what it compiles for.
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
