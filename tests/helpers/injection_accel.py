"""Injection of failures at every place of an accelerated product, with the outcomes.

As a script it prints a table of places and outcomes::

    python tests/helpers/injection_accel.py [--cold] [--every N] [--places]

A place is a call, a line or a return in a function of clgemm. A trace function raises an exception
there, as a signal's handler would. The outcome includes the next product.
`tests/accel/test_injection.py` tries some of the places.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import clgemm
from clgemm.accel import enabled, report, session
from clgemm.core.cache import forget_plans
from clgemm.runtime.workspace import workspace
from clgemm.side import preparation

OURS = str(Path(clgemm.__file__).parent) + os.sep
HANG_SECONDS = 120
HOST_US = 1e3  # of a product whose side measured times decide

RIGHT, RAISED, NAN = "right", "raised at the call", "NaN"
GOOD = {RIGHT, RAISED, NAN}
WRONG, LOST, OTHER = "WRONG", "the interruption is LOST", "raised as ANOTHER exception"
LATER_WRONG, LATER_RAISED = "the next product is WRONG", "the next product RAISES"
LATER_HOST = "later products stay on the host"


class PlantedError(Exception):
    """An exception class of the program, as a signal's handler may raise."""


ERRORS: dict[str, Callable[[], BaseException]] = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "program's own": PlantedError,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "TypeError": lambda: TypeError("planted"),
    "warning": lambda: UserWarning("planted"),
}
# These must reach the program; after the others, NumPy may make the product.
INTERRUPTIONS = KeyboardInterrupt, PlantedError


class Place(NamedTuple):
    """The place where an exception was raised."""

    file: str
    line: int
    function: str


class _Tracer:
    """A trace function that counts the places of a call and raises at one of them."""

    def __init__(self, at: int, error: BaseException) -> None:
        self._at, self._error = at, error
        self.events = 0
        self.place: Place | None = None

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        # Any program loses an exception that is raised while a generator is closed.
        if not code.co_filename.startswith(OURS) or code.co_flags & inspect.CO_GENERATOR:
            return None
        if event in ("call", "line", "return") and not _is_leaving_with(frame, event):
            self.events += 1
            if self.events == self._at:
                file = code.co_filename.removeprefix(OURS)
                self.place = Place(file, frame.f_lineno, code.co_name)
                raise self._error
        return self


def _is_leaving_with(frame: Any, event: str) -> bool:
    """Tell whether a line event is the end of a ``with`` block, before its ``__exit__``.

    Only a trace function can raise there: CPython runs no signal's handler at this place.
    """
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    if event != "line" or not line.lstrip().startswith("with "):
        return False
    first = min(start for start, _, number in frame.f_code.co_lines() if number == frame.f_lineno)
    return bool(frame.f_lasti > first)


@contextlib.contextmanager
def traced(at: int, error: BaseException) -> Iterator[_Tracer]:
    """Raise an exception at a place of a ``with`` block, given by its number."""
    tracer = _Tracer(at, error)
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        yield tracer
    finally:
        sys.settrace(before)


def _integers(*shape: int) -> Any:
    return np.random.default_rng(0).integers(1, 9, shape).astype(np.float32)


A, B = _integers(24, 24), _integers(24, 24)
STACK = _integers(3, 24, 24)
LARGE = _integers(200, 300)
C, D = _integers(128, 128), _integers(128, 128)  # large enough for a comparison of both sides


def _in_place(function: Callable[..., Any]) -> Callable[[], Any]:
    def call() -> Any:
        out = np.full((24, 24), np.nan, np.float32)
        try:
            return function(A, B, out=out)
        except INTERRUPTIONS:
            # The result is complete or untouched.
            assert (out == A @ B).all() or np.isnan(out).all()
            raise

    return call


CALLS: dict[str, Callable[[], Any]] = {
    "@": lambda: A @ B,
    "np.matmul": lambda: np.matmul(A, B),
    "np.matmul of stacks": lambda: np.matmul(STACK, B),
    "np.matmul with keywords": lambda: np.matmul(A, B, dtype=np.float32, order="F"),
    "np.matmul of float16": lambda: np.matmul(A.astype(np.float16), B),
    "np.matmul in place": _in_place(np.matmul),
    "by its own transpose": lambda: LARGE @ LARGE.T,
    "np.dot": lambda: np.dot(A, B),
    "np.dot in place": _in_place(np.dot),
    "ndarray.dot": lambda: A.dot(B),
    "np.inner": lambda: np.inner(A, B),
    "np.tensordot": lambda: np.tensordot(STACK, B, 1),
}
# Products whose side measured times decide.
COMPARED: dict[str, Callable[[], Any]] = {
    "@, compared": lambda: C @ D,
    "np.dot, compared": lambda: np.dot(C, D),
}


