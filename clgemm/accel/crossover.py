"""Measurement of crossovers: the sizes from which on a device beats the host's BLAS."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from clgemm.accel.semantics import match_numpy, reports
from clgemm.core.caches import forget_plans
from clgemm.core.host_blas import spin_seconds
from clgemm.hardware.device import Device
from clgemm.planning import crossovers
from clgemm.planning.crossover_search import Search, Times, largest_side
from clgemm.planning.crossovers import Crossovers, Kind, Work
from clgemm.planning.selection import reads_in_place
from clgemm.runtime.finite import watched
from clgemm.runtime.launch import multiply
from clgemm.runtime.turns import may_spin

__all__ = [
    "ATTEMPT_SECONDS",
    "EXPECTED_SECONDS",
    "HostProduct",
    "Measurement",
    "Sides",
    "both_sides",
    "keep",
    "measure",
    "measurement_of",
]

log = logging.getLogger(__name__)

HostProduct: TypeAlias = Callable[[Any, Any], Any]

MARGIN = 0.95  # the device wins if it takes at most this fraction of the host's time
TURNS = 3
CLEARLY = 1.2  # the device loses early if it takes this many times the host's time twice
PAUSE_SECONDS = 0.02
MOST_BYTES = 2**28  # the operands and the result of the largest product
# What the measurement of one kind is expected to take, and the time limit of one attempt at it. No
# product is begun that is expected to exceed the limit; only the first of a size may, by compiling.
EXPECTED_SECONDS, ATTEMPT_SECONDS = 1.0, 2.0


class Sides(NamedTuple):
    """One product on either side: functions that take no arguments."""

    host: Callable[[], object]
    device: Callable[[], object]


class Measurement:
    """The measurement of the crossover of one kind of product. It may be interrupted and go on.

    Host and device multiply the same arrays in turns; transfers count. The host runs after a pause
    and the device right after the host, as in a program that uses both. OpenBLAS's threads spin for
    a moment after a product.

    Parameters
    ----------
    sides : callable
        Returns a product of given sizes on either side.
    spin_s : float, optional
        How long these threads spin, if the device shares their cores and `clgemm.runtime.turns`
        allows for that. Then the device runs after a pause that is as much longer, and the host
        right after the device.
    """

    def __init__(self, kind: Kind, sides: Callable[[Work], Sides], spin_s: float = 0.0) -> None:
        self.kind = kind
        self._spin_s = spin_s
        self._sides, self._trial = sides, _trials()[kind]
        floor = crossovers.LEAST_WORK
        if kind in ("block", "symmetric"):
            floor = max(floor, self._trial(crossovers.BANDS[-1]).size)
        least = largest_side(self._size, floor - 1) + 1
        most = largest_side(lambda side: _bytes(self._trial(side)), MOST_BYTES)
        self._search = Search(self._size, least, max(least, most))
        self._compiled: set[int] = set()  # sides

    @property
    def has_ended(self) -> bool:
        return self._search.next() is None

    @property
    def least(self) -> int | None:
        """The least work that the device is known to win so far; None if it has won none."""
        return self._search.crossover

    def go_on(self, seconds: float = ATTEMPT_SECONDS) -> None:
        """Measure for about so many seconds at most.

        It ends for good, with what is known, if one more trial alone exceeds the limit of an
        attempt. Each attempt makes a trial, or compiles for one, so that their number is bounded.
        """
        start = time.perf_counter()
        while (side := self._search.next()) is not None:
            host, device = self._search.expected(side)
            expected = (TURNS + 1) * (host + device) + TURNS * (PAUSE_SECONDS + self._spin_s)
            left = seconds - (time.perf_counter() - start)
            if expected > ATTEMPT_SECONDS:
                self._search.end()
            elif expected > left or not self._try(side, start + seconds):
                return

    def _size(self, side: int) -> int:
        return self._trial(side).size

    def _try(self, side: int, until: float) -> bool:
        """Let both sides multiply in turns, and record who won.

        Returns
        -------
        bool
            False, with nothing recorded, if the time is over once the device has compiled.
        """
        work = self._trial(side)
        host, device = self._sides(work)
        seconds = _timed(device)  # compiles
        if side in self._compiled and seconds > ATTEMPT_SECONDS:
            self._search.end()  # so slow without compiling
        self._compiled.add(side)
        if time.perf_counter() > until:
            return False
        times: list[Times] = []
        ratios: list[float] = []
        for _ in range(TURNS):
            time.sleep(PAUSE_SECONDS + self._spin_s)
            if self._spin_s:
                device_s, host_s = _timed(device), _timed(host)
            else:
                host_s, device_s = _timed(host), _timed(device)
            times.append((host_s, device_s))
            ratios.append(times[-1][1] / max(times[-1][0], 1e-9))
            if len(ratios) == 2 and min(ratios) > CLEARLY:
                break
        ratio = sorted(ratios)[len(ratios) // 2]
        log.debug("%s: the device takes %.2f of the host's time", work, ratio)
        fastest = min(h for h, _ in times), min(d for _, d in times)
        self._search.record(side, ratio <= MARGIN, fastest)
        return True


def measure(device: Device, host: HostProduct, seconds: float = math.inf) -> Crossovers:
    """Measure and store the crossover of each kind of product: the least work the device wins.

    Parameters
    ----------
    host : callable
        NumPy's product of two arrays or batches on the host.
    seconds : float, optional
        The time limit.

    Raises
    ------
    TimeoutError
        If it takes longer; then the kinds that have been measured so far are stored.
    """
    log.info("measuring from which size on %s beats NumPy", device.name)
    deadline = time.monotonic() + seconds
    found: dict[Kind, int | None] = {}
    for kind in crossovers.kinds():
        measurement = measurement_of(kind, device, host)
        left = math.inf
        while not measurement.has_ended:
            if left < ATTEMPT_SECONDS:
                raise TimeoutError("the time to measure where the device is faster is over")
            left = deadline - time.monotonic()
            measurement.go_on(min(ATTEMPT_SECONDS, left))
        found[kind] = keep(device, measurement)
    log.info("%s beats NumPy from these multiply-adds on: %s", device.name, found)
    return found


def keep(device: Device, measurement: Measurement) -> int | None:
    """Store the result of a measurement, and return it."""
    crossovers.keep(device, {measurement.kind: measurement.least})
    forget_plans()  # plans hold the side, which may be another one now
    return measurement.least


def _trials() -> dict[Kind, Callable[[int], Work]]:
    """Return for each kind a function from a side `n` to a product with the kind's short side."""

    def narrow(band: int) -> Callable[[int], Work]:
        return lambda n: Work(n, band, n)

    def shallow(band: int) -> Callable[[int], Work]:
        return lambda n: Work(n, n, band)

    def stack(band: int) -> Callable[[int], Work]:
        return lambda n: Work(band, band, band, n)

    trials: dict[Kind, Callable[[int], Work]] = {}
    for band in crossovers.BANDS[:-1]:
        trials[f"narrow-{band}"] = narrow(band)
        trials[f"shallow-{band}"] = shallow(band)
        trials[f"stack-{band}"] = stack(band)
    trials["block"] = lambda n: Work(n, n, n)
    trials["symmetric"] = lambda n: Work(n, n, n, symmetric=True)
    return trials


