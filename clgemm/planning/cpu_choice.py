"""Products that a CPU device makes faster than the host's BLAS on the same cores.

Both sides have an estimated time. All numbers are for processors with AVX-512. Where nothing else
is said, they are from two cores of an AMD EPYC (Zen 5), with PoCL 3.1 and Intel's runtime, in
bursts of equal calls (2026-11-26). OpenBLAS takes this processor, which is newer than itself, for
a Haswell. Half of the products were measured so, and half with its kernels for AVX-512.
"""

from __future__ import annotations

from typing import NamedTuple

from clgemm.core.cpu_costs import INTEL, INTEL_MANY_CORES, CpuCosts
from clgemm.core.host_blas import has_avx512, has_narrow_kernels, is_openblas, usable_processors
from clgemm.core.traits import MANY_CORES
from clgemm.planning import host_times
from clgemm.planning.host_times import LARGEST, BatchKind, HostTimes

__all__ = [
    "COUNTED_A",
    "COUNTED_B",
    "LEAST_CALL_US",
    "LEAST_COUNTED",
    "Cpu",
    "both_us",
    "call_us",
    "is_quick_loop",
    "may_suit",
    "suits",
]


SMALL_C = 64  # rows and columns
LONGEST = 4096  # that was measured
CALL_US = 12  # of a call, besides the runtime's part
# The BLAS computes whole tiles, so fewer rows or columns count as those of a tile.
BLAS_TILE = 16
# Cores that were measured: at least and at most. More wait longer for one another than is known.
FEWEST, MOST = 2, 32


class Cpu(NamedTuple):
    """What the choice depends on besides the product.

    Attributes
    ----------
    costs : CpuCosts
        What the device's calls cost.
    is_amd : bool
        Whether it is one of AMD's processors; otherwise it counts as one of Intel's.
    units : int
        The number of its cores.
    """

    costs: CpuCosts
    is_amd: bool
    units: int = 2


class DeviceTimes(NamedTuple):
    """The microseconds that a device takes for a product.

    Attributes
    ----------
    calls : float
        Of a call, as a share of `call_us`.
    multiply_add, a, b, c : float
        Of a multiply-add, and of an element of each matrix.
    side : float
        Of a row or a column of C.
    along_k : float
        Of an element of k where C is small, so that k is shared.
    copied : float
        Of an element that NumPy would copy for its BLAS.
    """

    calls: float
    multiply_add: float
    a: float
    b: float
    c: float
    side: float
    along_k: float
    copied: float = 0.0

    def of(
        self, m: int, n: int, k: int, costs: CpuCosts, copied: int = 0, share: float = 1.0
    ) -> float:
        """Return the time of a product with these costs of a call.

        The other parameters are those of `HostTimes.of`.
        """
        elements = self.a * m * k + self.b * k * n + self.c * m * n + self.side * (m + n)
        elements += self.copied * copied
        if m < SMALL_C > n:
            elements += self.along_k * min(k, LONGEST)
        return self.calls * call_us(costs) + self.multiply_add * m * n * k * share + elements


class BatchTimes(NamedTuple):
    """The microseconds that a device takes for a batch.

    Attributes
    ----------
    calls : float
        Of a call, as a share of `call_us`.
    matrix, row, multiply_add : float
        Of a matrix, a row of A, and a multiply-add.
    narrow_row : float
        How much more a row takes if B has fewer columns than a tile.
    a, b, c : float
        Of an element of each matrix.
    """

    calls: float
    matrix: float
    row: float
    narrow_row: float
    multiply_add: float
    a: float
    b: float
    c: float

    def of(
        self, m: int, n: int, k: int, matrices: int, costs: CpuCosts, share: float = 1.0
    ) -> float:
        """Return the time of a batch. `share` is as for `HostTimes.of`, of all but the call."""
        rows = matrices * m
        row = self.row + self.narrow_row * (n < BLAS_TILE)
        elements = rows * (self.a * k + self.c * n) + matrices * self.b * n * k
        work = self.multiply_add * rows * max(n, BLAS_TILE) * k
        shared = self.matrix * matrices + row * rows + elements + work
        return self.calls * call_us(costs) + shared * share


