"""The settings of accelerated NumPy."""

from __future__ import annotations

from dataclasses import dataclass

from clgemm.hardware.device import Device

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """The settings of `install` and `enabled`.

    Attributes
    ----------
    threshold : int or None
        Multiply-adds from which on the device multiplies; None for the measured crossovers.
    device : Device or None
        None for the device, or devices, of `clgemm.get_devices`.
    profile : bool
        Whether to count and time every product, also small ones and those of other dtypes.
    """

    threshold: int | None = None
    device: Device | None = None
    profile: bool = False
