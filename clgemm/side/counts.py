"""Counts of products: by function, by side, and by the reason why NumPy computed them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

DEVICE = ""  # in place of a reason: the device computed them
# Why NumPy computes a product.
SMALL, DTYPE = "size", "dtype"
HOST_FASTER, UNKNOWN = "the host is faster", "not known yet"
BEING_PREPARED, NOT_OPEN = "being prepared", "opening the device would not pay yet"


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


class Counter:
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


class Counts:
    """Counts and times of calls, by function and reason."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal's handler may multiply and count
        self._timed: dict[tuple[str, str], tuple[int, float]] = {}
        self._untimed: dict[tuple[str, str], Counter] = {}
        self._moved = [0, 0, 0, 0]
        self._dropped: dict[tuple[str, str], int] = {}  # calls of signatures that were forgotten

    def counter(self, function: str, reason: str) -> Counter:
        """Return the counter of calls that are not timed."""
        return self._untimed.setdefault((function, reason), Counter())

    def add(
        self, function: str, reason: str, seconds: float, calls: int = 1, size_bytes: int = 0
    ) -> None:
        """Count calls that took so long in all.

        Parameters
        ----------
        size_bytes : int, optional
            Size of the operands and the result, if the device computed it.
        """
        with self._lock:
            before, total = self._timed.get((function, reason), (0, 0.0))
            self._timed[function, reason] = before + calls, total + seconds
        if size_bytes:
            self.add_moved(size_bytes)

    def add_untimed(self, function: str, reason: str, calls: int, seconds: float) -> None:
        """Count calls of a signature that is forgotten, each as long as was measured, or 0.0."""
        if seconds:
            self.add(function, reason, calls * seconds, calls)
        else:
            with self._lock:
                before = self._dropped.get((function, reason), 0)
                self._dropped[function, reason] = before + calls

    def timed(self, function: str, reason: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls are counted and timed."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            try:
                return original(*arguments, **keywords)
            finally:
                self.add(function, reason, time.perf_counter() - start)

        return call

    def add_moved(
        self,
        offloaded_bytes: int,
        products: int = 0,
        saved_bytes: int = 0,
        compared_bytes: int = 0,
    ) -> None:
        """Add to what `moved` returns."""
        more = offloaded_bytes, products, saved_bytes, compared_bytes
        with self._lock:
            self._moved = [x + y for x, y in zip(self._moved, more, strict=True)]

    def moved(self) -> list[int]:
        """Return the offloaded bytes, and what resident arrays did: see `Report`'s last fields."""
        return self._moved

    def reset(self) -> None:
        """Set all counts and times to zero."""
        with self._lock:
            self._timed.clear()
            self._dropped.clear()
            self._moved = [0, 0, 0, 0]
            for counter in self._untimed.values():
                counter.reset()

    def renew_lock(self) -> None:
        """Take another lock in a forked child: a thread of the parent may hold this one."""
        self._lock = threading.RLock()

    def rows(self, more: Iterable[tuple[str, str, int, float]] = ()) -> list[Row]:
        """Return the timed calls, the longest first, and then the calls that were not timed.

        Parameters
        ----------
        more : iterable of tuples
            Further calls: function, reason, their number, and the seconds of each; 0.0 if they were
            not timed.
        """
        with self._lock:
            timed = dict(self._timed)
            untimed = {key: counter.value() for key, counter in self._untimed.items()}
            dropped = [(*key, calls, 0.0) for key, calls in self._dropped.items()]
        for function, reason, calls, seconds in (*dropped, *more):
            key = function, reason
            if seconds:
                before, total = timed.get(key, (0, 0.0))
                timed[key] = before + calls, total + calls * seconds
            else:
                untimed[key] = untimed.get(key, 0) + calls
        found = [Row(*key, *timed[key]) for key in sorted(timed, key=lambda key: -timed[key][1])]
        return found + [Row(*key, calls, None) for key, calls in untimed.items() if calls]


counts = Counts()
