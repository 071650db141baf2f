"""Counts of the calls on the device, and of those on the host with the reason."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["DEVICE", "DTYPE", "SMALL", "LeftOut", "Report", "Row", "Tally"]

DEVICE = ""  # the reason of calls on the device
SMALL = "size"
DTYPE = "dtype"


class Row(NamedTuple):
    """The calls of one function on one side, for one reason.

    Attributes
    ----------
    reason : str
        Why they stayed on the host; empty if they went to the device.
    seconds : float or None
        The time that they took; None if they were not timed.
    """

    function: str
    reason: str
    calls: int
    seconds: float | None


class LeftOut(NamedTuple):
    """A device that is not used for a while because its last product failed.

    Attributes
    ----------
    failures : int
        The number of failures in a row.
    until : float
        The time when it is tried again, in seconds as `time.time` counts.
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
        return f"{self.device} is not used until {until}, since it failed {times}: {self.error}"


@dataclass(frozen=True)
class Report:
    """The products on each side since the start of the current or last acceleration.

    Attributes
    ----------
    device : str
        The name of the device that was used last; empty if none was used.
    rows : tuple of Row
        The counts by function and reason.
    left_out : tuple of LeftOut
        Devices whose last product failed.
    children : str
        A sentence about Python processes that are not accelerated; empty if there are none.
    offloaded_bytes : int
        Size of the operands and results of the products on the device.
    resident : int
        Products on the device that used copies of resident arrays.
    saved_bytes : int
        Size of the operands that were not sent for these. A device that uses host memory in place
        is sent nothing, and has no copies.
    compared_bytes : int
        Size of the memory that was read to find changes of resident arrays. Where Linux tells which
        pages are written to, this is 0 unless some are.
    """

    device: str
    rows: tuple[Row, ...]
    left_out: tuple[LeftOut, ...] = ()
    children: str = ""
    offloaded_bytes: int = 0
    resident: int = 0
    saved_bytes: int = 0
    compared_bytes: int = 0

    @property
    def saved(self) -> str:
        """A sentence about what resident arrays have saved; empty if no copy was used."""
        if not self.resident:
            return ""
        return (
            f"{self.resident:,} of the products used resident arrays: "
            f"{self.saved_bytes / 1e6:,.1f} MB were not sent, "
            f"{self.compared_bytes / 1e6:,.1f} MB were read to find changes"
        )

    @property
    def offloaded(self) -> int:
        """Products computed on the device."""
        return sum(row.calls for row in self.rows if not row.reason)

    @property
    def stayed(self) -> Mapping[str, int]:
        """The number of calls on the host for each reason."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row.reason:
                found[row.reason] = found.get(row.reason, 0) + row.calls
        return found

    def __str__(self) -> str:
        where = self.device or "the device"
        on_host = ", ".join(f"{calls} ({reason})" for reason, calls in self.stayed.items())
        text = f"{self.offloaded} products on {where}; on the host: {on_host or 'none'}"
        return "; ".join(filter(None, [text, self.saved, *map(str, self.left_out), self.children]))


class Quick:
    """A thread-safe counter with the least overhead for small calls."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.add = self._numbers.__next__  # a single C call
        self._discounted = 0

    def value(self) -> int:
        """Return how often `add` was called since the last reset."""
        self._discounted += 1  # this method's own call of `add`
        return self.add() - (self._discounted - 1)

    def reset(self) -> None:
        """Set the count to zero."""
        counted = self.value()
        self._discounted += counted


class Tally:
    """Counts and times of calls, by function and reason."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal's handler may multiply and count
        self._slow: dict[tuple[str, str], tuple[int, float]] = {}
        self._quick: dict[tuple[str, str], Quick] = {}
        self.offloaded_bytes = self.resident = self.saved_bytes = self.compared_bytes = 0

    def quick(self, function: str, reason: str) -> Quick:
        """Return the counter of calls that are not timed."""
        return self._quick.setdefault((function, reason), Quick())

    def add(self, function: str, reason: str, seconds: float, size_bytes: int = 0) -> None:
        """Count a call that was timed, and the size of its arrays if they went to the device."""
        with self._lock:
            self.offloaded_bytes += size_bytes
            calls, total = self._slow.get((function, reason), (0, 0.0))
            self._slow[function, reason] = calls + 1, total + seconds

    def timed(self, function: str, reason: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls are counted and timed."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*arguments, **keywords)
            finally:
                self.add(function, reason, time.perf_counter() - start)

        return call

    def add_resident(self, products: int, saved_bytes: int, compared_bytes: int) -> None:
        """Count products that used resident arrays, the bytes not sent for them, and those read."""
        with self._lock:
            self.resident += products
            self.saved_bytes += saved_bytes
            self.compared_bytes += compared_bytes

    def moved(self) -> tuple[int, int, int, int]:
        """Return what the last four attributes of a `Report` say."""
        with self._lock:
            return self.offloaded_bytes, self.resident, self.saved_bytes, self.compared_bytes

    def reset(self) -> None:
        """Set all counts and times to zero."""
        with self._lock:
            self._slow.clear()
            self.offloaded_bytes = self.resident = self.saved_bytes = self.compared_bytes = 0
            for count in self._quick.values():
                count.reset()

    def rows(self) -> Iterator[Row]:
        """Yield the timed calls, the longest first, and then the calls that were not timed."""
        with self._lock:
            timed = dict(self._slow)
            quick = {key: count.value() for key, count in self._quick.items()}
        for key in sorted(timed, key=lambda k: -timed[k][1]):
            calls, seconds = timed[key]
            yield Row(*key, calls, seconds)
        for key, calls in quick.items():
            if calls:
                yield Row(*key, calls, None)
