"""Which device it is: to another process, and to records of what is fast on devices like it."""

from __future__ import annotations

import platform
import re

from clgemm.core.identity import Identity
from clgemm.hardware.device import Device, present

__all__ = [
    "find",
    "identify",
    "identity",
]

FLOAT_BITS = 32


def identify(device: Device) -> Identity:
    """Return what records know a device by."""
    d = device.cl_device
    return Identity(
        name=device.name,
        kind=device.kind,
        vendor=str(d.vendor).strip(),
        platform=device.platform,
        driver=str(d.driver_version),
        architecture=_architecture(device),
    )


def _architecture(device: Device) -> str:
    if device.kind == "CPU":
        machine = platform.machine()
        traits = device.traits
        if traits.has_vectors:
            # What is read where it lies depends on the cores that would wait for its packing.
            many = ", many cores" if traits.has_many_cores else ""
            return f"{machine}, vectors of {FLOAT_BITS * traits.register_width} bits{many}"
        # Mesa spreads work-items over the lanes of the processor's vectors, which its name tells.
        bits = re.search(r"\b(\d+) bits", device.name)
        return f"{machine}, work-items on vectors of {bits[1] if bits else 'unknown'} bits"
    major, minor = device.traits.capability
    return f"compute capability {major}.{minor}" if major else device.name


def identity(device: Device) -> list[str]:
    """Return what finds a device again in another process, which may order them otherwise."""
    alike = [d for d in present().devices if (d.name, d.platform) == (device.name, device.platform)]
    position = next((i for i, d in enumerate(alike) if d.cl_device == device.cl_device), 0)
    return [device.name, device.platform, str(position)]


def find(identified: list[str]) -> Device:
    """Return the device of an `identity`.

    Raises
    ------
    RuntimeError
        If it is not in this process; the message lists what is.
    """
    name, platform_name, position = identified
    alike = [d for d in present().devices if (d.name, d.platform) == (name, platform_name)]
    if int(position) >= len(alike):
        here = present().devices
        raise RuntimeError(f"device {name} of {platform_name} is not in this process: {here}")
    return alike[int(position)]
