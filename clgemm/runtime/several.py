"""One product of host arrays on several equal GPUs, which the calling thread feeds together.

A piece of B is copied to pinned memory once, and each GPU reads it there: memory that is pinned for
one serves the others at the same rate. Were each fed by a thread of its own, two GPUs would take up
to three times as long as one (two H100s beside 32 Xeon cores, 2026-11-25).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from clgemm.core.costs import joined
from clgemm.hardware.device import Device
from clgemm.planning.planner import instructions_of
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.operands import HostArray
from clgemm.runtime.regions import any_held, containing

__all__ = ["is_faster_shared", "sharers"]

# Multiply-adds that each device should have at least: a GPU's time for them is that of sending its
# operands (not measured).
LEAST_WORK = 2**36
# What is expected of GPUs, to tell whether several of them gain anything. Multiply-adds a second of
# a compute unit, without and with tensor cores; elements that the host's threads copy a second.
# Measured on H200s and H100s beside 16 and 32 Xeon cores, 2026-11-23 and 2026-11-25.
UNIT_RATE, TENSOR_UNIT_RATE = 2.0e11, 8.5e11
COPIED_PER_SECOND = 7.5e9
# As in `joined`: multiplying and copying. Measured with 18 products on one and two H100s, on two
# machines of which one copied half as fast (2026-11-25). Two GPUs are chosen for ten of them, which
# they make 1.04 to 2.1 times as fast. One is chosen for three that two would make 1.1 to 1.3 times
# as fast.
OVERLAP = 2.0
LEAST_GAIN = 0.9  # of the time: with less gain, one device computes the product


def sharers(
    devices: Sequence[Device], a: HostArray, b: HostArray, c: HostArray, precision: str
) -> list[Device]:
    """Return the devices that compute a product together: the first one alone if that is faster.

    The answer depends on the devices and the operands alone, and so do the bits of the result.
    Copies of operands that stay belong to one device.

    Parameters
    ----------
    a, b : float32 array, shapes (..., m, k) and (..., k, n)
    c : float32 array, shape (..., m, n)
    """
    first, depth = devices[0], a.shape[-1]
    wanted = first.name, first.limits, first.transfer
    equal = [x for x in devices if (x.name, x.limits, x.transfer) == wanted]
    work = depth * math.prod(c.shape)
    if (
        len(equal) < 2
        or transfer_config(first) is None
        or work < LEAST_WORK * len(equal)
        or (any_held() and (containing(a) or containing(b)))
    ):
        return [first]
    has_tensor_cores = precision != "strict" and bool(instructions_of(first))
    rate = first.limits.compute_units * (TENSOR_UNIT_RATE if has_tensor_cores else UNIT_RATE)
    gains = is_faster_shared(c.shape, depth, len(equal), rate, COPIED_PER_SECOND)
    return equal if gains else [first]


def is_faster_shared(
    shape: tuple[int, ...], depth: int, count: int, rate: float, copied: float
) -> bool:
    """Return whether several equal devices are expected to be faster than one of them.

    The host's processors copy every element to pinned memory once, for all devices together, while
    the devices multiply. The longer of both counts, and the other one the more the closer it comes.

    Parameters
    ----------
    shape : tuple of int
        That of C: (*batch, m, n).
    depth : int
        k.
    count : int
        How many devices there are.
    rate : float
        Multiply-adds a second of one device.
    copied : float
        Elements that the host copies a second.
    """
    *batch, m, n = shape
    matrices = math.prod(batch)
    work = matrices * m * n * depth
    moved = matrices * (m * depth + depth * n + m * n)
    alone = joined(OVERLAP, work / rate, moved / copied)
    together = joined(OVERLAP, work / (rate * count), moved / copied)
    return together < LEAST_GAIN * alone
