"""Devices as if they had memory of their own, and what their products move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clgemm.core.transfer import TransferConfig
from clgemm.hardware.device import Device

RNG = np.random.default_rng(7)
# Cuts small products into many tiles.
TINY = TransferConfig(
    memory_bytes=2**30,
    chunk_bytes=4096,
    chunks=3,
    pool_chunks=8,
    threads=2,
    threaded_bytes=0,
    tile_bytes=2000,
    tiles=4,
    rows=16,
    at_once_bytes=0,
)


def integers(*shape):
    """Values whose products sum exactly in float32, in any order."""
    return RNG.integers(-8, 9, shape).astype(np.float32)


def limited(device, room):
    """The device with so much memory for resident arrays, by their default share."""
    return Device(device.cl_device, transfer=replace(TINY, memory_bytes=2 * room))
