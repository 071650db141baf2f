"""From which size on a device multiplies host arrays faster than the host's BLAS: measured."""

from __future__ import annotations

import functools
import logging
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from clgemm.accel.semantics import settle
from clgemm.database import recall, remember
from clgemm.device import Device
from clgemm.launch import multiply

__all__ = ["LEAST_WORK", "Kind", "Work", "crossovers", "kind_of", "measure"]

log = logging.getLogger(__name__)

HostProduct: TypeAlias = Callable[[Any, Any], Any]
Kind: TypeAlias = str
# Multiply-adds by kind of product; None where the host was faster in the largest one tried.
Crossovers: TypeAlias = Mapping[Kind, "int | None"]

LEAST_WORK = 160**3  # multiply-adds, below which no device has a chance: a launch, three transfers
MARGIN = 0.95  # of the host's time: what the device may take at most
TURNS = 5
CLEARLY = 1.2  # times as long, twice: no more turns are needed
PAUSE_SECONDS = 0.02
HOST_SECONDS = 0.1  # about what the largest product tried takes the host
MOST_BYTES = 2**29  # of its operands and result
BANDS = (32, 128, 512)  # the shortest side, at least


class Work(NamedTuple):
    """A product as far as the choice of its side goes.

    Attributes
    ----------
    m, n, k, matrices : int
        `matrices` products of m x k by k x n.
    symmetric : bool
        Of a matrix by its own transpose, which NumPy computes in half the time, and to which it
        gives a result that is symmetric bit for bit.
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


def kind_of(work: Work) -> Kind | None:
    """Return the kind of a product, each measured by itself; None if no device has a chance.

    A device gains by arithmetic on what it was sent: what counts is the shortest side, how often
    each element of the others is used.
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


def crossovers(device: Device) -> Crossovers | None:
    """Return what `measure` found here before, with this driver; None if it has not been asked."""
    found = recall(_key(device))
    if not isinstance(found, dict) or set(found) != set(_trials()):
        return None
    if not all(least is None or isinstance(least, int) for least in found.values()):
        return None
    return found


def measure(device: Device, host: HostProduct) -> Crossovers:
    """Find and keep, for each kind of product, the work from which on the device wins.

    Both sides take turns on the same arrays, transfers included. The device comes right after the
    host, as in a program that uses both: OpenBLAS's threads spin for a tenth of a second, and a
    device that shares its cores must win all the same. The host comes after a pause. Takes some
    seconds.

    Parameters
    ----------
    host : callable
        NumPy's product of two arrays, stacks included, on the host.
    """
    log.info("measuring from which size on %s beats NumPy", device.name)
    found = {kind: _crossover(device, host, trial) for kind, trial in _trials().items()}
    remember(_key(device), found)
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
    for band in BANDS[:-1]:
        trials[f"narrow-{band}"] = narrow(band)
        trials[f"shallow-{band}"] = shallow(band)
        trials[f"stack-{band}"] = stack(band)
    trials["block"] = lambda n: Work(n, n, n)
    trials["symmetric"] = lambda n: Work(n, n, n, symmetric=True)
    return trials


def _crossover(device: Device, host: HostProduct, trial: Callable[[int], Work]) -> int | None:
    """Halve the work for as long as the device wins."""
    least = None
    work = _largest(host, trial)
    floor = max(LEAST_WORK, trial(BANDS[-1]).size if kind_of(work) in ("block", "symmetric") else 0)
    while work.size >= floor and _device_wins(device, host, work):
        least = work.size
        side = _side(trial, work.size // 2)
        work = trial(side)
        if work.size == least:
            break
    return least


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
    work = trial(_side(trial, 2 * LEAST_WORK))
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


def _key(device: Device) -> str:
    host = f"{platform.node()}, NumPy {np.__version__}"
    driver = device.cl_device.driver_version
    return f"crossover 1: {device.name}, {device.platform}, {driver}, {host}"
