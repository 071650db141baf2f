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
from clgemm.planning.loop_times import LARGEST, BatchKind, LoopTimes

__all__ = [
    "LEAST_CALL_US",
    "LEAST_COUNTED",
    "LEAST_LARGE",
    "call_us",
    "is_quick_loop",
    "may_suit",
    "suits",
]


class Rates(NamedTuple):
    """The multiply-adds from which on a device pays, for each microsecond that a call takes.

    Attributes
    ----------
    shallow : float
        Where k is below `SHALLOW`.
    sides : tuple of (float, float)
        For others, by the shorter side of C: up to which length, and the rate.
    deep : tuple of (float, float)
        Instead of `sides`, if there are any, for a C of `LEAST_IF_DEEP` rows and columns or more
        where k is at least `DEEP` times as long as both. There each element of the operands counts
        `PACKED` multiply-adds.
    loop : LoopTimes, optional
        For batches, instead of a rate; None if it is not measured.
    """

    shallow: float = math.inf
    sides: tuple[tuple[float, float], ...] = ()
    deep: tuple[tuple[float, float], ...] = ()
    loop: LoopTimes | None = None

    def of(self, short: int, k: int, is_deep: bool) -> float:
        """Return the rate of a product; infinite if the host is always faster."""
        if k < SHALLOW:
            return self.shallow
        rates = self.deep if is_deep else self.sides
        return next((rate for most, rate in rates if short <= most), math.inf)


# Where the host's BLAS leaves AVX-512 unused; where it does not, on AMD's processors and on others.
NARROW = Rates(
    shallow=4e5,
    sides=((7, 1e5), (math.inf, 2e5)),
    deep=((math.inf, 2.5e5),),
    loop=LoopTimes(call=0.055, multiply_add=1e-5, a=1.95e-4, b=1.1e-4, one_b=7e-5, c=9e-5),
)
AMD = Rates(
    shallow=1.2e6,
    sides=((31, 2e5), (63, 4e5)),
    deep=((31, 2.5e5), (63, 5e5), (math.inf, 1.2e6)),
    loop=LoopTimes(call=0.023, multiply_add=7.3e-6, a=7.3e-5, b=4.1e-5, one_b=2e-5, c=3.4e-5),
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


class BatchTimes(NamedTuple):
    """The microseconds that a device takes for a batch.

    Attributes
    ----------
    matrix, row, multiply_add : float
        Of a matrix, a row of A, and a multiply-add.
    narrow_row : float
        How much more a row takes if B has fewer columns than a tile.
    a, b, c : float
        Of an element of each matrix.
    """

    matrix: float
    row: float
    narrow_row: float
    multiply_add: float
    a: float
    b: float
    c: float

    def of(self, m: int, n: int, k: int, matrices: int, costs: CpuCosts) -> float:
        """Return the time of a batch."""
        rows = matrices * m
        row = self.row + self.narrow_row * (n < BLAS_TILE)
        elements = rows * (self.a * k + self.c * n) + matrices * self.b * n * k
        work = self.multiply_add * rows * max(n, BLAS_TILE) * k
        return CALLS * call_us(costs) + self.matrix * matrices + row * rows + elements + work


# NumPy multiplies, and its BLAS packs, one matrix of a batch after the other. From 5,200 random
# batches of 3e5 to 1e8 multiply-adds in any layout, on the machine and with the runtimes above. On
# 1,366 others, the mean regret is 1.04 with PoCL and 1.06 with Intel's runtime, whichever kernels
# OpenBLAS has. By rates, and an estimate for one B alone, it was 1.06 and 1.09 (2026-11-26).
CALLS = 0.8  # of a call's time
FOLDED = BatchTimes(
    matrix=0.0, row=1.8e-3, narrow_row=2e-3, multiply_add=4.7e-6, a=0.0, b=0.0, c=2.4e-5
)
OTHER = BatchTimes(
    matrix=0.07, row=1e-3, narrow_row=0.0, multiply_add=5e-6, a=2.4e-5, b=3.3e-5, c=4.1e-5
)


def suits(
    m: int,
    n: int,
    k: int,
    matrices: int,
    costs: CpuCosts,
    is_amd: bool,
    kind: BatchKind = BatchKind.OWN_B,
) -> bool:
    """Tell whether a CPU device with these costs is faster than the host's BLAS.

    Parameters
    ----------
    is_amd : bool
        Whether it is one of AMD's processors.
    kind : BatchKind, optional
        What the matrices of a batch have in common.
    """
    short, long = sorted((m, n))
    rates = _rates(is_amd)
    if matrices > 1 and max(m * n, m * k, n * k) <= LARGEST:
        if rates.loop is None or min(n, k) < 2:
            return False
        times = FOLDED if kind is BatchKind.FOLDED else OTHER
        return matrices * rates.loop.of(m, n, k, kind) > times.of(m, n, k, matrices, costs)
    if short < 2 or k < 2:
        return False
    counted = max(short, BLAS_TILE) * long * k
    is_flat = k in DEPTHS_IF_FLAT and short >= LEAST_SIDE_IF_FLAT
    if is_flat and is_amd and m * n >= IF_FLAT * call_us(costs):
        return True
    if counted < LEAST_COUNTED:
        return False
    is_deep = short >= LEAST_IF_DEEP and k >= DEEP * long and bool(rates.deep)
    if is_deep:
        counted = (m * n + PACKED * (m + n)) * k
    return counted >= rates.of(short, k, is_deep) * call_us(costs)


def _rates(is_amd: bool) -> Rates:
    return NARROW if has_narrow_kernels() else AMD if is_amd else OTHERS


def call_us(costs: CpuCosts) -> float:
    """Return how long a call takes, whatever its product is."""
    return CALL_US + costs.start_us + costs.launch_us


# The fewest multiply-adds, counted so, and elements of the larger operand with which any device is.
LEAST_COUNTED = int(NARROW.sides[0][1] * call_us(INTEL))
LEAST_LARGE = LEAST_COUNTED // BLAS_TILE
LEAST_CALL_US = call_us(INTEL)


def may_suit(m: int, n: int, k: int, matrices: int, kind: BatchKind = BatchKind.OWN_B) -> bool:
    """Tell whether a CPU device may be faster, before one is opened."""
    is_enough = suits(m, n, k, matrices, INTEL, is_amd=True, kind=kind)
    return is_enough and has_avx512() and usable_processors() < MANY_CORES


def is_quick_loop(m: int, n: int, k: int, matrices: int) -> bool:
    """Tell whether NumPy makes a batch in less time than any device takes for a call."""
    loop = NARROW.loop
    assert loop is not None
    return matrices * loop.of(m, n, k, BatchKind.OWN_B) < CALLS * LEAST_CALL_US
