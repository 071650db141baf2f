"""How long NumPy takes for products and batches by its BLAS, on machines that were measured."""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = [
    "AMD",
    "LARGEST",
    "NARROW",
    "UNPACKED",
    "XEON",
    "XEON_16",
    "BatchKind",
    "HostTimes",
    "LoopTimes",
]

LARGEST = 2**18  # elements of a matrix for which the times of loops were measured
SHARED = 2**18  # multiply-adds; OpenBLAS's threads share larger products
# OpenBLAS's kernels for AVX-512 make a product of so few multiply-adds without packing. If A has
# contiguous rows, an element of a B with contiguous columns then takes 1.4e-4 us, not 4.2e-4: the
# median of 32 random products of up to 11 rows (two cores of a Xeon, 2026-11-27).
UNPACKED = 100**3


class BatchKind(enum.Enum):
    """What the matrices of a batch have in common.

    Attributes
    ----------
    OWN_B
        Each has its own B.
    ONE_B
        All have the same B.
    FOLDED
        The same, and the rows of all A follow one another: it can be made as one product.
    """

    OWN_B = 0
    ONE_B = 1
    FOLDED = 2


class LoopTimes(NamedTuple):
    """The microseconds that it takes for each matrix of a batch.

    Attributes
    ----------
    call, multiply_add : float
        Of BLAS's call, and of a multiply-add.
    a, b, one_b, c : float
        Of an element of each matrix; `one_b` if all have the same B.
    """

    call: float
    multiply_add: float
    a: float
    b: float
    one_b: float
    c: float

    def of(self, m: int, n: int, k: int, kind: BatchKind) -> float:
        """Return the time of a matrix."""
        of_b = self.b if kind is BatchKind.OWN_B else self.one_b
        elements = self.a * m * k + of_b * n * k + self.c * m * n
        return self.call + self.multiply_add * m * n * k + elements


class HostTimes(NamedTuple):
    """The microseconds that NumPy takes for a product by its BLAS.

    Attributes
    ----------
    call, multiply_add : float
        Of a call, and of a multiply-add.
    a, b, c : float
        Of an element of each matrix.
    transposed_b : float
        Of an element of a B with contiguous columns.
    copied : float
        Of an element that NumPy copies for its BLAS, by one thread.
    loop : LoopTimes
        Of each matrix of a batch, which NumPy makes one after the other.
    shared_loop : LoopTimes or None
        Of those of more than `SHARED` multiply-adds. None: the same.
    """

    call: float
    multiply_add: float
    a: float
    b: float
    transposed_b: float
    c: float
    copied: float
    loop: LoopTimes
    shared_loop: LoopTimes | None = None

    def of(
        self,
        m: int,
        n: int,
        k: int,
        is_b_transposed: bool = False,
        copied: int = 0,
        share: float = 1.0,
    ) -> float:
        """Return the time of a product.

        Parameters
        ----------
        copied : int, optional
            The elements of the operands that NumPy copies.
        share : float, optional
            The time of a multiply-add, as a share of that on the processor that was measured.
        """
        of_b = self.transposed_b if is_b_transposed else self.b
        elements = self.a * m * k + of_b * k * n + self.c * m * n + self.copied * copied
        return self.call + self.multiply_add * m * n * k * share + elements

    def of_batch(
        self, m: int, n: int, k: int, matrices: int, kind: BatchKind, copied: int = 0
    ) -> float:
        """Return the time of a batch of small matrices; `copied` are the elements of all."""
        loop = self.shared_loop if self.shared_loop and m * n * k > SHARED else self.loop
        return matrices * loop.of(m, n, k, kind) + self.copied * copied


# Two cores of an AMD EPYC (Zen 5), where OpenBLAS leaves AVX-512 unused, and where it does not: see
# `clgemm.planning.cpu_choice`. On two cores, a device takes as long as NumPy for what NumPy copies,
# so copies do not count.
NARROW = HostTimes(
    call=1.8, multiply_add=7.84e-6, a=8.9e-5, b=1.32e-4, transposed_b=1.6e-4, c=3.14e-5, copied=0.0,
    loop=LoopTimes(call=0.055, multiply_add=1e-5, a=1.95e-4, b=1.1e-4, one_b=7e-5, c=9e-5),
)  # fmt: skip
AMD = HostTimes(
    call=0.9, multiply_add=4.4e-6, a=8.9e-5, b=1.1e-4, transposed_b=2.37e-4, c=3.34e-5, copied=0.0,
    loop=LoopTimes(call=0.023, multiply_add=7.3e-6, a=7.3e-5, b=4.1e-5, one_b=2e-5, c=3.4e-5),
)  # fmt: skip
# Two cores of an Intel Xeon (Sapphire Rapids), fitted to 568 random products.
XEON = HostTimes(
    call=0.4, multiply_add=9.9e-6, a=1.96e-4, b=2.06e-4, transposed_b=4.24e-4, c=1.34e-4,
    copied=0.0,
    loop=LoopTimes(call=0.044, multiply_add=9.6e-6, a=1.07e-4, b=6.7e-5, one_b=8.6e-5, c=1.27e-4),
)  # fmt: skip
# 16 cores of an Intel Xeon beside an H100 or an H200. Products: fitted to 532 random ones of 1e5 to
# 2e11 multiply-adds, 2026-11-27; `copied` also to 586 with copies. Loops: to 1,270 random batches
# and others, 2026-11-26, see `clgemm.planning.gpu_choice`.
XEON_16 = HostTimes(
    call=31, multiply_add=1.66e-6, a=6.5e-5, b=9.6e-5, transposed_b=1.26e-4, c=5e-5, copied=1.2e-3,
    loop=LoopTimes(call=0.025, multiply_add=9.6e-6, a=3.6e-4, b=2.8e-4, one_b=7e-5, c=3e-4),
    shared_loop=LoopTimes(call=7.7, multiply_add=2.4e-6, a=2.5e-4, b=2.8e-4, one_b=7e-5, c=2.6e-4),
)  # fmt: skip
