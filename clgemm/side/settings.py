"""The settings that decide the side in place of measured times; whether devices are prepared."""

from __future__ import annotations

import functools
import os
from typing import Any

from clgemm.core.precision import environment_precision
from clgemm.core.settings import Variable, whole_number

__all__ = [
    "ALWAYS_HOST",
    "NAMES",
    "SIDES",
    "VALUES",
    "is_ruled",
    "least_of_side",
    "may_prepare",
    "quick_rule",
    "require_settings",
    "rule",
    "threshold",
]

THRESHOLD_VARIABLE, SIDE_VARIABLE = "CLGEMM_THRESHOLD", "CLGEMM_SIDE"
PREPARE_VARIABLE = "CLGEMM_PREPARE"
SIDES = ("auto", "host", "device")
ALWAYS_HOST = 2**63  # multiply-adds: more than any product has
_threshold, _side = Variable(THRESHOLD_VARIABLE), Variable(SIDE_VARIABLE)
# The variables' names in a dict that holds the environment, for a quick look.
NAMES, VALUES = (_threshold.key, _side.key), _threshold.values
_environ = os.environ


def threshold() -> int | None:
    """Return the multiply-adds from which on the environment sends products to the device.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD is not a whole number.
    """
    return _number((_threshold.get() or "").strip())


def _number(setting: str) -> int | None:
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
    return _rule(_threshold.get() or "", _side.get() or "")


@functools.lru_cache(maxsize=8)
def _rule(least: str, side: str) -> int | None:
    if (number := _number(least.strip())) is not None:
        return number
    return least_of_side(side.strip() or "auto", SIDE_VARIABLE)


@functools.lru_cache(maxsize=8)
def quick_rule(*values: Any) -> int | None:
    """Return what `rule` does for these `VALUES` of `NAMES`, but 0 where that raises."""
    try:
        return _rule(*(os.fsdecode(value or "") for value in values))
    except ValueError:
        return 0


def is_ruled() -> bool:
    """Tell whether the environment may set the side, quickly."""
    first, second = NAMES
    return first in VALUES or second in VALUES or os.environ is not _environ


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
