"""The settings that decide the side in place of measured times; whether devices are prepared."""

from __future__ import annotations

import os

from clgemm.core.precision import environment_precision
from clgemm.core.settings import Variable, whole_number

__all__ = [
    "ALWAYS_HOST",
    "SIDES",
    "least_of_side",
    "may_prepare",
    "require_settings",
    "rule",
    "threshold",
]

THRESHOLD_VARIABLE, SIDE_VARIABLE = "CLGEMM_THRESHOLD", "CLGEMM_SIDE"
PREPARE_VARIABLE = "CLGEMM_PREPARE"
SIDES = ("auto", "host", "device")
ALWAYS_HOST = 2**63  # multiply-adds: more than any product has
_threshold, _side = Variable(THRESHOLD_VARIABLE).get, Variable(SIDE_VARIABLE).get


def threshold() -> int | None:
    """Return the multiply-adds from which on the environment sends products to the device.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD is not a whole number.
    """
    setting = (_threshold() or "").strip()
    try:
        return whole_number(setting) if setting else None
    except ValueError as error:
        raise ValueError(f"{THRESHOLD_VARIABLE}={error}") from None


def least_of_side(side: str, name: str = "side") -> int | None:
    """Return the multiply-adds from which on a side's products go to the device; None for "auto".

    Raises
    ------
    ValueError
        If there is no such side.
    """
    if side not in SIDES:
        raise ValueError(f"{name}={side!r} is not one of {', '.join(SIDES)}")
    return {"auto": None, "host": ALWAYS_HOST, "device": 0}[side]


def rule() -> int | None:
    """Return the multiply-adds from which on the device multiplies; None if measured times decide.

    CLGEMM_THRESHOLD goes before CLGEMM_SIDE.

    Raises
    ------
    ValueError
        If the value of one is wrong.
    """
    if (least := threshold()) is not None:
        return least
    return least_of_side((_side() or "").strip() or "auto", SIDE_VARIABLE)


def is_ruled() -> bool:
    """Tell whether the environment may set the side, quickly."""
    return bool(_threshold() or _side())


def may_prepare() -> bool:
    """Tell whether devices may be prepared in the background.

    Raises
    ------
    ValueError
        If CLGEMM_PREPARE is neither empty, "auto" nor "never".
    """
    setting = os.environ.get(PREPARE_VARIABLE, "").strip()
    if setting not in ("", "auto", "never"):
        raise ValueError(f"{PREPARE_VARIABLE}={setting!r} is neither auto nor never")
    return setting != "never"


def require_settings() -> None:
    """Check the environment's settings before anything is computed.

    Raises
    ------
    ValueError
        If one is wrong.
    """
    rule()
    may_prepare()
    environment_precision()
