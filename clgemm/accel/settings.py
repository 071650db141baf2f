"""The settings of accelerated NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

from clgemm.core.settings import require_threshold
from clgemm.side.settings import least_of_side

__all__ = ["Settings", "least_of"]


class Settings(NamedTuple):
    """The settings of `install` and `enabled`.

    Attributes
    ----------
    least : int or None
        Multiply-adds from which on the device multiplies; None if measured times, or the
        environment's settings, decide.
    device : Device or None
        None for the device, or devices, of `clgemm.get_devices`.
    profile : bool
        Whether to count and time every product, also small ones and those of other dtypes.
    """

    least: int | None = None
    device: Any = None
    profile: bool = False


def least_of(threshold: Any, side: str | None) -> int | None:
    """Return `Settings.least` for these arguments of `install`; the threshold goes before the side.

    Raises
    ------
    ValueError
        If the threshold is negative or not whole, or if there is no such side.
    """
    least = require_threshold(threshold)
    wanted = None if side is None else least_of_side(side)
    return wanted if least is None else least
