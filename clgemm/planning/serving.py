"""The choice of the record that serves a device, a family and a shape class."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from clgemm.core.cache import forgettable
from clgemm.core.problem import SHAPE_CLASSES
from clgemm.hardware.device import Device, identify, where
from clgemm.kernels import family_named
from clgemm.kernels.common.family import Choice, Family
from clgemm.records.tuned import Record, Served, candidates
from clgemm.records.verdicts import about_family, is_rejected, known

__all__ = ["serving", "tuned"]


@forgettable
@functools.lru_cache(maxsize=1024)
def tuned(device: Device, family: str, name: str, default: Choice | None = None) -> Choice | None:
    """Return the choice of the nearest record that no trial has rejected, or None.

    The choice of a record from another device is tried before its first use.
    """
    for record, *_ in candidates(identify(device), device.limits, family, name):
        if record.choice == default or not is_rejected(_about(device, record)):
            return record.choice
    return None


def _about(device: Device, record: Record) -> str:
    """Return the key of the verdict on a record's choice."""
    return about_family(where(device), record.family, repr(record.choice))


def serving(device: Device, families: Iterable[Family[Any, Any]]) -> dict[str, dict[str, str]]:
    """Return the origin of a device's configs, by shape class and kernel family."""
    who = identify(device)
    found: dict[str, dict[str, str]] = {}
    for name in SHAPE_CLASSES:
        for family in families:
            if name in family.samples(device.kind):
                best = next(candidates(who, device.limits, family.name, name), None)
                found.setdefault(name, {})[family.name] = _origin(device, best)
    return found


def _origin(device: Device, served: Served | None) -> str:
    if served is None:
        return "default"
    record = served.record
    family = family_named(record.family)
    defaults = (family.defaults(shape, device.traits)[0] for shape in record.shapes)
    is_default = all(default == record.choice for default in defaults)
    doubt = ""
    if not (served.validated or is_default):
        verdict = known(_about(device, record))
        if verdict is None:
            doubt = "; not validated yet"
        elif verdict.reason:
            doubt = "; wrong results here, so the next nearest record is used"
    speeds = ", ".join(f"{gflops:.4g}" for gflops in served.record.gflops)
    return f"{served.origin}, {speeds} GFLOP/s{doubt}"