class Processor(NamedTuple):
    """The times of both sides on one kind of processor.

    Attributes
    ----------
    folded, batch : BatchTimes
        Of a batch that can be made as one product, and of others.
    margin, tied : float
        How many times as fast a device has to be, from so many multiply-adds on. The sides are
        mostly about as fast there, and the BLAS's threads, which spin after a product, slow the
        device down.
    units : int
        The number of cores.
    """

    host: HostTimes
    device: DeviceTimes
    folded: BatchTimes
    batch: BatchTimes
    margin: float
    tied: float
    units: int = 2

    def share(self, units: int) -> float:
        """Return the time that shared work takes on so many cores, as a share of that on these."""
        return self.units / max(units, FEWEST)


# NumPy multiplies, and its BLAS packs, one matrix of a batch after the other. From 5,200 random
# batches of 3e5 to 1e8 multiply-adds in any layout, on the machine and with the runtimes above. On
# 1,366 others, the mean regret is 1.04 with PoCL and 1.06 with Intel's runtime, whichever kernels
# OpenBLAS has. By rates, and an estimate for one B alone, it was 1.06 and 1.09 (2026-11-26).
FOLDED = BatchTimes(
    calls=0.8, matrix=0.0, row=1.8e-3, narrow_row=2e-3, multiply_add=4.7e-6, a=0.0, b=0.0, c=2.4e-5
)
OTHER = BatchTimes(
    calls=0.8, matrix=0.07, row=1e-3, narrow_row=0, multiply_add=5e-6, a=2.4e-5, b=3.3e-5, c=4.1e-5
)
# Where the host's BLAS leaves AVX-512 unused, and where it does not, on AMD's processors. Fitted to
# 2,143 random products of 4e5 to 2e8 multiply-adds in any layout, with sides from 2 to 4096.
DEVICE = DeviceTimes(
    calls=0.74, multiply_add=4.52e-6, a=4e-5, b=3.7e-5, c=2.7e-5, side=7.5e-4, along_k=1.9e-3
)
NARROW = Processor(host_times.NARROW, DEVICE, FOLDED, OTHER, margin=1.15, tied=1e8)
AMD = Processor(host_times.AMD, DEVICE, FOLDED, OTHER, margin=1.15, tied=1e8)
# Intel's, where the host's BLAS uses AVX-512: two cores of a Xeon (Sapphire Rapids). Fitted to 464
# random products with PoCL 3.1 and Intel's runtime. Those for batches were fitted to the choice for
# 1,689 random ones. On 404 others, its mean regret is 1.05 with PoCL and 1.07 with Intel's runtime;
# where all stay on the host, 1.13 and 1.25.
XEON_DEVICE = DeviceTimes(
    calls=1.3, multiply_add=8.1e-6, a=1.4e-4, b=1.44e-4, c=9e-5, side=2.2e-3, along_k=1.25e-2
)
XEON_FOLDED = BatchTimes(
    calls=2.6, matrix=0, row=1.9e-3, narrow_row=2.2e-3, multiply_add=5.6e-6, a=0, b=0, c=2.6e-5
)
XEON_OTHER = BatchTimes(
    calls=2.6, matrix=0.47, row=2.4e-3, narrow_row=0, multiply_add=5.4e-6,
    a=2.6e-5, b=3.6e-5, c=4.4e-5,
)  # fmt: skip
XEON = Processor(host_times.XEON, XEON_DEVICE, XEON_FOLDED, XEON_OTHER, margin=1.1, tied=0.0)
# The same with 16 cores. Products: fitted to 532 random ones of 1e5 to 2e11 multiply-adds with PoCL
# 5.0 and Intel's runtime. Batches of 1e5 to 1e9 take a quarter to a third of the time of two cores,
# besides the call (52 random ones). On 218 other products and batches, the chosen side takes 1.01
# times as long as the better one, and 1.18 where all stay on the host (2026-11-27).
XEON_16_DEVICE = DeviceTimes(
    calls=1.12, multiply_add=1.27e-6, a=9.1e-5, b=1.11e-4, c=2.8e-5, side=0.0, along_k=3.6e-3,
    copied=4.1e-4,
)  # fmt: skip
BATCH_SHARE = 0.3
XEON_16_FOLDED = BatchTimes(XEON_16_DEVICE.calls, *(BATCH_SHARE * x for x in XEON_FOLDED[1:]))
XEON_16_OTHER = BatchTimes(XEON_16_DEVICE.calls, *(BATCH_SHARE * x for x in XEON_OTHER[1:]))
XEON_16 = Processor(
    host_times.XEON_16, XEON_16_DEVICE, XEON_16_FOLDED, XEON_16_OTHER, margin=1.05, tied=0, units=16
)


