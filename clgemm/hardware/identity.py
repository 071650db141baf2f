"""The identity of a device, for records, for verdicts and for other processes."""

from __future__ import annotations

import functools
import hashlib
import itertools
import platform
import re
from pathlib import Path

import pyopencl as cl

from clgemm.core.traits import Identity
from clgemm.hardware.device import Device, present

__all__ = [
    "find",
    "identify",
    "identity",
    "where",
]

FLOAT_BITS = 32


def identify(device: Device) -> Identity:
    """Return the facts about a device that records are matched against."""
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
            # With many cores, more of them wait while an operand is packed: other configs are fast.
            many = ", many cores" if traits.has_many_cores else ""
            return f"{machine}, vectors of {FLOAT_BITS * traits.register_width} bits{many}"
        # Mesa maps work-items to vector lanes, and the device's name has the vectors' width.
        bits = re.search(r"\b(\d+) bits", device.name)
        return f"{machine}, work-items on vectors of {bits[1] if bits else 'unknown'} bits"
    major, minor = device.traits.capability
    return f"compute capability {major}.{minor}" if major else device.name


def identity(device: Device) -> list[str]:
    """Return what `find` takes to find the device in another process.

    The other process may list the devices in another order.
    """
    same = [d for d in present().devices if (d.name, d.platform) == (device.name, device.platform)]
    position = next((i for i, d in enumerate(same) if d.cl_device == device.cl_device), 0)
    return [device.name, device.platform, str(position)]


def find(identified: list[str]) -> Device:
    """Return the device that an `identity` describes.

    Raises
    ------
    RuntimeError
        If this process does not have the device; the message lists its devices.
    """
    name, platform_name, position = identified
    same = [d for d in present().devices if (d.name, d.platform) == (name, platform_name)]
    if int(position) >= len(same):
        raise RuntimeError(
            f"this process has no device {name} of {platform_name}; it has {present().devices}"
        )
    return same[int(position)]


def where(device: Device) -> str:
    """Return a device as verdicts name it: with driver, pyopencl's version and processor."""
    made: str = device.__dict__.get("_where") or _where(device)
    device.__dict__["_where"] = made
    return made


def _where(device: Device) -> str:
    parts = f"{device.platform}, pyopencl {cl.VERSION_TEXT}, {_processor()}"
    digest = hashlib.sha256(parts.encode()).hexdigest()[:16]
    return f"{device.label}, driver {device.cl_device.driver_version}, {digest}"


@functools.cache
def _processor() -> str:
    """Return the processor's model, stepping and extensions, which determine compiled code."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            first = [line.partition(":") for line in itertools.takewhile(str.strip, file)]
    except OSError:
        return platform.processor()
    names = "vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features"
    found = {name.strip(): value.strip() for name, _, value in first}
    return ", ".join(found.get(name, "") for name in names)