class Outcome(NamedTuple):
    """The outcome of a call in which an exception was raised at a place."""

    call: str
    error: str
    place: Place
    outcome: str


def _settled(device_us: float | None) -> None:
    """Let a device be used again that has failed, and let measured times decide as before."""
    assert session._state.active is not None
    session._state.active.failures.clear()
    if device_us is None:
        return
    preparation.state.reason = ""
    for entry in preparation.entries.values():
        entry.host.us, entry.device.us, entry.estimate_us = HOST_US, 0.0, device_us
        entry.is_ready, entry.remaining, entry.trial = True, 0, 0
        entry.trials = 2  # NumPy is not measured once more


def _begin_anew() -> None:
    """Clear all caches, so that damage by one call is not found in all later ones."""
    forget_plans()
    workspace.cache_clear()


def count_places(name: str, *, cold: bool = False, device_us: float | None = None) -> int:
    """Return the number of places of a call."""
    call = (CALLS | COMPARED)[name]
    call()  # compiles
    _settled(device_us)
    if cold:
        _begin_anew()
    with traced(-1, PlantedError()) as tracer:
        call()
    return tracer.events


def outcomes(
    name: str,
    error: str,
    *,
    cold: bool = False,
    every: int = 1,
    first: int = 1,
    device_us: float | None = None,
) -> Iterator[Outcome]:
    """Raise an exception at each place of a call, or at some, and yield the outcomes.

    To be called while all products are offloaded, or while measured times decide.

    Parameters
    ----------
    cold : bool
        Whether to clear the caches before each call, so that it plans, builds and allocates.
    every, first : int
        The distance of the places that are tried, and the first one.
    device_us : float, optional
        What a product of `COMPARED` takes on the device, in microseconds.
    """
    call = (CALLS | COMPARED)[name]
    expected = call()  # compiles
    _settled(device_us)
    at = first
    while True:
        planted = ERRORS[error]()
        result, raised = None, None
        if cold:
            _begin_anew()
        with traced(at, planted) as tracer:
            try:
                result = call()
            except BaseException as found:  # `_outcome` reports it
                raised = found
        if tracer.place is None:
            return
        outcome = _outcome(call, expected, planted, result, raised, device_us)
        yield Outcome(name, error, tracer.place, outcome)
        _settled(device_us)
        at += every


def _outcome(
    call: Callable[[], Any],
    expected: Any,
    planted: BaseException,
    result: Any,
    raised: BaseException | None,
    device_us: float | None,
) -> str:
    if raised is not None and raised is not planted:
        return f"{OTHER}: {type(raised).__name__}: {raised}"
    if raised is None and isinstance(planted, INTERRUPTIONS):
        return LOST
    first = RAISED
    if raised is None:
        same = np.array_equal(result, expected)
        first = RIGHT if same else NAN if np.isnan(result).any() else WRONG
    if first in GOOD:
        _settled(device_us)
        before = report().offloaded
        try:
            if not np.array_equal(call(), expected):
                return LATER_WRONG
        except Exception as found:  # an outcome
            return f"{LATER_RAISED}: {type(found).__name__}: {found}"
        if report().offloaded == before and (device_us or 0.0) < HOST_US:
            left_out = report().left_out
            _begin_anew()
            return f"{LATER_HOST}: {left_out[0].error if left_out else report()}"
    return first


def main() -> None:
    """Print the counts of outcomes for each call and error, and the bad outcomes by place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cold", action="store_true", help="clear the caches before each call")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try each N-th place")
    parser.add_argument("--places", action="store_true", help="print all places, also good ones")
    parser.add_argument("--calls", nargs="+", choices=CALLS, default=list(CALLS))
    parser.add_argument("--errors", nargs="+", choices=ERRORS, default=list(ERRORS))
    args = parser.parse_args()
    by_place: dict[tuple[Place, str], int] = collections.Counter()
    with enabled(threshold=0):
        for name in args.calls:
            for error in args.errors:
                counts: dict[str, int] = collections.Counter()
                for found in outcomes(name, error, cold=args.cold, every=args.every):
                    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
                    counts[found.outcome] += 1
                    by_place[found.place, found.outcome] += 1
                line = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
                print(f"{name:26}{error:20}{line}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    for (place, outcome), count in sorted(by_place.items()):
        if args.places or outcome not in GOOD:
            print(f"{place.file}:{place.line} {place.function}: {count} {outcome}")


if __name__ == "__main__":
    main()
