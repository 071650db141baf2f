"""The limits of transfers to a device, by what its driver reports."""

from __future__ import annotations

import functools
import os

from clgemm.core.transfer import TransferConfig
from clgemm.hardware.device import Device

# Threads that copy. More of them wait longer for the interpreter's lock than they copy.
MOST_COPYING = 10
# Blocks per side of C, so that the GPU need not wait for all of B, and the size of B from which on
# that pays.
SQUARE, SQUARE_BYTES = 4, 2**31
TRIANGLE, TRIANGLE_BYTES = 4, 2**28  # the same of A A'


def transfer_config(device: Device) -> TransferConfig | None:
    """Return the limits of transfers to a device; None if it uses host arrays in place."""
    if device.transfer is not None:
        return device.transfer
    return None if device.shares_host_memory else default_config(device)


def default_config(device: Device) -> TransferConfig:
    """Return the limits of transfers to a device that has no own ones."""
    return _default_config(device.cl_device.global_mem_size // 2)


@functools.cache
def _default_config(memory_bytes: int) -> TransferConfig:
    return TransferConfig(
        memory_bytes=memory_bytes,
        threads=max(1, min(os.cpu_count() or 1, MOST_COPYING)),
        square=SQUARE,
        square_bytes=SQUARE_BYTES,
        triangle=TRIANGLE,
        triangle_bytes=TRIANGLE_BYTES,
    )
