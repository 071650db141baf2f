"""Products that a CPU device makes faster than the host's BLAS on the same cores.

A device pays once a product has enough multiply-adds for the time that a call takes. All numbers
are for processors with AVX-512 and few cores. Most were found with 6,200 random products on two
cores of an AMD EPYC (Zen 5), with PoCL 3.1 and Intel's runtime, in bursts of equal calls
(2026-11-25). OpenBLAS takes this processor, which is newer than itself, for a Haswell. Half of the
products were measured so, and half with its kernels for AVX-512. On two processors of an Intel Xeon
with PoCL 5.0, 361 products had a device ahead only where C has few rows or columns.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from clgemm.core.cpu_costs import INTEL, CpuCosts
from clgemm.core.host_blas import has_avx512, has_narrow_kernels, usable_processors
from clgemm.core.traits import MANY_CORES
from clgemm.planning.loop_times import LoopTimes

__all__ = [
    "BLAS_TILE",
    "LEAST_CALL_US",
    "LEAST_COUNTED",
    "LEAST_LARGE",
    "LEAST_SHARING",
    "MOST_PADDING",
    "call_us",
    "may_suit",
    "suits",
]


class Rates(NamedTuple):
    """The multiply-adds from which on a device pays, for each microsecond that a call takes.

    Attributes
    ----------
    batch : float
        For batches of matrices.
    shallow : float
        Where k is below `SHALLOW`, also for batches.
    sides : tuple of (float, float)
        For others, by the shorter side of C: up to which length, and the rate.
    deep : tuple of (float, float)
        Instead of `sides`, if there are any, for a C of `LEAST_IF_DEEP` rows and columns or more
        where k is at least `DEEP` times as long as both. There each element of the operands counts
        `PACKED` multiply-adds.
    loop : LoopTimes, optional
        For batches that share B, instead of a rate; None if it is not measured.
    """

    batch: float = math.inf
    shallow: float = math.inf
    sides: tuple[tuple[float, float], ...] = ()
    deep: tuple[tuple[float, float], ...] = ()
    loop: LoopTimes | None = None

    def of(self, short: int, k: int, matrices: int, is_deep: bool) -> float:
        """Return the rate of a product; infinite if the host is always faster."""
        if k < SHALLOW:
            return self.shallow
        if matrices > 1:
            return self.batch
        rates = self.deep if is_deep else self.sides
        return next((rate for most, rate in rates if short <= most), math.inf)


# Where the host's BLAS leaves AVX-512 unused; where it does not, on AMD's processors and on others.
NARROW = Rates(
    batch=1e5,
    shallow=4e5,
    sides=((7, 1e5), (math.inf, 2e5)),
    deep=((math.inf, 2.5e5),),
    loop=LoopTimes(call=0.073, multiply_add=1.5e-5, a=1.65e-4, b=9.2e-5, c=5.9e-5),
)
AMD = Rates(
    batch=6e5,
    shallow=1.2e6,
    sides=((31, 2e5), (63, 4e5)),
    deep=((31, 2.5e5), (63, 5e5), (math.inf, 1.2e6)),
    loop=LoopTimes(call=0.068, multiply_add=1.0e-5, a=4.6e-5, b=2.0e-5, c=3.1e-5),
)
OTHERS = Rates(sides=((7, 1e6),))
SHALLOW = 8
DEEP, LEAST_IF_DEEP = 4, 8
# The BLAS packs both operands. Where k is long and C small, that takes longer than the arithmetic.
PACKED = 32
CALL_US = 12  # of a call, besides the runtime's part
# The BLAS computes whole tiles, so fewer rows or columns count as those of a tile.
BLAS_TILE = 16
# A large C of a short k on AMD's processors, where most of the time goes to the writing of C: its
# elements, for each microsecond of a call, from which on a device is faster, the values of k, and
# the least side. From 1,143 random products in bursts, on the machine and with the runtimes above:
# with OpenBLAS's kernels for AVX-512, the mean regret is 1.02 with both runtimes, and the 95th
# percentile 1.16 with PoCL and 1.10 with Intel's (2026-11-25).
IF_FLAT, DEPTHS_IF_FLAT, LEAST_SIDE_IF_FLAT = 9e4, range(2, 65), 64


# Batches that share B, as x[batch, row, k] @ W. NumPy multiplies, and its BLAS packs B, for one
# matrix after the other. A device makes them as one product. From 880 random batches of 1e5 to 3e7
# multiply-adds on the machine and with the runtimes above: the mean regret is 1.02 to 1.05, and the
# 95th percentile 1.24 to 1.40. By `Rates`, it was 1.08 to 1.22, and 1.6 to 3.4 (2026-11-26).
# The device's part of a call, and microseconds of a row, an element of C and a multiply-add.
SHARED_CALL, SHARED_ROW, SHARED_C, SHARED_MULTIPLY_ADD = 0.68, 4.2e-3, 1.4e-5, 4.7e-6
LEAST_SHARING = 64  # matrices; with fewer small ones a device has little to gain


def suits(
    m: int, n: int, k: int, matrices: int, costs: CpuCosts, is_amd: bool, shares_b: bool = False
) -> bool:
    """Tell whether a CPU device with these costs is faster than the host's BLAS.

    Parameters
    ----------
    is_amd : bool
        Whether it is one of AMD's processors.
    shares_b : bool, optional
        Whether the matrices of A, which follow one another, are multiplied by one and the same B.
    """
    short, long = sorted((m, n))
    if shares_b and min(n, k) > 1:
        loop = _rates(is_amd).loop
        loop_us = matrices * loop.of(m, n, k) if loop else 0.0
        return loop_us > _shared_us(m * matrices, n, k, costs)
    if short < 2 or k < 2:
        return False
    if matrices > 1:
        counted = matrices * max(short, BLAS_TILE) * max(long, BLAS_TILE) * k
    else:
        counted = max(short, BLAS_TILE) * long * k
        is_flat = k in DEPTHS_IF_FLAT and short >= LEAST_SIDE_IF_FLAT
        if is_flat and is_amd and m * n >= IF_FLAT * call_us(costs):
            return True
    if counted < LEAST_COUNTED:
        return False
    rates = _rates(is_amd)
    is_deep = matrices == 1 and short >= LEAST_IF_DEEP and k >= DEEP * long and bool(rates.deep)
    if is_deep:
        counted = (m * n + PACKED * (m + n)) * k
    return counted >= rates.of(short, k, matrices, is_deep) * call_us(costs)


def _rates(is_amd: bool) -> Rates:
    return NARROW if has_narrow_kernels() else AMD if is_amd else OTHERS


def _shared_us(rows: int, n: int, k: int, costs: CpuCosts) -> float:
    """Return how long a device takes for all rows of a batch that shares B."""
    multiply_adds = SHARED_MULTIPLY_ADD * rows * max(n, BLAS_TILE) * k
    return SHARED_CALL * call_us(costs) + SHARED_ROW * rows + SHARED_C * rows * n + multiply_adds


def call_us(costs: CpuCosts) -> float:
    """Return how long a call takes, whatever its product is."""
    return CALL_US + costs.start_us + costs.launch_us


# The fewest multiply-adds, counted so, and elements of the larger operand with which any device is.
LEAST_COUNTED = int(min(NARROW.batch, NARROW.sides[0][1]) * call_us(INTEL))
LEAST_LARGE = LEAST_COUNTED // BLAS_TILE
LEAST_CALL_US = call_us(INTEL)
MOST_PADDING = (BLAS_TILE // 2) ** 2  # of two rows and columns in a batch


def may_suit(m: int, n: int, k: int, matrices: int, shares_b: bool = False) -> bool:
    """Tell whether a CPU device may be faster, before one is opened."""
    is_enough = suits(m, n, k, matrices, INTEL, is_amd=True, shares_b=shares_b)
    return is_enough and has_avx512() and usable_processors() < MANY_CORES