def suits(
    m: int,
    n: int,
    k: int,
    matrices: int,
    cpu: Cpu,
    kind: BatchKind = BatchKind.OWN_B,
    is_b_transposed: bool = False,
    copied: int = 0,
) -> bool:
    """Tell whether a CPU device is faster than the host's BLAS.

    Parameters
    ----------
    kind : BatchKind, optional
        What the matrices of a batch have in common.
    is_b_transposed : bool, optional
        Whether B is a single matrix with contiguous columns.
    copied : int, optional
        The elements of the operands that NumPy copies for its BLAS.
    """
    times, processor = both_us(m, n, k, matrices, cpu, kind, is_b_transposed, copied), _like(cpu)
    if times is None or processor is None:
        return False
    host_us, device_us = times
    is_tied = not _is_quick(m, n, k, matrices) and m * n * k >= processor.tied
    return host_us > (processor.margin if is_tied else 1.0) * device_us


def both_us(
    m: int,
    n: int,
    k: int,
    matrices: int,
    cpu: Cpu,
    kind: BatchKind = BatchKind.OWN_B,
    is_b_transposed: bool = False,
    copied: int = 0,
) -> tuple[float, float] | None:
    """Return the microseconds that the host's BLAS and a CPU device take for a product.

    None for a product with a vector and for a processor that is like none that was measured. The
    parameters are those of `suits`.
    """
    if (processor := _like(cpu)) is None:
        return None
    host, device, folded, batch, *_ = processor
    costs, share = cpu.costs, processor.share(cpu.units)
    if _is_quick(m, n, k, matrices):
        if min(n, k) < 2:
            return None
        times = folded if kind is BatchKind.FOLDED else batch
        host_us = host.of_batch(m, n, k, matrices, kind, copied)
        return host_us, times.of(m, n, k, matrices, costs, share) + device.copied * copied
    if min(m, n, k) < 2:
        return None
    of_each = copied // matrices if copied else 0
    host_us = matrices * host.of(m, n, k, is_b_transposed, of_each, share)
    return host_us, matrices * device.of(m, n, k, costs, of_each, share)


def _is_quick(m: int, n: int, k: int, matrices: int) -> bool:
    """Tell whether a product is a batch of matrices that are small enough to count as one call."""
    return matrices > 1 and max(m * n, m * k, n * k) <= LARGEST


def _like(cpu: Cpu) -> Processor | None:
    """Return the times of the most similar processor; None if it is not similar enough."""
    if cpu.units < MANY_CORES:
        return NARROW if has_narrow_kernels() else AMD if cpu.is_amd else XEON
    # Intel's MKL takes half of OpenBLAS's time for products of 1e7 to 1e8 multiply-adds.
    is_known = is_openblas() and not has_narrow_kernels() and not cpu.is_amd and cpu.units <= MOST
    return XEON_16 if is_known else None


def call_us(costs: CpuCosts) -> float:
    """Return how long a call takes, whatever its product is."""
    return CALL_US + costs.start_us + costs.launch_us


# A product with fewer multiply-adds suits no device, where each element of A and B counts as some.
LEAST_COUNTED, COUNTED_A, COUNTED_B = 2_780_000, 8, 31
LEAST_CALL_US = call_us(INTEL)


def may_suit(
    m: int,
    n: int,
    k: int,
    matrices: int,
    kind: BatchKind = BatchKind.OWN_B,
    is_b_transposed: bool = False,
    copied: int = 0,
) -> bool:
    """Tell whether a CPU device may be faster, before one is opened."""
    if not has_avx512():
        return False
    units = usable_processors()
    costs = INTEL if units < MANY_CORES else INTEL_MANY_CORES
    product, how = (m, n, k, matrices), (kind, is_b_transposed, copied)
    # Both makers' processors count, but narrow kernels have the same times on both.
    return suits(*product, Cpu(costs, True, units), *how) or (
        not has_narrow_kernels() and suits(*product, Cpu(costs, False, units), *how)
    )


def is_quick_loop(m: int, n: int, k: int, matrices: int) -> bool:
    """Tell whether NumPy makes a batch in less time than any device takes for a call."""
    loop_us = NARROW.host.of_batch(m, n, k, matrices, BatchKind.OWN_B)
    return loop_us < FOLDED.calls * LEAST_CALL_US
