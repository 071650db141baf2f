"""Devices whose last product failed: accelerated NumPy does not use them for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator

from clgemm.accel.tally import LeftOut
from clgemm.hardware.device import Device
from clgemm.runtime.several.standing import pause_seconds

__all__ = ["LeftOutDevices"]


class LeftOutDevices:
    """The devices, each with the monotonic time when it is tried again."""

    def __init__(self) -> None:
        self._found: dict[Device, tuple[LeftOut, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[LeftOut]:
        return iter([found for found, _ in list(self._found.values())])

    def has(self, device: Device) -> bool:
        """Tell whether a device is not to be used now."""
        return device in self._found and time.monotonic() < self._found[device][1]

    def add(self, device: Device, error: str) -> LeftOut:
        """Note that a device has failed. Each failure in a row doubles the pause."""
        before = self._found.get(device)
        failures = before[0].failures + 1 if before else 1
        pause = pause_seconds(failures)
        left_out = LeftOut(device.name, failures, time.time() + pause, error)
        self._found[device] = left_out, time.monotonic() + pause
        return left_out

    def remove(self, device: Device) -> bool:
        """Note that a device works; tell whether it had failed before."""
        return bool(self._found) and self._found.pop(device, None) is not None
