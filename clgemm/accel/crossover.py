"""Measures from which size on a device multiplies host arrays faster than the host's BLAS."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from clgemm.accel.semantics import settle
from clgemm.core.caches import forget_plans
from clgemm.hardware.device import Device
from clgemm.planning import crossovers
from clgemm.planning.crossovers import Crossovers, Kind, Work, kind_of
from clgemm.runtime.launch import multiply

__all__ = ["HostProduct", "measure"]

log = logging.getLogger(__name__)

HostProduct: TypeAlias = Callable[[Any, Any], Any]

MARGIN = 0.95  # of the host's time: what the device may take at most
TURNS = 5
CLEARLY = 1.2  # times as long, twice: no more turns are needed
PAUSE_SECONDS = 0.02
HOST_SECONDS = 0.1  # about what the largest product tried takes the host
MOST_BYTES = 2**29  # of its operands and result


def measure(device: Device, host: HostProduct, seconds: float = math.inf) -> Crossovers:
    """Find and keep, for each kind of product, the work from which on the device wins.

    Both sides take turns on the same arrays, transfers included. The device comes right after the
    host, as in a program that uses both: OpenBLAS's threads spin for a tenth of a second, and a
    device that shares its cores must win all the same. The host comes after a pause. Takes some
    seconds.

    Parameters
    ----------
    host : callable
        NumPy's product of two arrays, stacks included, on the host.
    seconds : float, optional
        That it may take.

    Raises
    ------
    TimeoutError
        If it takes longer: nothing is kept.
    """
    log.info("measuring from which size on %s beats NumPy", device.name)
    deadline = time.monotonic() + seconds
    found = {kind: _crossover(device, host, trial, deadline) for kind, trial in _trials().items()}
    crossovers.keep(device, found)
    forget_plans()  # products that went to a device before may be the host's now
    log.info("from %s multiply-adds on: %s", device.name, found)
    return found


def _trials() -> dict[Kind, Callable[[int], Work]]:
    """Return by kind the product with one side `n`, the shortest as short as the kind has it."""

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


def _crossover(
    device: Device, host: HostProduct, trial: Callable[[int], Work], deadline: float
) -> int | None:
    """Halve the work for as long as the device wins."""
    _require_time(deadline)
    least = None
    work = _largest(host, trial)
    floor = crossovers.LEAST_WORK
    if kind_of(work) in ("block", "symmetric"):
        floor = max(floor, trial(crossovers.BANDS[-1]).size)
    while work.size >= floor and _device_wins(device, host, work):
        _require_time(deadline)
        least = work.size
        side = _side(trial, work.size // 2)
        work = trial(side)
        if work.size == least:
            break
    return least


def _require_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError("there is no time left to measure from which size on the device wins")


def _side(trial: Callable[[int], Work], size: int) -> int:
    """Return the largest side with which a trial is not above a size."""
    side = 1
    while trial(2 * side).size <= size:
        side *= 2
    step = side
    while step := step // 2:
        if trial(side + step).size <= size:
            side += step
    return side


def _largest(host: HostProduct, trial: Callable[[int], Work]) -> Work:
    """Return the largest product that neither the host's time nor memory forbid."""
    work = trial(_side(trial, 2 * crossovers.LEAST_WORK))
    while True:
        a, b = _operands(work)
        host(a, b)
        seconds = _timed(functools.partial(host, a, b))
        larger = trial(_side(trial, 2 * work.size))
        held = (
            4 * larger.matrices * (larger.m * larger.k + larger.k * larger.n + larger.m * larger.n)
        )
        if seconds > HOST_SECONDS / 2 or held > MOST_BYTES:
            return work
        work = larger


def _device_wins(device: Device, host: HostProduct, work: Work) -> bool:
    a, b = _operands(work)
    shape = (work.matrices, work.m, work.n) if work.matrices > 1 else (work.m, work.n)

    def on_device() -> None:
        c = np.empty(shape, np.float32)
        multiply(1.0, a, b, 0.0, c, queue=device.queue)
        settle(work.symmetric, c, lambda: (a, b), host)

    on_device()  # compiles
    ratios = []
    for _ in range(TURNS):
        time.sleep(PAUSE_SECONDS)
        seconds = _timed(functools.partial(host, a, b))
        ratios.append(_timed(on_device) / seconds)
        if len(ratios) == 2 and min(ratios) > CLEARLY:
            return False
    log.debug("%s: the device takes %.2f of the host's time", work, sorted(ratios)[TURNS // 2])
    return sorted(ratios)[TURNS // 2] <= MARGIN


def _operands(work: Work) -> tuple[Any, Any]:
    m, n, k, matrices, symmetric = work
    random = np.random.default_rng(0)
    stack = (matrices,) if matrices > 1 else ()
    a = random.random((*stack, m, k), np.float32)
    return a, a.swapaxes(-1, -2) if symmetric else random.random((*stack, k, n), np.float32)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
