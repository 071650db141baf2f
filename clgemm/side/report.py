"""What has become of the products so far: counts on either side, with reasons, and advice."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from clgemm.side import decision, preparation
from clgemm.side.preparation import BEING_PREPARED

__all__ = ["DEVICE", "DTYPE", "SMALL", "LeftOut", "Report", "Row", "Tally", "report"]

DEVICE = ""  # the reason of calls on the device
SMALL, DTYPE = decision.SMALL, decision.REFUSED

REMEDY = (
    "'python -m clgemm warmup' prepares the device, and --threshold N sends it every product of N "
    "multiply-adds or more"
)
# Why no product ran on the device, by the reason of those that took longest.
WHY = {
    BEING_PREPARED: f"the device was still being prepared; {REMEDY}",
    decision.UNKNOWN: f"its products were too few to compare both sides; {REMEDY}",
    decision.NOT_OPEN: (
        "the device is faster at its products, but to open it takes longer than it would have "
        "saved; the next run of the same program opens it at once if that pays"
    ),
    decision.HOST_FASTER: "NumPy is faster at its products than the device, transfers included",
    SMALL: "its products are below the threshold, or take NumPy less than any device's call",
    DTYPE: "it multiplies no float32 arrays",
}
# The same for faults: they go first, however long the products took.
FAULTS = {
    "no OpenCL device": "no OpenCL device works: 'python -m clgemm info' lists the reasons",
    "device failure": "the device failed: the log says why",
    "error inside clgemm": "the products failed inside clgemm: the log says why",
}


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


class Report(NamedTuple):
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
    preparing : str
        How far the preparation of the device is; empty if nothing is being prepared.
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
    preparing: str = ""
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
        rest = self.saved, self.preparing, *map(str, self.left_out), self.children
        return "; ".join(filter(None, [text, *rest]))

    def _repr_html_(self) -> str:
        """Return what a notebook displays."""
        from html import escape

        heads = "function", "calls", "where and why", "seconds"
        table = "".join(f"<th>{head}</th>" for head in heads)
        for row in self.rows:
            where = f"host: {row.reason}" if row.reason else "device"
            seconds = "" if row.seconds is None else f"{row.seconds:.3f}"
            cells = (escape(row.function), f"{row.calls:,}", escape(where), seconds)
            table += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        return f"<p>{escape(str(self))}</p><table>{table}</table>"

    @property
    def why_nothing(self) -> str:
        """A sentence that says why no product ran on the device, and what helps; "" if one did."""
        if self.offloaded:
            return ""
        seconds: dict[str, float] = {}
        for row in self.rows:
            seconds[row.reason] = seconds.get(row.reason, 0.0) + (row.seconds or 0.0)
        if not seconds:
            return "Nothing was offloaded: the program made no product with NumPy."
        for reason, fault in FAULTS.items():
            if reason in seconds:
                return f"Nothing was offloaded: {fault}."
        first = max(seconds, key=lambda reason: (seconds[reason], reason != DTYPE))
        if preparation.state.reason and first in (BEING_PREPARED, decision.UNKNOWN):
            return f"Nothing was offloaded: {preparation.state.reason}."
        why = WHY.get(first, f"the reason is {first!r}")
        return f"Nothing was offloaded: {why}."


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
            offloaded = self.offloaded_bytes + sum(
                e.offloaded_bytes for e in list(preparation.entries.values())
            )
            return offloaded, self.resident, self.saved_bytes, self.compared_bytes

    def reset(self) -> None:
        """Set all counts and times to zero."""
        with self._lock:
            self._slow.clear()
            for entry in list(preparation.entries.values()):
                entry.reset()
            self.offloaded_bytes = self.resident = self.saved_bytes = self.compared_bytes = 0
            for count in self._quick.values():
                count.reset()

    def begin_anew(self) -> None:
        """Set all to zero in a forked child: another thread of the parent may hold the lock."""
        self._lock = threading.RLock()
        self.reset()

    def rows(self) -> Iterator[Row]:
        """Yield the timed calls, the longest first, and then the calls that were not timed."""
        with self._lock:
            timed = dict(self._slow)
            quick = {key: count.value() for key, count in self._quick.items()}
        for entry in list(preparation.entries.values()):
            for key, calls, us in entry.made():
                if key == SMALL and not us:  # not timed
                    shown = _shown(entry.name), SMALL
                    quick[shown] = quick.get(shown, 0) + calls
                    continue
                before = timed.get((entry.name, key), (0, 0.0))
                timed[entry.name, key] = before[0] + calls, before[1] + us * 1e-6
        merged: dict[tuple[str, str], tuple[int, float]] = {}
        for (name, reason), (calls, seconds) in timed.items():
            before = merged.get((_shown(name), reason), (0, 0.0))
            merged[_shown(name), reason] = before[0] + calls, before[1] + seconds
        for name, reason in sorted(merged, key=lambda k: -merged[k][1]):
            yield Row(name, reason, *merged[name, reason])
        for (name, reason), calls in quick.items():
            if calls:
                yield Row(name, reason, calls, None)


def _shown(name: str) -> str:
    """Return a function's name, without what tells its call signatures apart."""
    return name.partition(" ")[0]


tally = Tally()


def _named(device: Any = None) -> str:
    """Return the name of a device, or the names of the chosen ones."""
    if device is not None:
        return str(device.name)
    from clgemm.hardware.choice import chosen

    try:
        return ", ".join(device.name for device in chosen())
    except (RuntimeError, ValueError):
        return ""


def report(left_out: tuple[LeftOut, ...] = (), children: str = "", device: Any = None) -> Report:
    """Return the products on each side since the counts were reset.

    Parameters
    ----------
    device : Device, optional
        The device of accelerated NumPy's settings. The default is the chosen ones.
    """
    rows = tuple(tally.rows())
    name = _named(device) if any(row.reason == DEVICE for row in rows) else ""
    return Report(name, rows, left_out, children, preparation.progress(), *tally.moved())
