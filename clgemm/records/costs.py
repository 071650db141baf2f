"""The measured constants of expected times of this user's devices, in the cache folder. Pure.

They are kept by device and runtime, beside the tuning records. `clgemm.trials.calibration` measures
them. Until then a GPU has those of an H200; a CPU has those of one that is known.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from clgemm.core.cache import cache_folder, forgettable, rewrite, warn_once, warn_unkept
from clgemm.core.costs import Costs, CpuCosts
from clgemm.records.tuned import today

FIELD, FORMAT = "devices", 1
KINDS: tuple[type[Costs | CpuCosts], ...] = (Costs, CpuCosts)
SMALLEST, LARGEST = 1e-12, 1e15  # of sensible constants


class MeasuredCosts(NamedTuple):
    """The constants of a device, the number of plans that they were fitted to, and the date."""

    costs: Costs | CpuCosts
    plans: int
    date: str


def measured_costs(device: str, runtime: str) -> MeasuredCosts | None:
    """Return the constants of a device, by its name and its runtime's; None if there are none."""
    return _parsed(_entries().get(_key(device, runtime)))


def keep(device: str, runtime: str, costs: Costs | CpuCosts, plans: int) -> None:
    """Store constants; if the file cannot be written, log a warning."""
    entry = {"costs": asdict(costs), "plans": plans, "date": today()}

    def changed(old: str | None) -> str:
        entries = (_entries_in(old or "") or {}) | {_key(device, runtime): entry}
        return json.dumps({"format": FORMAT, FIELD: entries}, indent=1)

    try:
        rewrite(file(), changed)
    except OSError as error:
        warn_unkept(file(), error, "the measured constants are not kept")
    forget()


def forget() -> None:
    """Read the file anew at the next look: another process may have measured."""
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
        text = file().read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found = _entries_in(text)
    if found is None:
        advice = "holds no valid constants: 'python -m clgemm tune' measures them again"
        warn_once(f"{file()} {advice}")
    return found or {}


def _entries_in(text: str) -> dict[str, Any] | None:
    """Return the entries in a file's text, unchecked; None if the file is broken."""
    try:
        whole = json.loads(text)
        return dict(whole[FIELD]) if whole["format"] == FORMAT else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _parsed(entry: Any) -> MeasuredCosts | None:
    """Return an entry of the file; None if it lacks constants, has others, or bad ones."""
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
