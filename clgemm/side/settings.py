"""The settings that decide the side in place of measured times; whether devices are prepared."""

from __future__ import annotations

import functools
import os
from typing import Any

from clgemm.core.precision import environment_precision
from clgemm.core.settings import Variable, require_threshold, whole_number

THRESHOLD_VARIABLE, SIDE_VARIABLE = "CLGEMM_THRESHOLD", "CLGEMM_SIDE"
PREPARE_VARIABLE = "CLGEMM_PREPARE"
SIDES = ("auto", "host", "device")
ALWAYS_HOST = 2**63  # multiply-adds: more than any product has
_threshold, _side = Variable(THRESHOLD_VARIABLE), Variable(SIDE_VARIABLE)
# The variables' names in a dict that holds the environment, for a quick look.
NAMES, VALUES = (_threshold.key, _side.key), _threshold.values
_environ = os.environ


def least_of(threshold: Any, side: str | None, name: str = "side") -> int | None:
    """Return the multiply-adds from which on the device multiplies; None if measured times decide.

    A threshold goes before a side.

    Raises
    ------
    ValueError
        If the threshold is negative or not whole, or if there is no such side.
    """
    least = require_threshold(threshold)
    if side is not None and side not in SIDES:
        raise ValueError(f"{name}={side!r} is not one of {', '.join(SIDES)}")
    return {"host": ALWAYS_HOST, "device": 0}.get(side or "") if least is None else least


def rule() -> int | None:
    """Return what `least_of` does for CLGEMM_THRESHOLD and CLGEMM_SIDE.

    Raises
    ------
    ValueError
        If the value of one is wrong.
    """
    return _rule(_threshold.get() or "", _side.get() or "")


@functools.lru_cache(maxsize=8)
def _rule(threshold: str, side: str) -> int | None:
    try:
        least = whole_number(threshold) if threshold.strip() else None
    except ValueError as error:
        raise ValueError(f"{THRESHOLD_VARIABLE}={error}") from None
    return least if least is not None else least_of(None, side.strip() or "auto", SIDE_VARIABLE)


@functools.lru_cache(maxsize=8)
def quick_rule(*values: Any) -> int | None:
    """Return what `rule` does for these `VALUES` of `NAMES`, but 0 where that raises."""
    try:
        return _rule(*(os.fsdecode(value or "") for value in values))
    except ValueError:
        return 0


def is_ruled() -> bool:
    """Return whether the environment may set the side, quickly."""
    first, second = NAMES
    return first in VALUES or second in VALUES or os.environ is not _environ


def goes_by_rule(work: int, own_rule: int | None = None) -> bool | None:
    """Return whether a rule of the user's sends a product to the device; None without a rule.

    Parameters
    ----------
    own_rule : int, optional
        Multiply-adds from which on the device multiplies, in place of the environment's.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD or CLGEMM_SIDE is wrong.
    """
    least = rule() if own_rule is None else own_rule
    return None if least is None else work >= least


def may_prepare() -> bool:
    """Return whether devices may be prepared in the background.

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
