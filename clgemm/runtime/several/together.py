"""Products of host arrays that equal GPUs make together: one thread feeds all of them.

A piece of B is copied to pinned memory once, and each GPU reads it there: memory that is pinned for
one serves the others at the same rate. Were each fed by a thread of its own, two GPUs would take up
to three times as long as one (two H100s beside 32 Xeon cores, 2026-11-25).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import pyopencl as cl

from clgemm.hardware.device import Device
from clgemm.planning.planner import instructions_of
from clgemm.planning.tiles import is_faster_spread
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.progress import begun
from clgemm.runtime.regions import any_held, containing
from clgemm.runtime.several.part import Part, Together

__all__ = ["gains", "made_together"]

log = logging.getLogger(__name__)

# What is expected of GPUs, to tell whether several of them gain anything. Multiply-adds a second of
# a compute unit, without and with tensor cores; elements that the host's threads copy a second.
# Measured on H200s and H100s beside 16 and 32 Xeon cores, 2026-11-23 and 2026-11-25.
UNIT_RATE, TENSOR_UNIT_RATE = 2.0e11, 8.5e11
COPIED_PER_SECOND = 7.5e9


def gains(part: Part, devices: Sequence[Device]) -> bool:
    """Tell whether several devices are expected to be faster than one.

    Where the host's threads copy what GPUs read and write, they may not be. The answer depends on
    the devices and the operands alone, and so do the bits of the result.
    """
    if any(device.kind != "GPU" or transfer_config(device) is None for device in devices):
        return True
    rates = []
    for device in devices:
        has_tensor_cores = part.precision != "strict" and bool(instructions_of(device))
        unit_rate = TENSOR_UNIT_RATE if has_tensor_cores else UNIT_RATE
        rates.append(device.limits.compute_units * unit_rate)
    copies_of_b = 1 if _work_together(part, devices) else len(devices)
    return is_faster_spread(part.c.shape, part.a.shape[-1], rates, COPIED_PER_SECOND, copies_of_b)


def _work_together(part: Part, devices: Sequence[Device]) -> bool:
    """Tell whether devices are equal GPUs that can make a product together.

    A C that is updated could not be made anew if one of them failed. Copies of operands that stay
    belong to one device.
    """
    first = devices[0]
    return (
        len(devices) > 1
        and transfer_config(first) is not None
        and all(
            (each.name, each.limits, each.transfer) == (first.name, first.limits, first.transfer)
            for each in devices
        )
        and not part.beta
        and not (any_held() and (containing(part.a) or containing(part.b)))
    )


def made_together(part: Part, devices: Sequence[Device], together: Together) -> bool:
    """Make a product on equal GPUs at once, if they are, and tell whether it is made.

    If one of them fails, it is not: each then makes tiles by itself, which tells who it was.
    """
    if not _work_together(part, devices):
        return False
    meter = begun(part.a.shape[-1] * math.prod(part.c.shape))
    try:
        made = together(part, devices, int if meter is None else meter.advance)
    except cl.Error as error:
        log.info("clgemm: GPUs that shared a product now make tiles, one by one: %s", error)
        return False
    if made and meter is not None:
        meter.end()
    return made
