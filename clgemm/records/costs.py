"""The measured constants of expected times of this user's devices, in the cache folder. Pure.

They are kept by device and runtime, beside the tuning records. `clgemm.tuning.cost_fit` measures
them. A device without an entry gets those of an H200.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from clgemm.core.cache import cache_folder, rewrite, warn_once, warn_unkept
from clgemm.core.caches import forgettable
from clgemm.core.costs import Costs
from clgemm.records.record import today

__all__ = ["MeasuredCosts", "file", "keep", "measured_costs"]

FORMAT = 1
NAMES = {field.name for field in fields(Costs)}
SMALLEST, LARGEST = 1e-12, 1e15  # of sensible constants


class MeasuredCosts(NamedTuple):
    """The constants of a device, the number of plans that they were fitted to, and the date."""

    costs: Costs
    plans: int
    date: str


def measured_costs(device: str, runtime: str) -> MeasuredCosts | None:
    """Return the constants of a device, by its name and its runtime's; None if there are none."""
    return _parsed(_entries().get(_key(device, runtime)))


def keep(device: str, runtime: str, costs: Costs, plans: int) -> None:
    """Store constants; if the file cannot be written, log a warning."""

    def changed(old: str | None) -> str:
        entry = {"costs": asdict(costs), "plans": plans, "date": today()}
        held = _held(old) | {_key(device, runtime): entry}
        return json.dumps({"format": FORMAT, "devices": held}, indent=1)

    try:
        rewrite(file(), changed)
    except OSError as error:
        warn_unkept(file(), error, "the measured constants are not kept")
    _entries.cache_clear()


def file() -> Path:
    """Return the path of the file; it need not exist."""
    return cache_folder() / "tuning" / "costs.json"


def _key(device: str, runtime: str) -> str:
    return f"{device}, {runtime}"


@forgettable
@functools.cache
def _entries() -> dict[str, Any]:
    try:
        text = file().read_text(encoding="utf-8")
    except OSError:
        return {}
    return _held(text)


def _held(text: str | None) -> dict[str, Any]:
    """Return the entries of a file; none if it is broken or of another version."""
    try:
        found = json.loads(text) if text else {}
        return dict(found["devices"]) if found.get("format") == FORMAT else {}
    except (ValueError, AttributeError, KeyError, TypeError):
        warn_once(f"{file()} is broken: 'python -m clgemm tune' measures its constants again")
        return {}


def _parsed(entry: Any) -> MeasuredCosts | None:
    """Return an entry of the file; None if it lacks constants, has others, or bad ones."""
    try:
        values = {str(name): float(value) for name, value in entry["costs"].items()}
        found = int(entry["plans"]), str(entry["date"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    sensible = all(math.isfinite(x) and SMALLEST < x < LARGEST for x in values.values())
    return MeasuredCosts(Costs(**values), *found) if set(values) == NAMES and sensible else None
