"""Measurement of crossovers: the sizes from which on a device beats the host's BLAS."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from clgemm.accel.semantics import match_numpy
from clgemm.core.caches import forget_plans
from clgemm.hardware.device import Device
from clgemm.planning import crossovers
from clgemm.planning.crossovers import Crossovers, Kind, Work, kind_of
from clgemm.runtime.launch import multiply

__all__ = ["HostProduct", "measure"]

log = logging.getLogger(__name__)

HostProduct: TypeAlias = Callable[[Any, Any], Any]

MARGIN = 0.95  # the device wins if it takes at most this fraction of the host's time
TURNS = 5
CLEARLY = 1.2  # the device loses early if it takes this many times the host's time twice
PAUSE_SECONDS = 0.02
HOST_SECONDS = 0.1  # the host's time for the largest product, about
MOST_BYTES = 2**29  # the operands and the result of the largest product


def measure(device: Device, host: HostProduct, seconds: float = math.inf) -> Crossovers:
    """Measure and store the crossover of each kind of product: the least work the device wins.

    Host and device multiply the same arrays in turns; transfers count. The host runs after a pause
    and the device right after the host, as in a program that uses both. OpenBLAS's threads spin for
    a moment after a product, and a device that shares their cores must win all the same. The
    measurement takes some seconds.

    Parameters
    ----------
    host : callable
        NumPy's product of two arrays or batches on the host.
    seconds : float, optional
        The time limit.

    Raises
    ------
    TimeoutError
        If it takes longer; then nothing is stored.
    """
    log.info("measuring from which size on %s beats NumPy", device.name)
    deadline = time.monotonic() + seconds
    found = {kind: _crossover(device, host, trial, deadline) for kind, trial in _trials().items()}
    crossovers.keep(device, found)
    forget_plans()  # plans hold the side, which may be another one now
    log.info("%s beats NumPy from these multiply-adds on: %s", device.name, found)
    return found


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


def _crossover(
    device: Device, host: HostProduct, trial: Callable[[int], Work], deadline: float
) -> int | None:
    """Return the least work that the device wins: halve the work as long as it does."""
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
        raise TimeoutError("the time to measure from which size on the device is faster is over")


def _side(trial: Callable[[int], Work], size: int) -> int:
    """Return the largest side for which a trial has at most `size` multiply-adds."""
    side = 1
    while trial(2 * side).size <= size:
        side *= 2
    step = side
    while step := step // 2:
        if trial(side + step).size <= size:
            side += step
    return side


def _largest(host: HostProduct, trial: Callable[[int], Work]) -> Work:
    """Return the largest product within the limits for the host's time and for memory."""
    work = trial(_side(trial, 2 * crossovers.LEAST_WORK))
    while True:
        a, b = _operands(work)
        host(a, b)
        seconds = _timed(functools.partial(host, a, b))
        larger = trial(_side(trial, 2 * work.size))
        larger_bytes = (
            4 * larger.matrices * (larger.m * larger.k + larger.k * larger.n + larger.m * larger.n)
        )
        if seconds > HOST_SECONDS / 2 or larger_bytes > MOST_BYTES:
            return work
        work = larger


def _device_wins(device: Device, host: HostProduct, work: Work) -> bool:
    a, b = _operands(work)
    shape = (work.matrices, work.m, work.n) if work.matrices > 1 else (work.m, work.n)

    def on_device() -> None:
        c = np.empty(shape, np.float32)
        multiply(1.0, a, b, 0.0, c, queue=device.queue)
        match_numpy(work.symmetric, c, lambda: (a, b), host)

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
    batch = (matrices,) if matrices > 1 else ()
    a = random.random((*batch, m, k), np.float32)
    return a, a.swapaxes(-1, -2) if symmetric else random.random((*batch, k, n), np.float32)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
