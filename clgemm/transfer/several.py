"""One product of host arrays on several equal GPUs, which the calling thread feeds together.

A piece of B is copied to pinned memory once, and each GPU reads it there: memory that is pinned for
one serves the others at the same rate. Were each fed by a thread of its own, two GPUs would take up
to three times as long as one (two H100s beside 32 Xeon cores, 2026-11-25).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from clgemm.core.costs import joined
from clgemm.core.threads import is_within
from clgemm.core.transfer import GRAIN
from clgemm.hardware.device import Device, transfer_config
from clgemm.planning.planner import instructions_of
from clgemm.runtime.operands import HostArray, with_axes
from clgemm.transfer.resident import NO_COPIES, any_held, containing
from clgemm.transfer.staging import Staging
from clgemm.transfer.tiles import Call, Share, TiledProduct, run_product, share_of

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
GRAINS = 8  # of each device: with fewer, rows are shared evenly, though not in whole grains


def sharers(
    devices: Sequence[Device], a: HostArray, b: HostArray, c: HostArray, precision: str
) -> list[Device]:
    """Return the devices that compute a product together: the first one alone if that is faster.

    The answer depends on the devices and the operands alone, and so do the bits of the result.
    Copies of resident operands belong to one device.
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


def multiply_together(
    stagings: Sequence[Staging],
    products: Sequence[TiledProduct],
    a: HostArray,
    b: HostArray,
    c: HostArray,
) -> bool:
    """Multiply host arrays on several devices at once. Return whether that was possible.

    Each computes some rows of C, or some matrices of a batch. If not, nothing was done. The borders
    depend on sizes and devices alone, and so do the bits.

    Parameters
    ----------
    stagings, products : sequence
        Of each device; equal configs.
    a, b, c : float32 array
        As for `multiply_through`.
    """
    a, b = (with_axes(x, c.ndim) for x in (a, b))
    if c.shape[-1] > c.shape[-2]:  # devices share rows: C' = B' A'
        a, b, c = (x.swapaxes(-1, -2) for x in (b, a, c))
    is_matrix = c.ndim == 2
    if not is_matrix:  # the longest axis of the batch is shared
        longest = int(np.argmax(c.shape[:-2]))
        a, b, c = (np.moveaxis(x, longest, 0) for x in (a, b, c))
    count, size = len(stagings), c.shape[0]
    if count > size:
        return False
    grain = GRAIN if is_matrix and size >= GRAINS * GRAIN * count else 1
    edges = [size * i // count // grain * grain for i in range(count)]
    parts = [slice(first, stop) for first, stop in pairwise([*edges, size])]
    shares = [
        share_of(staging, product, (_part(a, part), b if is_matrix else _part(b, part), c[part]))
        for staging, product, part in zip(stagings, products, parts, strict=True)
    ]
    if is_matrix and any(_order(share) != _order(shares[0]) for share in shares):
        return False
    is_nested = is_within(run_product)
    run_product(lambda: Call(shares, NO_COPIES, is_nested, has_common_b=is_matrix).run())
    return True


def _part(x: HostArray, part: slice) -> HostArray:
    """Return a part along the first axis; all of it if that is repeated."""
    return x[part] if x.shape[0] > 1 else x


def _order(share: Share) -> list[tuple[object, ...]]:
    """Return the order of a share's tiles, in which B is sent."""
    return [(t.blocks[1], t.slots, t.loads, t.first, t.last) for t in share.tiles]
