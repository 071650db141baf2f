"""Products of host arrays that a GPU with memory of its own makes faster than NumPy's loops.

Where nothing else is said, numbers are from 1,270 random products on an H100 beside 16 Intel Xeon
cores (2026-11-26). By them, 479 batches have a mean regret of 1.03 (before, 1.26), and 239 products
of more than two axes 1.01 (before, 1.39).
"""

from __future__ import annotations

from clgemm.core.transfer import FLOAT_BYTES
from clgemm.planning.host_times import LARGEST, BatchKind
from clgemm.planning.host_times import XEON_16 as HOST

__all__ = ["suits_batch", "suits_copied", "suits_elements"]

# NumPy's time for an element, times that of `clgemm.contraction.element_us`.
ELEMENTS = 1.6
# Where NumPy copies operands for its BLAS, the time of a copied element for threads that send it.
# From 169 and 417 random products beside an H100 and 16 Xeon cores, 2026-11-27. Of 78 others with
# copies, the chosen side took 1.01 times as long as the better one (1.06 at the 95th percentile).
# That was by another estimate of the host's time, which leads to the other side once in a hundred.
SENT_COPIED_US = 3.75e-4
# How many times as long as the GPU NumPy has to take, and the shortest side that was measured.
MARGIN, LEAST_SIDE = 1.15, 8
# A call's part, and microseconds of a byte: up to so many, which are copied by one thread, and of
# the others.
CALL_US, FIRST_BYTES, FIRST_US, BYTE_US = 115.0, 2**23, 1.8e-4, 3.4e-5


def suits_batch(
    m: int, n: int, k: int, matrices: int, sent: float, kind: BatchKind = BatchKind.OWN_B
) -> bool:
    """Tell whether a GPU makes a batch faster. With large matrices, other rules hold.

    Parameters
    ----------
    sent : float
        The share of the elements that are sent.
    kind : BatchKind, optional
        What the matrices have in common.
    """
    if matrices < 2 or min(n, k) < 2 or max(m * n, m * k, n * k) > LARGEST:
        return False
    elements = matrices * m * (k + n) + n * k * (matrices if kind is BatchKind.OWN_B else 1)
    return HOST.of_batch(m, n, k, matrices, kind) > _sent_us(elements * sent)


def suits_elements(m: int, n: int, k: int, sent: float, host_us: float) -> bool:
    """Tell whether a GPU is faster where NumPy sums one element of the result after the other.

    Parameters
    ----------
    host_us : float
        NumPy's time by `clgemm.contraction.element_us`.
    """
    return ELEMENTS * host_us > _sent_us((m * k + k * n + m * n) * sent)


def suits_copied(m: int, n: int, k: int, sent: float, copied: int) -> bool:
    """Tell whether a GPU makes a product faster of which NumPy copies operands for its BLAS.

    Parameters
    ----------
    copied : int
        The elements of those operands.
    """
    if not copied or min(m, n, k) < LEAST_SIDE:
        return False
    elements = m * k + k * n + m * n
    sent_us = _sent_us(elements * sent) + SENT_COPIED_US * copied * sent
    return HOST.of(m, n, k, copied=copied) > MARGIN * sent_us


def _sent_us(elements: float) -> float:
    """Return how long a product takes that sends and receives so many elements."""
    size_bytes = FLOAT_BYTES * elements
    first = min(size_bytes, FIRST_BYTES)
    return CALL_US + FIRST_US * first + BYTE_US * (size_bytes - first)