def _bytes(work: Work) -> int:
    m, n, k, matrices, _ = work
    return 4 * matrices * (m * k + k * n + m * n)


def measurement_of(kind: Kind, device: Device, host: HostProduct) -> Measurement:
    """Return the measurement of one kind of product, not begun."""
    shares_cores = reads_in_place(device) and may_spin()
    return Measurement(kind, both_sides(device, host), spin_seconds() if shares_cores else 0.0)


def both_sides(device: Device, host: HostProduct) -> Callable[[Work], Sides]:
    """Return a function from sizes to a product of random arrays on either side."""

    def sides(work: Work) -> Sides:
        a, b = _operands(work)
        shape = (work.matrices, work.m, work.n) if work.matrices > 1 else (work.m, work.n)

        def on_device() -> None:
            c = np.empty(shape, np.float32)
            with watched(reports().errors):
                multiply(1.0, a, b, 0.0, c, queue=device.queue)
                match_numpy(work.symmetric, c, (a, b), lambda: (a, b), device)

        return Sides(functools.partial(host, a, b), on_device)

    return sides


def _operands(work: Work) -> tuple[Any, Any]:
    m, n, k, matrices, symmetric = work
    random = np.random.default_rng(0)
    batch = (matrices,) if matrices > 1 else ()
    a = random.random((*batch, m, k), np.float32)
    return a, a.swapaxes(-1, -2) if symmetric else random.random((*batch, k, n), np.float32)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
