"""The choice of the record that serves a device, a family and a shape class."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from clgemm.core.caches import forgettable
from clgemm.core.identity import Identity
from clgemm.core.shapes import SHAPE_CLASSES
from clgemm.hardware.device import Device
from clgemm.hardware.identity import identify
from clgemm.kernels import family_named
from clgemm.kernels.common.choice import Choice
from clgemm.kernels.common.family import Family
from clgemm.planning.validation import validated
from clgemm.records.lookup import Served, candidates
from clgemm.records.verdicts import verdict_on

__all__ = ["serving", "tuned"]


@forgettable
@functools.lru_cache(maxsize=1024)
def tuned(device: Device, family: str, name: str, default: Choice | None = None) -> Choice | None:
    """Return the choice of the nearest validated record, or None if there is none.

    A record from another device is validated before its first use, which takes seconds. If its
    choice is the default, it needs no validation.
    """
    who = identify(device)
    for record, _, is_proven in candidates(who, device.limits, family, name):
        if is_proven or record.choice == default or validated(device, record.choice):
            return record.choice
    return None


def serving(device: Device, families: Iterable[Family[Any, Any]]) -> dict[str, dict[str, str]]:
    """Return the origin of a device's configs, by shape class and kernel family."""
    who = identify(device)
    found: dict[str, dict[str, str]] = {}
    for name in SHAPE_CLASSES:
        for family in families:
            if name in family.samples(device.kind):
                known = next(candidates(who, device.limits, family.name, name), None)
                found.setdefault(name, {})[family.name] = _origin(device, who, known)
    return found


def _origin(device: Device, who: Identity, served: Served | None) -> str:
    if served is None:
        return "default"
    record = served.record
    family = family_named(record.family)
    defaults = (family.defaults(shape, device.traits)[0] for shape in record.shapes)
    is_default = all(default == record.choice for default in defaults)
    verdict = True if served.validated or is_default else verdict_on(who, record.choice)
    doubt = {
        True: "",
        None: "; not validated yet",
        False: "; wrong results here, so the next nearest record is used",
    }
    speeds = ", ".join(f"{gflops:.4g}" for gflops in served.record.gflops)
    return f"{served.origin}, {speeds} GFLOP/s{doubt[verdict]}"
