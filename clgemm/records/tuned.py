"""Tuning records: their files, this user's and shipped ones, and which serve a device. Pure.

A record holds numbers and names. Its config is built by the family's dataclass, which checks names,
types and constraints. Nothing else in a record reaches a compiler. The user's cache folder has one
file for each device; shipped files come with the package.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from clgemm.core.cache import cache_folder, folder_problem, forgettable, rewrite, warn_once
from clgemm.core.config import KernelConfig
from clgemm.core.problem import SHAPE_CLASSES, Shape
from clgemm.core.traits import Identity, Limits
from clgemm.kernels import NAMED, family_named
from clgemm.kernels.common.family import Choice
from clgemm.kernels.sources import sources_hash

log = logging.getLogger(__name__)

FORMAT = 1
OWN, SHIPPED = "this user's", "shipped"
LARGEST = 2**20  # the largest number in a config; sensible ones are far below
Config = TypeVar("Config", bound=KernelConfig)


@dataclass(frozen=True)
class Record:
    """The fastest choice found for a device, a kernel family and a shape class."""

    device: Identity
    family: str
    shape_class: str
    choice: Choice
    shapes: tuple[Shape, ...]  # those that it was measured on
    # Billions of operations per second for each of `shapes`, with operands on the device.
    gflops: tuple[float, ...]
    kernels: str  # the family's `kernels_hash` when it was measured
    date: str

    @property
    def key(self) -> tuple[str, str]:
        """Family and shape class: a file holds one record for each such pair."""
        return self.family, self.shape_class


class Findings(NamedTuple):
    """The valid records of a file, and the problems of the others."""

    records: tuple[Record, ...]
    problems: tuple[str, ...]
    unreadable: bool = False  # whether the file as a whole cannot be read


class Served(NamedTuple):
    """A record that may serve a device, and where it comes from."""

    record: Record
    origin: str
    # Whether its config is validated on this device, driver and kernels. Others are validated
    # before their first use.
    validated: bool


def today() -> str:
    """Return today's date in the format of records."""
    return datetime.date.today().isoformat()


@functools.cache
def kernels_hash(family: str) -> str:
    """Return the hash of all sources that a family's products are compiled from."""
    return sources_hash(family_named(family).config)


def problems_of(choice: Choice, limits: Limits | None = None) -> list[str]:
    """Return the constraints that a choice breaks, those of a device included."""
    return list(family_named(choice.config.family).problems(choice, limits))


def config_from(kind: type[Config], values: object) -> Config:
    """Return the config that a mapping of its fields describes.

    Raises
    ------
    ValueError
        If a field is missing, unknown, of another type or out of bounds, or if the config breaks a
        constraint of the family.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{values!r} is not a config")
    known = {field.name: field for field in fields(kind)}
    needed = {name for name, field in known.items() if field.default is MISSING}
    if wrong := (set(values) - set(known)) | (needed - set(values)):
        raise ValueError(f"{sorted(map(str, wrong))} are missing or unknown in {kind.family}")
    for name, value in values.items():
        if type(value).__name__ != known[name].type:
            raise ValueError(f"{name}={value!r} is not of type {known[name].type}")
        if not 0 <= value <= LARGEST:
            raise ValueError(f"{name}={value} is not between 0 and {LARGEST}")
    config = kind(**values)
    if found := list(config.problems()):
        raise ValueError(f"{config}: " + "; ".join(found))
    return config


def choice_from(family: object, config: object, pack: object) -> Choice:
    """Return the choice that a family's name and mappings describe.

    Raises
    ------
    ValueError
        If there is no such family, or if the configs do not fit it.
    """
    if not isinstance(family, str) or family not in NAMED:
        raise ValueError(f"family={family!r} is not one of {sorted(NAMED)}")
    known, packs = family_named(family), None
    made = config_from(known.config, config)
    if known.packs:
        if not isinstance(pack, Sequence) or len(pack) != len(known.packs):
            raise ValueError(f"pack={pack!r} is not a list of {len(known.packs)} packing configs")
        pairs = zip(known.packs, pack, strict=True)
        packs = tuple(config_from(kind, each) for kind, each in pairs)
    elif pack is not None:
        raise ValueError(f"{family} packs nothing, but pack={pack!r}")
    choice = Choice(made, packs)
    if found := problems_of(choice):
        raise ValueError("; ".join(found))
    return choice


def choice_as_dict(choice: Choice) -> dict[str, Any]:
    """Return a choice as the arguments of `choice_from`, for JSON."""
    packs = None if choice.pack is None else [asdict(pack) for pack in choice.pack]
    return {"family": choice.config.family, "config": asdict(choice.config), "pack": packs}


def as_json(records: Sequence[Record]) -> str:
    """Return the text of a file of these records."""
    whole = {
        "format": FORMAT,
        "records": [
            {
                "device": record.device._asdict(),
                "shape_class": record.shape_class,
                **choice_as_dict(record.choice),
                "shapes": [list(shape) for shape in record.shapes],
                "gflops": [float(f"{gflops:.4g}") for gflops in record.gflops],
                "kernels": record.kernels,
                "date": record.date,
            }
            for record in records
        ],
    }
    return json.dumps(whole, indent=1) + "\n"


def findings_from(text: str) -> Findings:
    """Return the records in a file's text. Malformed ones become problems, never exceptions."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Findings((), (f"it is not JSON: {error}",), True)
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        return Findings((), (f"it is not in format {FORMAT}",), True)
    problems: list[str] = []

    def made(number: int, item: object) -> Record | None:
        try:
            return _record_from(item)
        except KeyError as error:
            problems.append(f"record {number} has no {error}")
        except (ValueError, TypeError, AttributeError) as error:
            problems.append(f"record {number}: {error}")
        return None

    items = whole.get("records", [])
    found = [made(*item) for item in enumerate(items if isinstance(items, list) else [items])]
    return Findings(tuple(record for record in found if record is not None), tuple(problems))


