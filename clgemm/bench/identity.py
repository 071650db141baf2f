"""Finding the same device in another process."""

from __future__ import annotations

from clgemm.device import Device, devices

__all__ = ["find", "identity"]


def identity(device: Device) -> list[str]:
    """Return what finds a device again in another process, which may order them otherwise."""
    alike = [d for d in devices() if (d.name, d.platform) == (device.name, device.platform)]
    return [device.name, device.platform, str(alike.index(device))]


def find(identified: list[str]) -> Device:
    """Return the device of an `identity`.

    Raises
    ------
    RuntimeError
        If it is not in this process; the message lists what is.
    """
    name, platform, position = identified
    alike = [d for d in devices() if (d.name, d.platform) == (name, platform)]
    if int(position) >= len(alike):
        raise RuntimeError(f"device {name} of {platform} is not in this process: {devices()}")
    return alike[int(position)]
