"""Look-up and storage of records: the user's own, shipped ones, those of similar devices.

The user's cache folder has one file for each device. Shipped files come with the package.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from clgemm.core.cache import cache_folder, folder_problem, forgettable, rewrite, warn_once
from clgemm.core.traits import Identity, Limits
from clgemm.records.record import (
    Findings,
    Record,
    as_json,
    findings_from,
    kernels_hash,
    problems_of,
)

__all__ = ["Served", "candidates", "forget", "shipped", "store", "user_file"]

log = logging.getLogger(__name__)

OWN, SHIPPED = "this user's", "shipped"
FOLDER = "tuning"


class Served(NamedTuple):
    """A record that may serve a device, and where it comes from.

    Attributes
    ----------
    validated : bool
        Whether its config is validated on this device, driver and kernels. Others are validated
        before their first use.
    """

    record: Record
    origin: str
    validated: bool


def user_file(device: Identity) -> Path:
    """Return the file of a device's records in the user's cache folder; it need not exist."""
    slug = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")[:48]
    digest = hashlib.sha256(f"{device.name}, {device.platform}".encode()).hexdigest()[:8]
    return cache_folder() / FOLDER / f"{slug}-{digest}.json"


def candidates(device: Identity, limits: Limits, family: str, name: str) -> Iterator[Served]:
    """Yield the records that may serve a kernel family and shape class on a device, best first.

    This user's records for this device, driver and kernels come first, then shipped records for
    this device. Those for devices of the same architecture, vendor and type follow in this order.
    Records for CPUs serve only CPUs with the same vector extension and runtime. Records that the
    device cannot run are left out.
    """
    key = family, name
    for record in _user_records(user_file(device), device).records:
        if record.key == key and not problems_of(record.choice, limits):
            yield Served(record, f"{OWN}, {record.date}", True)
    ranked = []
    for record in shipped().records:
        if record.key == key and not problems_of(record.choice, limits):
            rank = _distance(record.device, device)
            if rank is not None:
                ranked.append((rank, record))
    for (distance, *_), record in sorted(ranked, key=lambda pair: pair[0]):
        same = record.device == device and record.kernels == kernels_hash(family)
        relations = ("this device", "this device", "same architecture", "same vendor", "same type")
        origin = f"{SHIPPED}, {relations[distance]}: {record.device.name}, {record.date}"
        yield Served(record, origin, same)


def store(device: Identity, *new: Record) -> None:
    """Store records in the user's file. Each replaces the one of the same family and class.

    Raises
    ------
    OSError
        If the file cannot be written; it is then unchanged.
    """
    path = user_file(device)

    def merged(old: str | None) -> str:
        before = findings_from(old) if old else Findings((), ())
        if before.problems:
            broken, problems = path.with_suffix(".broken"), "; ".join(before.problems)
            rewritten = "%s: %s; the file is written anew, the old one is kept as %s"
            log.warning(rewritten, path, problems, broken)
            broken.write_text(old or "", encoding="utf-8")
        keys = {record.key for record in new}
        records = [*(r for r in before.records if r.key not in keys), *new]
        return as_json(sorted(records, key=lambda r: r.key))

    rewrite(path, merged)
    forget()


def forget() -> None:
    """Read all files anew at the next look-up."""
    _read.cache_clear()
    _user_records.cache_clear()


@functools.cache
def shipped() -> Findings:
    """Return the records that come with the package."""
    folder = resources.files("clgemm").joinpath("records", "shipped")
    if not folder.is_dir():
        return Findings((), ())
    found = [
        findings_from(file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".json")
    ]
    return Findings(
        tuple(record for each in found for record in each.records),
        tuple(problem for each in found for problem in each.problems),
    )


@forgettable
@functools.cache
def _read(path: Path) -> Findings:
    try:
        return findings_from(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Findings((), ())
    except UnicodeDecodeError:
        return Findings((), ("it is not UTF-8 text",), True)
    except OSError as error:
        if problem := folder_problem():
            warn_once(f"{problem}: nothing is kept between runs")
            return Findings((), ())
        return Findings((), (error.strerror or str(error),), True)


@forgettable
@functools.cache
def _user_records(path: Path, device: Identity) -> Findings:
    """Return this user's records for a device, its driver and the present kernels.

    One warning names the records that are not used.
    """
    found = _read(path)
    problems = list(found.problems)
    current = []
    for record in found.records:
        if record.device != device:
            problems.append(f"{record.key} was found with driver {record.device.driver}")
        elif record.kernels != kernels_hash(record.family):
            problems.append(f"{record.key} was found with other kernels")
        else:
            current.append(record)
    if found.unreadable:
        log.warning(
            "%s holds no tuning records that can be read (%s): shipped records and defaults are "
            "used instead; 'python -m clgemm tune' writes it anew",
            *(path, problems[0]),
        )
    elif problems:
        log.warning(
            "%s: %d of its records are not used (%s); 'python -m clgemm tune' finds new ones",
            *(path, len(problems), "; ".join(problems[:3]) + "; ..." * (len(problems) > 3)),
        )
    return Findings(tuple(current), tuple(problems))


def _distance(theirs: Identity, device: Identity) -> tuple[int, bool, bool, str] | None:
    """Return how far a record's device is from this one, for sorting; None if too far."""
    if theirs.kind != device.kind:
        return None
    other_runtime, other_driver = theirs.runtime != device.runtime, theirs.driver != device.driver
    other_architecture = theirs.architecture != device.architecture
    if device.kind == "CPU" and (other_architecture or other_runtime):
        return None  # a config that is fast with one compiler is slow with another
    if not other_architecture:
        same = theirs.name == device.name and not other_runtime
        distance = int(other_driver) if same else 2
    else:
        distance = 3 if theirs.vendor == device.vendor else 4
    return distance, other_runtime, other_driver, theirs.driver
