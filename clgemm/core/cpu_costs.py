"""What launches cost on a CPU: the constants of its families' expected times. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["INTEL", "INTEL_MANY_CORES", "POCL", "POCL_3_0", "POCL_MANY_CORES", "CpuCosts"]


@dataclass(frozen=True)
class CpuCosts:
    """The constants of a CPU and its OpenCL runtime from which expected times are computed.

    Times are in microseconds. Where nothing else is said, rates are per microsecond and of one
    compute unit.

    Attributes
    ----------
    start_us, launch_us : float
        Time of a product, however small; time of each launch.
    blocked_vectors : float
        The blocked family: multiply-adds of a vector by an element of A, with all that goes with
        them, as `register_spread` counts it.
    packed, transposed, stored : float
        Elements that it packs of A; that it packs of a B with contiguous columns; that it stores
        to C for each block of k.
    added, copied : float
        Elements that are added up in split-k; elements that are copied to be dense.
    skinny_bytes, skinny_again : float
        The skinny_cpu family: bytes of the large operand that all compute units read; how much of
        that time further rows take, as a share, where no cache holds the operand.
    skinny_multiply_adds, skinny_along_k : float
        Its multiply-adds, where the large operand has contiguous rows, and where contiguous
        columns.
    skinny_dots, skinny_stored : float
        Scalar products that it adds up, in the latter case; elements of C that it stores.
    skinny_group_us, direct_group_us : float
        Time of a work-group besides its steps.
    direct_step_us : float
        The direct family: a step over k of 4 x 8 elements of C.
    direct_strided : float
        How much longer that takes, as a share, if a vector of B has to be gathered.
    """

    start_us: float = 46.1
    launch_us: float = 9.03
    blocked_vectors: float = 4980.0
    packed: float = 833.0
    transposed: float = 1260.0
    stored: float = 16_300.0
    added: float = 31_400.0
    copied: float = 360.0
    skinny_bytes: float = 26_100.0
    skinny_again: float = 0.257
    skinny_multiply_adds: float = 24_600.0
    skinny_along_k: float = 31_100.0
    skinny_dots: float = 94.1
    skinny_stored: float = 2380.0
    skinny_group_us: float = 0.521
    direct_group_us: float = 0.0494
    direct_step_us: float = 0.00268
    direct_strided: float = 2.62


# Fitted on two cores of an AMD EPYC (Zen 4) under PoCL 3.1 and Intel's runtime 2026.2, 2026-11-23,
# by docs/family_costs.py to docs/measured/families_cpu_pocl and families_cpu_intel: 1,133 and 1,220
# random products. On other random products, the plan with the least expected time took 1.03 and
# 1.02 times as long as the fastest (1.25 and 1.16 at the 95th percentile). blocked_vectors and
# stored are newer, since rows of C are written in few pieces where k is short: fitted to those of
# these products whose k is above 100, and to families_cpu_pocl_short and families_cpu_intel_short,
# 296 products with k up to 100 on two cores of an AMD EPYC (Zen 5), 2026-11-25. There the plan with
# the least expected time takes 1.03 times as long as the fastest (1.27 and 1.17).
POCL = CpuCosts()
INTEL = CpuCosts(
    start_us=12.2,
    launch_us=2.82,
    blocked_vectors=6380.0,
    packed=1930.0,
    transposed=1820.0,
    stored=24_700.0,
    added=1610.0,
    copied=605.0,
    skinny_bytes=41_500.0,
    skinny_again=0.292,
    skinny_multiply_adds=26_000.0,
    skinny_along_k=27_900.0,
    skinny_dots=122.0,
    skinny_stored=1170.0,
    skinny_group_us=0.378,
    direct_group_us=0.102,
    direct_step_us=0.00327,
    direct_strided=0.674,
)
# PoCL 3.0 from PyPI, whose compiler is older, on two cores of an Intel Xeon (Sapphire Rapids). With
# few rows its code takes twice the time of PoCL 3.1's. Fitted to families_xeon_pocl_3_0_first and
# _again, 580 random products of 1e5 to 4e8 multiply-adds, 2026-11-27, without the time of a call.
# Fitted to the first file alone, the plan with the least expected time takes 1.03 times as long as
# the fastest for the second (1.22 at the 95th percentile), and by PoCL's above 1.11 (2.15).
POCL_3_0 = CpuCosts(
    blocked_vectors=7090.0,
    packed=1040.0,
    transposed=994.0,
    stored=2580.0,
    added=828.0,
    copied=1790.0,
    skinny_bytes=30_900.0,
    skinny_again=0.913,
    skinny_multiply_adds=14_900.0,
    skinny_along_k=10_500.0,
    skinny_dots=151.0,
    skinny_stored=2300.0,
    skinny_group_us=0.178,
    direct_group_us=0.0459,
    direct_step_us=0.0062,
    direct_strided=2.6,
)
# Scaled by groups, as `tune` does it, to families_cpu_16_cores: 383 random products on 16 cores of
# an Intel Xeon (AVX-512) under PoCL 5.0, 2026-11-23. There the plan with the least expected time
# takes 1.05 times as long as the fastest (1.38 at the 95th percentile), and 1.09 by those above.
POCL_MANY_CORES = CpuCosts(
    start_us=88.0,
    launch_us=17.2,
    blocked_vectors=3820.0,
    packed=2770.0,
    transposed=4190.0,
    stored=4750.0,
    added=104_000.0,
    copied=1200.0,
    skinny_bytes=86_700.0,
    skinny_again=0.257,
    skinny_multiply_adds=21_700.0,
    skinny_along_k=27_400.0,
    skinny_dots=83.1,
    skinny_stored=2100.0,
    skinny_group_us=0.995,
    direct_group_us=0.0943,
    direct_step_us=0.0049,
    direct_strided=2.62,
)
# 16 cores of an Intel Xeon under Intel's runtime 2026.2: there a product takes 75 us, however small
# (283 random ones, 2026-11-27).
INTEL_MANY_CORES = replace(INTEL, start_us=52.0)