def _text(values: Mapping[str, object], name: str) -> str:
    if not isinstance(value := values[name], str):
        raise ValueError(f"{name}={value!r} is not a string")
    return value


def _identity_from(values: object) -> Identity:
    if not isinstance(values, Mapping):
        raise ValueError(f"{values!r} is not a device")
    if set(values) != set(Identity._fields):
        raise ValueError(f"a device has {Identity._fields}, not {sorted(values)}")
    return Identity(**{name: _text(values, name) for name in Identity._fields})


def _record_from(values: object) -> Record:
    if not isinstance(values, Mapping):
        raise ValueError(f"{values!r} is not a record")
    sizes, speeds = values["shapes"], values["gflops"]
    listed = isinstance(sizes, list) and isinstance(speeds, list)
    if not listed or not all(isinstance(shape, list) and len(shape) in (3, 4) for shape in sizes):
        raise ValueError(f"shapes={sizes!r} and gflops={speeds!r} are not two lists")
    shapes, gflops = tuple(Shape(*shape) for shape in sizes), tuple(speeds)
    if not all(type(size) is int and size > 0 for shape in shapes for size in shape):
        raise ValueError(f"shapes={sizes} are not of whole numbers above 0")
    numbers = all(type(x) in (int, float) and 0 < x < float("inf") for x in gflops)
    if not shapes or len(shapes) != len(gflops) or not numbers:
        raise ValueError(f"gflops={speeds} are not one positive number for each of shapes={sizes}")
    device = _identity_from(values["device"])
    if (shape_class := values["shape_class"]) not in SHAPE_CLASSES:
        raise ValueError(f"shape_class={shape_class!r} is not one of {SHAPE_CLASSES}")
    return Record(
        device=device,
        family=values["family"],
        shape_class=shape_class,
        choice=choice_from(values["family"], values["config"], values["pack"]),
        shapes=shapes,
        gflops=gflops,
        kernels=_text(values, "kernels"),
        date=datetime.date.fromisoformat(_text(values, "date")).isoformat(),
    )


def user_file(device: Identity) -> Path:
    """Return the file of a device's records in the user's cache folder; it need not exist."""
    slug = re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")[:48]
    digest = hashlib.sha256(f"{device.name}, {device.platform}".encode()).hexdigest()[:8]
    return cache_folder() / "tuning" / f"{slug}-{digest}.json"


def candidates(device: Identity, limits: Limits, family: str, name: str) -> Iterator[Served]:
    """Yield the records that may serve a kernel family and shape class on a device, best first.

    Those found on this device come first, with its driver before those with another one. Those for
    devices of the same architecture, vendor and type follow in this order. Of equals, this user's
    come before those that are shipped. Records for CPUs serve only CPUs with the same vector
    extension and runtime. Records that the device cannot run are left out.
    """
    key, ranked = (family, name), []
    for number, records in enumerate((own_records(device), shipped().records)):
        for record in records:
            if record.key == key and not problems_of(record.choice, limits):
                rank = _distance(record.device, device)
                if rank is not None:
                    is_new = record.device != device or record.kernels != kernels_hash(family)
                    ranked.append(((rank[0], is_new, number, *rank[1:]), record))
    relations = ("this device", "this device", "same architecture", "same vendor", "same type")
    for (distance, is_new, number, *_), record in sorted(ranked, key=lambda pair: pair[0]):
        origin = (OWN, SHIPPED)[number]
        if number or distance > 1:
            origin += f", {relations[distance]}: {record.device.name}"
        elif distance:
            origin += f", driver {record.device.driver}"
        yield Served(record, f"{origin}, {record.date}", not is_new)


def own_records(device: Identity) -> tuple[Record, ...]:
    """Return what this user has found on a device, with any driver, or imported for it."""
    return _user_records(user_file(device))


def take_over(device: Identity, records: Sequence[Record]) -> list[Record]:
    """Store records of others for a device, and return them. They are tried before their first use.

    Left out are those of devices that are too different, and those of a family and class for which
    this user has found one.

    Raises
    ------
    OSError
        If the file cannot be written; it is then unchanged.
    """
    found_here = {record.key for record in own_records(device) if record.device == device}
    taken: dict[tuple[str, str], Record] = {}
    near = ((_distance(record.device, device), record) for record in records)
    ranked = [(rank, record) for rank, record in near if rank is not None]
    for _, record in sorted(ranked, key=lambda pair: pair[0]):
        if record.key not in found_here:
            taken.setdefault(record.key, record)
    if taken:
        store(device, *taken.values())
    return list(taken.values())


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
    _user_records.cache_clear()


@functools.cache
def shipped() -> Findings:
    """Return the records that come with the package."""
    folder = resources.files("clgemm").joinpath("records", "shipped")
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    found = [findings_from(file.read_text(encoding="utf-8")) for file in files]
    return Findings(
        tuple(record for each in found for record in each.records),
        tuple(problem for each in found for problem in each.problems),
    )


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
def _user_records(path: Path) -> tuple[Record, ...]:
    """Return the records of a user's file. One warning names those that are not used."""
    found = _read(path)
    if found.unreadable:
        log.warning(
            "%s holds no tuning records that can be read (%s): shipped records and defaults are "
            "used instead; 'python -m clgemm tune' writes it anew",
            *(path, found.problems[0]),
        )
    elif problems := found.problems:
        log.warning(
            "%s: %d of its records are not used (%s); 'python -m clgemm tune' finds new ones",
            *(path, len(problems), "; ".join(problems[:3]) + "; ..." * (len(problems) > 3)),
        )
    return found.records


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
