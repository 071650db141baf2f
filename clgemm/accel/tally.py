"""What became of the calls: how many went to the device, and why the others stayed on the host."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["DEVICE", "SMALL", "LeftOut", "Report", "Row", "Tally"]

DEVICE = ""  # no reason to stay on the host
SMALL = "size"


class Row(NamedTuple):
    """Calls of one function that met the same fate.

    Attributes
    ----------
    reason : str
        Why they stayed on the host; empty if they went to the device.
    seconds : float or None
        What they took; None where nothing was timed.
    """

    function: str
    reason: str
    calls: int
    seconds: float | None


class LeftOut(NamedTuple):
    """A device whose last product failed: products are NumPy's until it gets another chance.

    Attributes
    ----------
    failures : int
        In a row.
    until : float
        When it gets another chance, as `time.time` counts seconds.
    error : str
        The last failure.
    """

    device: str
    failures: int
    until: float
    error: str

    def __str__(self) -> str:
        until = time.strftime("%H:%M:%S", time.localtime(self.until))
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        return f"{self.device} is left out until {until}, as it failed {times}: {self.error}"


@dataclass(frozen=True)
class Report:
    """What became of the products since NumPy was last accelerated.

    Attributes
    ----------
    device : str
        The device's name; empty if none has been needed.
    rows : tuple of Row
    left_out : tuple of LeftOut
        Devices whose last product failed.
    children : str
        What to know of Python processes that were started and not accelerated; empty if nothing.
    offloaded_bytes : int
        Size of the operands and results of the products on the device.
    """

    device: str
    rows: tuple[Row, ...]
    left_out: tuple[LeftOut, ...] = ()
    children: str = ""
    offloaded_bytes: int = 0

    @property
    def offloaded(self) -> int:
        """Products computed on the device."""
        return sum(row.calls for row in self.rows if not row.reason)

    @property
    def stayed(self) -> Mapping[str, int]:
        """Calls that stayed on the host, by the reason."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row.reason:
                found[row.reason] = found.get(row.reason, 0) + row.calls
        return found

    def __str__(self) -> str:
        where = self.device or "the device"
        kept = ", ".join(f"{calls} for their {reason}" for reason, calls in self.stayed.items())
        text = f"{self.offloaded} products on {where}; on the host {kept or 'none'}"
        return "; ".join(filter(None, [text, *map(str, self.left_out), self.children]))


class Quick:
    """A count that costs small calls as little as can be, and loses none to threads."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.add = self._numbers.__next__  # a single C call
        self._discounted = 0

    def value(self) -> int:
        """Return how often `add` was called since the last reset."""
        self._discounted += 1  # this call of it
        return self.add() - (self._discounted - 1)

    def reset(self) -> None:
        """Begin anew."""
        counted = self.value()
        self._discounted += counted


class Tally:
    """Counts and times by function and reason."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may multiply, and count, meanwhile
        self._slow: dict[tuple[str, str], tuple[int, float]] = {}
        self._quick: dict[tuple[str, str], Quick] = {}
        self.offloaded_bytes = 0

    def quick(self, function: str, reason: str) -> Quick:
        """Return the count of calls that are not timed."""
        return self._quick.setdefault((function, reason), Quick())

    def add(self, function: str, reason: str, seconds: float, size_bytes: int = 0) -> None:
        """Count a call that was timed, and the size of its arrays if they went to the device."""
        with self._lock:
            self.offloaded_bytes += size_bytes
            calls, total = self._slow.get((function, reason), (0, 0.0))
            self._slow[function, reason] = calls + 1, total + seconds

    def reset(self) -> None:
        """Begin anew."""
        with self._lock:
            self._slow.clear()
            self.offloaded_bytes = 0
            for count in self._quick.values():
                count.reset()

    def rows(self) -> Iterator[Row]:
        """Yield what was counted, the longest first."""
        with self._lock:
            timed = dict(self._slow)
            quick = {key: count.value() for key, count in self._quick.items()}
        for key in sorted(timed, key=lambda k: -timed[k][1]):
            calls, seconds = timed[key]
            yield Row(*key, calls, seconds)
        for key, calls in quick.items():
            if calls:
                yield Row(*key, calls, None)
