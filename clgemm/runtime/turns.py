"""The side of products that follow one another, where a CPU device shares its cores with BLAS.

Each side has its own threads. After a product of NumPy, those of its BLAS wait for the next one for
a tenth of a second without sleeping, and a device's product takes half as long again meanwhile. So
a program that makes each product on the side that is faster at it may take longer than one that
makes all on either side. Here the program leans on one side. It leans on the other once the other
would have saved more than the change costs. After a pause, no thread waits. Then the program begins
on the side that would have saved so much since the pause before, as it may do the same again.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from clgemm.core.host_blas import blas_threads, spin_seconds

__all__ = [
    "LEAST_THREADED",
    "MANY_WAIT_US",
    "Product",
    "forget",
    "host_makes",
    "host_makes_small",
    "may_spin",
]

# How many times as long a device's product takes while the threads of the BLAS spin: 1.5 with
# Intel's runtime, 1.2 to 1.4 with PoCL 3.1, for 300 x 300 to 900 x 900 matrices (two cores of an
# Intel Xeon, 2026-11-27).
SLOWED = 1.5
# On many cores, PoCL waits for that of its threads whose core is taken for the longest time: in a
# random program, a batch took 2.4 ms in place of 0.2. Intel's runtime gives the work to its other
# threads, and took twice as long (16 cores of an Intel Xeon, 2026-11-27).
MANY_WAIT_US = 2200.0
# OpenBLAS makes smaller products by the caller's thread.
LEAST_THREADED = 2**18  # multiply-adds
LEAST_SPIN_S = 1e-3


class Product(NamedTuple):
    """The expected times of a product.

    Attributes
    ----------
    is_hosts : bool
        Whether NumPy should make it if no other product comes before or after it.
    host_us, device_us : float
        Microseconds by NumPy and by the device, when the other's threads sleep.
    is_threaded : bool
        Whether NumPy's BLAS makes it by several threads.
    waits_us : float
        How much longer the device takes while threads of the BLAS spin, besides being `SLOWED`.
    """

    is_hosts: bool
    host_us: float
    device_us: float
    is_threaded: bool
    waits_us: float = 0.0


class _Turns:
    """What the last products of this process were.

    Attributes
    ----------
    has_begun : bool
        Whether both sides have been compared for any product.
    is_leaning : bool
        Whether the program leans on the device.
    saved_us : float
        How much less time the last products take on the device, all of them, than by NumPy. A
        change of the side costs time too, which bounds it.
    since_pause_us : float
        The same since the last pause, without bounds.
    end : float
        When threads that the last product left behind sleep, in seconds of `time.perf_counter`.
    """

    has_begun = False
    is_leaning = False
    saved_us = 0.0
    since_pause_us = 0.0
    end = 0.0


_turns = _Turns()


def forget() -> None:
    """Forget the last products."""
    global _turns
    _turns = _Turns()


def host_makes(product: Product) -> bool:
    """Tell whether NumPy makes a product now, and note it.

    Several threads may ask at once. A note that is lost makes no result wrong.
    """
    turns, now, spin_s = _turns, time.perf_counter(), spin_seconds()
    is_hosts, host_us, device_us, is_threaded, waits_us = product
    turns.has_begun = True
    if is_hosts and not is_threaded:
        return True
    slowed_us = SLOWED * device_us + waits_us
    cost_us = 1e6 * spin_s * (1 - device_us / slowed_us)
    less_us = host_us - device_us
    if now > turns.end:  # all threads sleep
        before_us = turns.since_pause_us
        turns.is_leaning = before_us > 0 if abs(before_us) >= cost_us else not is_hosts
        turns.saved_us = turns.since_pause_us = 0.0
    else:
        turns.saved_us = min(max(turns.saved_us + less_us, -cost_us), cost_us)
        if abs(turns.saved_us) >= cost_us:
            turns.is_leaning = turns.saved_us > 0
    turns.since_pause_us += less_us
    is_hosts = not turns.is_leaning and (is_hosts or host_us <= slowed_us)
    if is_threaded or not is_hosts:
        turns.end = now + spin_s + (host_us if is_hosts else device_us) / 1e6
    return is_hosts


def host_makes_small() -> bool:
    """Tell whether NumPy makes a product that is too small for a device by itself, and note it.

    The product is threaded. If the program leans on the device, both sides are to be compared.
    """
    turns = _turns
    if turns.is_leaning:
        return False
    if not turns.has_begun:
        return True
    turns.end = time.perf_counter() + spin_seconds()
    return True


def may_spin() -> bool:
    """Tell whether NumPy's BLAS has threads that spin after a product, for long enough to count."""
    return spin_seconds() >= LEAST_SPIN_S and blas_threads() > 1
