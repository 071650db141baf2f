"""Tuning records as JSON: reading, checking and writing them.

A record holds numbers and names. Its config is built by the family's dataclass, which checks names,
types and constraints. Nothing else in a record reaches a compiler. Pure.
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, NamedTuple, TypeVar

from clgemm.core.config import KernelConfig
from clgemm.core.problem import SHAPE_CLASSES, Shape
from clgemm.core.traits import Identity, Limits
from clgemm.kernels import FAMILIES, family_named
from clgemm.kernels.common.family import Choice
from clgemm.kernels.sources import sources_hash

__all__ = [
    "Findings",
    "Record",
    "as_json",
    "choice_as_dict",
    "choice_from",
    "findings_from",
    "kernels_hash",
    "problems_of",
    "today",
]

FORMAT = 1
LARGEST = 2**20  # the largest number in a config; sensible ones are far below
Config = TypeVar("Config", bound=KernelConfig)


@dataclass(frozen=True)
class Record:
    """The fastest choice found for a device, a kernel family and a shape class.

    Attributes
    ----------
    kernels : str
        The family's `kernels_hash` when it was measured.
    shapes : tuple of Shape
        The shapes that it was measured on.
    gflops : tuple of float
        Billions of operations per second for each of `shapes`, with operands on the device.
    """

    device: Identity
    family: str
    shape_class: str
    choice: Choice
    shapes: tuple[Shape, ...]
    gflops: tuple[float, ...]
    kernels: str
    date: str

    @property
    def key(self) -> tuple[str, str]:
        """Family and shape class: a file holds one record for each such pair."""
        return self.family, self.shape_class


class Findings(NamedTuple):
    """The valid records of a file, and the problems of the others.

    Attributes
    ----------
    unreadable : bool
        Whether the file as a whole cannot be read.
    """

    records: tuple[Record, ...]
    problems: tuple[str, ...]
    unreadable: bool = False


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
    names = sorted(known.name for known in FAMILIES)
    if not isinstance(family, str) or family not in names:
        raise ValueError(f"family={family!r} is not one of {names}")
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
    except ValueError as error:
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


def _shape_class(values: Mapping[str, object]) -> str:
    if (name := _text(values, "shape_class")) not in SHAPE_CLASSES:
        raise ValueError(f"shape_class={name!r} is not one of {SHAPE_CLASSES}")
    return name


def _date(values: Mapping[str, object]) -> str:
    return datetime.date.fromisoformat(_text(values, "date")).isoformat()


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
    return Record(
        device=_identity_from(values["device"]),
        family=values["family"],
        shape_class=_shape_class(values),
        choice=choice_from(values["family"], values["config"], values["pack"]),
        shapes=shapes,
        gflops=gflops,
        kernels=_text(values, "kernels"),
        date=_date(values),
    )
