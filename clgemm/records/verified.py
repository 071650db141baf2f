"""Records of verification: which kernels were verified on which device.

The repository keeps them in its folder ``verified``, a file for each device. ``python -m clgemm
verify`` writes them, by default to the user's cache folder.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from clgemm.core.cache import kept_folder
from clgemm.core.traits import Identity, short_platform
from clgemm.records.tuned import kernels_hash

FORMAT = 1
COMMAND = "python -m clgemm verify"


@dataclass(frozen=True)
class Verified:
    """What was verified of one kernel family on one device."""

    device: Identity
    family: str
    kernels: str  # the `kernels_hash` when it was verified
    # For each precision: "products", "failures", and "worst", the largest error in units of the
    # bound.
    precisions: Mapping[str, Mapping[str, float]]
    date: str

    @property
    def passed(self) -> bool:
        """Whether products were computed and none of them was wrong."""
        counts = self.precisions.values()
        return bool(counts) and all(x["products"] and not x["failures"] for x in counts)

    @property
    def is_current(self) -> bool:
        """Whether the kernels are today's."""
        return self.kernels == kernels_hash(self.family)


def file_name(device: Identity) -> str:
    """Return the name of a device's file."""
    text = f"{device.name} {short_platform(device.platform)}".lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:96] + ".json"


def read(text: str) -> list[Verified]:
    """Return what a file's text says.

    Raises
    ------
    ValueError
        If it is no record of this format.
    """
    try:
        whole = json.loads(text)
        if whole["format"] != FORMAT:
            raise ValueError(f"format={whole['format']} is not {FORMAT}")
        device = Identity(**{name: str(whole["device"][name]) for name in Identity._fields})
        return list(_families(device, str(whole["date"]), whole["families"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no record of verification: {error!r}") from None


def _families(device: Identity, date: str, families: Mapping[str, Any]) -> Iterator[Verified]:
    for name, found in families.items():
        counts = {
            str(mode): {key: float(each[key]) for key in ("products", "failures", "worst")}
            for mode, each in found["precisions"].items()
        }
        yield Verified(device, str(name), str(found["kernels"]), counts, date)


def folder() -> Path | None:
    """Return the folder of the records: the package's, or that of the checkout it lies in."""
    package = Path(str(resources.files("clgemm")))
    places = package / "verified", package.parent / "verified"
    return next((place for place in places if place.is_dir()), None)


def own_folder() -> Path:
    """Return the folder for what this user has verified."""
    return kept_folder() / "verified"


@functools.cache
def all_verified(place: Path | None = None) -> tuple[Verified, ...]:
    """Return all records of a folder; by default the user's own ones, then the package's.

    Files that cannot be read are left out.
    """
    places = (own_folder(), folder()) if place is None else (place,)
    files = [file for each in places if each for file in sorted(each.glob("*.json"))]
    return tuple(record for file in files for record in _read_file(file))


def _read_file(file: Path) -> list[Verified]:
    try:
        return read(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []


def _relation(other: Identity, device: Identity) -> str:
    """Return in words what a verified device has in common with a device."""
    if other == device:
        return "this device"
    if other.name != device.name:
        return "the same architecture"
    names = sorted(Identity._fields, key=lambda name: name != "driver")
    differing = next(name for name in names if getattr(other, name) != getattr(device, name))
    return f"this device with another {differing}"


def verification(device: Identity, family: str, records: tuple[Verified, ...]) -> str:
    """Return in words whether a family's kernels are verified on a device, or on one like it."""
    ranked = []
    for record in records:
        other = record.device
        if record.family == family and record.passed and other.runtime == device.runtime:
            is_same = other.name == device.name
            if is_same or other.architecture == device.architecture:
                rank = record.is_current, is_same + (other == device), record.date
                ranked.append((rank, record))
    if not ranked:
        return "not verified"
    (is_current, _, date), best = max(ranked, key=lambda pair: pair[0])
    relation = _relation(best.device, device)
    if not is_current:
        return f"not verified: the kernels changed since {date} ({relation})"
    worst = max(counts["worst"] for counts in best.precisions.values())
    return f"verified on {relation}, {date}; largest error {worst:.2g} of the bound"
