"""Crossovers: the measured sizes from which on the device is faster than the host.

They are stored in a file beside the tuning records, separately for each device, driver, host, NumPy
and number of BLAS threads. `clgemm.accel.crossover` measures them.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from clgemm.core.cache import cache_folder, keep_entry, read_entries
from clgemm.core.caches import forgettable, on_forget
from clgemm.core.host_blas import blas_threads
from clgemm.hardware.device import Device
from clgemm.hardware.identity import identify
from clgemm.records.record import today

__all__ = [
    "LEAST_WORK",
    "Crossovers",
    "Kind",
    "Measured",
    "Work",
    "file",
    "forget",
    "is_complete",
    "keep",
    "kind_of",
    "kinds",
    "measured",
    "on_change",
    "pays",
    "smallest",
]

Kind: TypeAlias = str
# Multiply-adds by kind of product. None: the host won even the largest product that was tried. A
# kind that is not in the mapping has not been measured.
Crossovers: TypeAlias = Mapping[Kind, "int | None"]

FIELD = "measured"
FORMAT = 2  # in 1, a CPU device was measured right after the host, whose threads spun
LEAST_WORK = 160**3  # multiply-adds; in a smaller product, launch and transfers take longer
BANDS = (32, 128, 512)  # lower bounds of the shortest side; kinds of products differ by these
_dependents: list[Callable[[], object]] = []


class Work(NamedTuple):
    """The sizes of a product, for the choice between host and device.

    Attributes
    ----------
    m, n, k, matrices : int
        `matrices` products of m x k by k x n.
    symmetric : bool
        Whether it is a matrix times its own transpose. NumPy computes this in half the time, with
        a result that is symmetric bit for bit.
    """

    m: int
    n: int
    k: int
    matrices: int = 1
    symmetric: bool = False

    @property
    def size(self) -> int:
        """Multiply-adds."""
        return self.m * self.n * self.k * self.matrices


class Measured(NamedTuple):
    """The crossovers of a device, and the date of the last measurement."""

    least: Crossovers
    date: str


def kinds() -> tuple[Kind, ...]:
    """Return all kinds of products. Each has its own crossover."""
    bands = [f"{name}-{band}" for band in BANDS[:-1] for name in ("narrow", "shallow", "stack")]
    return (*bands, "block", "symmetric")


def kind_of(work: Work) -> Kind | None:
    """Return the kind of a product; None if its sides are too short for any device.

    A device wins if it computes enough with each element that it receives. The shortest side bounds
    how often an element is used.
    """
    m, n, k, matrices, symmetric = work
    shortest = min(m, n, k)
    band = max((least for least in BANDS if shortest >= least), default=None)
    if band is None:
        return None
    if symmetric:
        return "symmetric" if matrices == 1 and band == BANDS[-1] else None
    if matrices > 1 and band < BANDS[-1]:
        return f"stack-{band}"
    if band == BANDS[-1]:
        return "block"
    return f"{'shallow' if k == shortest else 'narrow'}-{band}"


def pays(work: Work, least: Crossovers, sent: float = 1.0) -> bool | None:
    """Tell whether a device with these crossovers should make a product.

    None if its kind has not been measured. A product of no kind stays on the host once all kinds
    have been measured.

    Parameters
    ----------
    sent : float, optional
        The share of the operands' and the result's elements that move between the host and the
        device. The crossover shrinks with it: where transfers take most of the time, so does the
        time on the device.
    """
    kind = kind_of(work)
    if kind is None or kind not in least:
        return False if kind is None and is_complete(least) else None
    from_here = least[kind]
    return from_here is not None and work.size >= from_here * sent


def is_complete(least: Crossovers) -> bool:
    """Tell whether every kind has been measured."""
    return set(least) == set(kinds())


def measured(device: Device) -> Measured | None:
    """Return the crossovers of a device, measured with this driver and as many BLAS threads.

    None if no kind has been measured.
    """
    # To count the threads takes 1 us, and most machines have no file of crossovers.
    return _measured(device, blas_threads()) if _entries() else None


@forgettable
@functools.lru_cache(maxsize=64)
def _measured(device: Device, threads: int) -> Measured | None:
    return _parsed(_entries().get(_key(device, threads)))


@forgettable
@functools.cache
def smallest(otherwise: int) -> int:
    """Return the smallest crossover of any device of this host, or `otherwise` if that is smaller.

    This opens no device and ignores the number of BLAS threads.
    """
    found = [
        entry.least
        for key, values in _entries().items()
        if f", on {_host()}, " in key and (entry := _parsed(values)) is not None
    ]
    return min([otherwise, *(x for least in found for x in least.values() if x is not None)])


def keep(device: Device, least: Crossovers) -> None:
    """Store measured crossovers; if the file cannot be written, log a warning.

    Kinds that are not in `least` keep what is stored. This process uses the stored crossovers at
    once.
    """

    def known(entry: object) -> dict[str, Any]:
        before = _parsed(entry)
        return {"least": {**(before.least if before else {}), **least}, "date": today()}

    key = _key(device, blas_threads())
    keep_entry(file(), FIELD, FORMAT, key, known, "the crossovers are not kept")
    forget()


def forget() -> None:
    """Clear the caches, so that the file is read again, and what depends on it."""
    for cached in (_measured, smallest, _entries):
        cached.cache_clear()
    for clear in _dependents:
        clear()


def on_change(clear: Callable[[], object]) -> None:
    """Register a function that clears what depends on the measured crossovers."""
    _dependents.append(clear)
    on_forget(clear)


def file() -> Path:
    """Return the path of the file with the crossovers; it need not exist."""
    return cache_folder() / "tuning" / "crossovers.json"


def _host() -> str:
    return f"{platform.node()}, NumPy {np.__version__}"


def _key(device: Device, threads: int) -> str:
    who, units = identify(device), device.limits.compute_units  # a part of a device has fewer
    about = f"{who.name}, {units} compute units, {who.platform}, driver {who.driver}"
    return f"{about}, on {_host()}, BLAS threads: {threads}"


@forgettable
@functools.cache
def _entries() -> dict[str, Any]:
    advice = (
        "holds no valid crossovers: the default crossovers are used until "
        "'python -m clgemm.accel --measure' writes the file again"
    )
    return read_entries(file(), FIELD, FORMAT, advice)


def _parsed(entry: object) -> Measured | None:
    """Return an entry of the file as `Measured`; None if it is not valid.

    A user may have edited the file.
    """
    if not isinstance(entry, dict):
        return None
    least, date = entry.get("least"), entry.get("date")
    if not isinstance(least, dict) or not isinstance(date, str):
        return None
    if not least or not set(least) <= set(kinds()):
        return None
    if not all(x is None or (type(x) is int and x > 0) for x in least.values()):
        return None
    return Measured(least, date)
