"""The measured constants of expected times of this user's devices, kept as verdicts are. Pure.

They are kept by device and runtime. `clgemm.trials.calibration` measures them. Until then a GPU has
those of an H200; a CPU has those of one that is known.
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from clgemm.core.cache import recall, remember
from clgemm.core.costs import Costs, CpuCosts
from clgemm.records.tuned import today

KINDS: tuple[type[Costs | CpuCosts], ...] = (Costs, CpuCosts)
SMALLEST, LARGEST = 1e-12, 1e15  # of sensible constants


class MeasuredCosts(NamedTuple):
    """The constants of a device, the number of plans that they were fitted to, and the date."""

    costs: Costs | CpuCosts
    plans: int
    date: str


def measured_costs(device: str, runtime: str) -> MeasuredCosts | None:
    """Return the constants of a device, by its name and its runtime's; None if there are none."""
    return _parsed(recall(_key(device, runtime)))


def keep(device: str, runtime: str, costs: Costs | CpuCosts, plans: int) -> None:
    """Store constants; if the cache folder cannot be written, log a warning."""
    entry = {"costs": asdict(costs), "plans": plans, "date": today()}
    remember(_key(device, runtime), entry)


def _key(device: str, runtime: str) -> str:
    return f"expected times, {device}, {runtime}"


def _parsed(entry: Any) -> MeasuredCosts | None:
    """Return what was kept; None if it lacks constants, has others, or bad ones."""
    try:
        values = {str(name): float(value) for name, value in entry["costs"].items()}
        found = int(entry["plans"]), str(entry["date"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    if not all(math.isfinite(x) and SMALLEST < x < LARGEST for x in values.values()):
        return None
    for kind in KINDS:
        if values.keys() == {field.name for field in fields(kind)}:
            return MeasuredCosts(kind(**values), *found)
    return None
