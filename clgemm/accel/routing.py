"""Which side multiplies: the device if it has been measured to win, else NumPy, and then why."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

import pyopencl as cl

from clgemm.accel.crossover import HostProduct, measure
from clgemm.accel.tally import SMALL
from clgemm.crossovers import LEAST_WORK, Crossovers, Work, kind_of, measured, pays
from clgemm.database import threshold
from clgemm.device import Device, get_device
from clgemm.nesting import NestedCallError

__all__ = ["FAILED", "Router", "Settings"]

log = logging.getLogger(__name__)

BUSY = "place inside clgemm"
NO_DEVICE = "lack of an OpenCL device"
FAILED = "device's failure"
SKINNY = "short sides"
UNOPENED = "few of them yet: a device is opened once it pays"
UNMEASURED = "crossover, not measured yet"
NEVER = 2**62
# Opening a device and measuring it take about so long: a program pays for that once it has spent as
# long in products that the device may be faster at.
OPENING_SECONDS, MEASURING_SECONDS = 0.5, 8.0


@dataclass(frozen=True)
class Settings:
    """What `install` and `enabled` were asked for.

    Attributes
    ----------
    threshold : int or None
        Multiply-adds from which on the device multiplies; None for what was measured.
    device : Device or None
        None for the one that `clgemm.get_device` names.
    profile : bool
        Whether every product is counted and timed, small ones and other dtypes included.
    """

    threshold: int | None = None
    device: Device | None = None
    profile: bool = False


class Router:
    """Chooses the side of products that are large enough to think about.

    Attributes
    ----------
    least : int
        Multiply-adds below which a product stays on the host, whatever else it is.
    device_name : str
        Of the device that products went to last.
    """

    def __init__(self, settings: Settings, host: HostProduct) -> None:
        self.settings = settings
        wanted = threshold() if settings.threshold is None else settings.threshold
        self._wanted = wanted
        self._host = host
        self._lock = threading.RLock()
        self._inside = threading.local()
        self._waiting_seconds = 0.0
        self.begin()

    def begin(self) -> None:
        """Give every device another chance, and every warning."""
        wanted = self._wanted
        self.least = 0 if self.settings.profile else LEAST_WORK if wanted is None else wanted
        self.device_name = ""
        self._measured: dict[Device, Crossovers | None] = {}
        self._broken: set[Device] = set()
        self._warned: set[str] = set()

    def choose(self, work: Work) -> Device | str:
        """Return the device that multiplies, or why it stays on the host."""
        if getattr(self._inside, "depth", 0):
            return BUSY
        if work.size < max(1, LEAST_WORK if self._wanted is None else self._wanted):
            return SMALL
        if self._wanted is None:
            if kind_of(work) is None:
                return SKINNY
            if self._waiting_seconds < OPENING_SECONDS:
                return UNOPENED
        try:
            device = self.settings.device or get_device()
        except (RuntimeError, ValueError) as error:
            self._warn_once(f"NumPy is not accelerated: {error}")
            return NO_DEVICE
        if device in self._broken:
            return FAILED
        if self._wanted is not None:
            return device
        found = self._crossovers(device)
        if found is None:
            return UNMEASURED
        if not self.settings.profile:
            # Another device may win earlier: it is thought of again at the next large product.
            self.least = min((x for x in found.values() if x is not None), default=NEVER)
        return device if pays(work, found) else SMALL

    def stayed(self, reason: str, seconds: float) -> None:
        """Learn that a product took so long on the host."""
        if reason in (UNOPENED, UNMEASURED):
            self._waiting_seconds += seconds

    def failed(self, device: Device, error: Exception) -> None:
        """Learn that a device could not multiply: one that is merely out of memory may go on."""
        if isinstance(error, NestedCallError):
            return  # of a signal handler's or finalizer's product: the device is as well as before
        if not isinstance(error, MemoryError | cl.MemoryError):
            self._broken.add(device)
        self._warn_once(f"a product on {device.name} failed and is NumPy's now: {error}")

    def __enter__(self) -> None:
        """Let what this thread does until the block's end be ours: it is not to be intercepted."""
        self._inside.depth = getattr(self._inside, "depth", 0) + 1

    def __exit__(self, *exception: object) -> None:
        self._inside.depth -= 1

    def _crossovers(self, device: Device) -> Crossovers | None:
        with self._lock:
            if device not in self._measured:
                known = measured(device)
                self._measured[device] = None if known is None else known.least
            found = self._measured[device]
            if found is None and self._waiting_seconds >= MEASURING_SECONDS:
                start = time.perf_counter()
                with self:
                    found = self._measured[device] = measure(device, self._host)
                log.info("measured in %.1f s", time.perf_counter() - start)
            return found

    def _warn_once(self, message: str) -> None:
        with self._lock:
            if message in self._warned:
                return
            self._warned.add(message)
        log.warning("%s", message)
