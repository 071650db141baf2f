"""What trials in child processes find of devices: what works, what is built, what launches cost.

Each verdict is a file in the cache folder. A success holds for a device, its driver and the
kernels. A failure holds for one day and for the environment that it was found in, and is read again
then.

The constants of expected times are kept in the same way, by device and runtime.
`clgemm.trials.calibration` measures them. Until then a GPU has those of an H200; a CPU has those of
one that is known.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from clgemm.core.cache import recall, remember, remembered
from clgemm.core.costs import Costs, CpuCosts
from clgemm.core.plan import Step
from clgemm.kernels import FAMILIES
from clgemm.kernels.sources import sources_hash
from clgemm.records.tuned import kernels_hash, today

MOST_REASON, MOST_DETAILS = 300, 4000  # characters
LARGE_GRID = 2**16  # work-items from which on PoCL compiles a kernel anew
# Variables of the environment by whose values a runtime may fail, by the beginnings of their names.
RELEVANT = ("PATH", "LD_", "OCL_", "OPENCL_", "POCL_", "CL_", "CUDA_", "RUSTICL_")
KINDS: tuple[type[Costs | CpuCosts], ...] = (Costs, CpuCosts)
SMALLEST, LARGEST = 1e-12, 1e15  # of sensible constants


class Verdict(NamedTuple):
    """The result of a trial."""

    reason: str = ""  # why it failed, in one line; empty if it succeeded
    details: str = ""  # more about the reason, such as the compiler's log
    # Of a device: whether kernels take addresses of host memory in place of buffers.
    addresses: bool = False
    # Of an integrated GPU: whether it uses the host's memory in place.
    in_place: bool = False


# Verdicts and programs that this process has heard of: it needs no disk for them.
_verdicts: dict[str, Verdict] = {}
_built: set[str] = set()


def forget() -> None:
    """Read all verdicts from the disk again."""
    _verdicts.clear()
    _built.clear()


def about_device(where: str) -> str:
    """Return the key of the verdict whether a device works.

    Parameters
    ----------
    where : str
        The device, as `clgemm.hardware.device.where` returns it.
    """
    return f"{where}: works, kernels {_all_kernels()}"


@functools.cache
def _all_kernels() -> str:
    names = sorted(family.name for family in FAMILIES if not family.instructions)
    return hashlib.sha256("".join(map(kernels_hash, names)).encode()).hexdigest()[:16]


def about_host_memory(where: str) -> str:
    """Return the key of the verdict on a GPU's trial in the host's memory, if that crashed."""
    return f"{where}: host memory in place"


def about_family(where: str, family: str, scope: str) -> str:
    """Return the key of the verdict on a family's kernels.

    Parameters
    ----------
    scope : str
        As `Family.scope` returns it.
    """
    digest = hashlib.sha256(scope.encode()).hexdigest()[:16]
    return f"{where}: {family} {digest}, kernels {kernels_hash(family)}"


def has_rejected(family: str) -> bool:
    """Return whether this process knows of a trial of a family that has failed, on any device."""
    about = f": {family} "
    return any(verdict.reason and about in key for key, verdict in tuple(_verdicts.items()))


def about_instructions(where: str, name: str) -> str:
    """Return the key of the verdict on instructions beyond OpenCL C."""
    return f"{where}: instructions {name}"


def is_rejected(key: str) -> bool:
    """Return whether a trial has failed."""
    return (verdict := known(key)) is not None and bool(verdict.reason)


def known(key: str) -> Verdict | None:
    """Return the verdict of a key, from memory or disk; None if there is none that is valid."""
    if (found := _verdicts.get(key)) is None and (found := _read(key)) is not None:
        _verdicts[key] = found
    return found


def store(key: str, verdict: Verdict, keep: bool = True) -> None:
    """Store a verdict for this process, and on disk for later ones unless `keep` is false."""
    reason = verdict.reason
    if len(reason) > MOST_REASON:
        reason = reason[: MOST_REASON - 3] + "..."
    verdict = verdict._replace(reason=reason, details=verdict.details[-MOST_DETAILS:])
    _verdicts[key] = verdict
    if keep:
        remember(key, verdict._asdict() | ({"valid": _valid()} if reason else {}))


def discard(where: str) -> None:
    """Delete the verdicts on a device and on its kernels."""
    for key, entry in remembered(f"{where}: "):
        if isinstance(entry, Mapping):
            remember(key, None)
    for key in [key for key in _verdicts if key.startswith(f"{where}: ")]:
        del _verdicts[key]


def _read(key: str) -> Verdict | None:
    entry = recall(key)
    if not isinstance(entry, Mapping):
        return None
    values: Any = (entry.get(name) for name in Verdict._fields)
    found = Verdict(*values)
    if [type(value) for value in found] != [str, str, bool, bool]:
        return None
    return None if found.reason and entry.get("valid") != _valid() else found


def _valid() -> str:
    """Return for what a failure holds: today, and this environment."""
    chosen = sorted(item for item in os.environ.items() if item[0].startswith(RELEVANT))
    return f"{today()}, environment {hashlib.sha256(repr(chosen).encode()).hexdigest()[:16]}"


def program_keys(where: str, steps: Iterable[Step], limit: int) -> frozenset[str]:
    """Return the keys of the programs that launches need, as some drivers compile them."""
    return frozenset(
        f"{where}: {step.config} {step.conditional} {step.groups * step.config.items >= limit}, "
        f"kernels {sources_hash(type(step.config))}"
        for step in steps
    )


def are_built(keys: Iterable[str]) -> bool:
    """Return whether programs are in the caches on disk, as far as a trial has recorded it."""
    for key in keys:
        if key not in _built:
            if recall(key) is not True:
                return False
            _built.add(key)
    return True


def learn_built(keys: Iterable[str], keep: bool = True) -> None:
    """Record that programs are in the caches on disk."""
    for key in keys:
        if key not in _built:
            _built.add(key)
            if keep:
                remember(key, True)


class MeasuredCosts(NamedTuple):
    """The constants of a device, the number of plans that they were fitted to, and the date."""

    costs: Costs | CpuCosts
    plans: int
    date: str


def measured_costs(device: str, runtime: str) -> MeasuredCosts | None:
    """Return the constants of a device, by its name and its runtime's; None if there are none."""
    return _parsed_costs(recall(_costs_key(device, runtime)))


def keep_costs(device: str, runtime: str, costs: Costs | CpuCosts, plans: int) -> None:
    """Store constants; if the cache folder cannot be written, log a warning."""
    entry = {"costs": asdict(costs), "plans": plans, "date": today()}
    remember(_costs_key(device, runtime), entry)


def _costs_key(device: str, runtime: str) -> str:
    return f"expected times, {device}, {runtime}"


def _parsed_costs(entry: Any) -> MeasuredCosts | None:
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
