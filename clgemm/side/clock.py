"""How long products take on either side: measured here, by call signature and by class. Pure.

Times are microseconds, transfers included. A signature that repeats has its own times. Others are
expected to compute as fast as the products of their class, or of the classes beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

KEPT = 5  # measurements
WORK_STEP = 4.0  # of classes: how many times as many multiply-adds the next one has
LONGEST_OPENING_S = 100.0
SIDES = (2, 8, 32, 128, 512)  # of classes: lower bounds of the shortest side


class Times:
    """The last times of one product on one side.

    Attributes
    ----------
    us : float
        What it takes, in microseconds; 0.0 if that is unknown.
    runs : int
        How often it was measured.
    """

    __slots__ = ("_last", "runs", "us")

    def __init__(self, us: float = 0.0) -> None:
        self.us, self.runs = us, 0
        self._last: list[float] = []

    def add(self, us: float) -> None:
        """Add a measurement. What disturbs one, such as another program, makes it longer."""
        last = self._last
        if len(last) == KEPT:
            del last[0]
        last.append(us)
        self.runs += 1
        self.us = min(last) if len(last) < 3 else sorted(last)[1]

    def add_bound(self, us: float) -> None:
        """Add an upper bound: a measurement while other products were computed."""
        if not self.us or us < self.us:
            self.add(us)


SizeClass = tuple[str, int, int]  # a kind, and the classes of work and of the shortest side


def size_class(kind: str, work: int, shortest: int) -> SizeClass:
    """Return the class of a product: others in it compute about as fast.

    Parameters
    ----------
    kind : str
        How NumPy computes it: by its BLAS or by loops of its own, for example.
    work : int
        Multiply-adds.
    shortest : int
        The shortest of m, n and k.
    """
    size = round(math.log(max(work, 1), WORK_STEP))
    return kind, size, sum(shortest >= least for least in SIDES)


class Rates:
    """How fast one side computes, in multiply-adds per microsecond, by class.

    Attributes
    ----------
    least_us : float
        The shortest time of any product in this program; 0.0 if none is known.
    """

    def __init__(self) -> None:
        self._rates: dict[SizeClass, list[float]] = {}
        self.least_us = 0.0

    def add(self, of: SizeClass, work: int, us: float) -> None:
        """Add a measurement."""
        rates = self._rates.setdefault(of, [])
        if len(rates) == KEPT:
            del rates[0]
        rates.append(work / max(us, 1e-3))
        self.least_us = min(self.least_us or us, us)

    def add_bound(self, of: SizeClass, work: int, us: float) -> None:
        """Add a lower bound: a measurement while something else was computed."""
        rates = self._rates.get(of)
        if not rates or work / max(us, 1e-3) > sorted(rates)[len(rates) // 2]:
            self.add(of, work, us)

    def us(self, of: SizeClass, work: int) -> float:
        """Return what a product is expected to take; 0.0 if no class near its own is known."""
        kind, size, side = of
        found = []
        for near, weight in ((0, 4.0), (-1, 1.0), (1, 1.0)):
            if rates := self._rates.get((kind, size + near, side)):
                found.append((weight, sorted(rates)[len(rates) // 2]))
        if not found:
            return 0.0
        total = sum(weight for weight, _ in found)
        rate = math.exp(sum(weight * math.log(each) for weight, each in found) / total)
        return work / rate

    @property
    def greatest(self) -> float:
        """The highest rate of any class; 0.0 if none is known."""
        return max((max(rates) for rates in self._rates.values()), default=0.0)

    def as_list(self) -> list[Any]:
        """Return what JSON can hold."""
        return [[*of, sorted(rates)[len(rates) // 2]] for of, rates in self._rates.items()]

    def load(self, entries: Any) -> None:
        """Take over what `as_list` returned, if it is valid."""
        for of, rate in _valid(entries):
            self._rates.setdefault(of, [rate])


def _valid(entries: Any) -> Iterator[tuple[SizeClass, float]]:
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, list) and [*map(type, entry)] == [str, int, int, float]:
            kind, size, side, rate = entry
            if 0 < rate < 1e9:
                yield (kind, size, side), rate


class Clock:
    """The rates of both sides.

    Attributes
    ----------
    host : Rates
        Of NumPy.
    device : Rates
        Of the device that is taken if the program names none.
    opening_s : float
        Seconds that a process takes to open it; 0.0 if that is unknown.
    """

    def __init__(self) -> None:
        self.host, self.device, self.opening_s = Rates(), Rates(), 0.0
        self._named: dict[Any, Rates] = {}

    def of(self, devices: Any) -> Rates:
        """Return the rates of the devices that the program has named; None if it has named none."""
        if devices is None:
            return self.device
        return self._named.setdefault(devices, Rates())

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        rates = {"host": self.host.as_list(), "device": self.device.as_list()}
        return rates | {"opening": self.opening_s}

    def load(self, entry: Any) -> None:
        """Take over what `as_dict` returned, if it is valid."""
        if isinstance(entry, Mapping):
            self.host.load(entry.get("host"))
            self.device.load(entry.get("device"))
            opening = entry.get("opening")
            if isinstance(opening, float) and 0 < opening < LONGEST_OPENING_S:
                self.opening_s = self.opening_s or opening
