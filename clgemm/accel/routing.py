"""Which side multiplies: the device if it has been measured to win, else NumPy, and then why."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

import pyopencl as cl

from clgemm.accel.crossover import HostProduct, measure
from clgemm.accel.failures import tell
from clgemm.accel.inside import BUSY
from clgemm.accel.tally import SMALL, LeftOut
from clgemm.core.host_blas import blas_threads
from clgemm.core.nesting import NestedCallError
from clgemm.hardware.choice import get_device
from clgemm.hardware.device import Device
from clgemm.planning.crossovers import LEAST_WORK, Crossovers, Work, kind_of, measured, pays
from clgemm.planning.selection import threshold

__all__ = ["DEEP", "ERROR", "FAILED", "Router", "Settings"]

log = logging.getLogger(__name__)

NO_DEVICE = "lack of an OpenCL device"
FAILED = "device's failure"
ERROR = "error inside clgemm"
DEEP = "place near the recursion limit"
SKINNY = "short sides"
UNOPENED = "few of them yet: a device is opened once it pays"
UNMEASURED = "crossover, not measured yet"
NEVER = 2**62
# Opening a device and measuring it take about so long: a program pays for that once it has spent as
# long in products that the device may be faster at.
OPENING_SECONDS, MEASURING_SECONDS = 0.5, 8.0
# What a device that cannot go on raises.
DEVICE_ERRORS = (cl.Error, OSError, RuntimeError, ValueError)
# A device that failed is left out so long, each time in a row twice as long.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 600.0
MOST_WARNINGS = 100  # that are remembered, so that none is repeated


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
        self._waiting_seconds = 0.0
        self.begin()

    def begin(self) -> None:
        """Give every device another chance, and every warning."""
        wanted = self._wanted
        self.least = 0 if self.settings.profile else LEAST_WORK if wanted is None else wanted
        self.device_name = ""
        self._measured: dict[tuple[Device, int], Crossovers | None] = {}  # and the BLAS threads
        self._left_out: dict[Device, tuple[LeftOut, float]] = {}  # and until when it is, monotonic
        self._warned: set[str] = set()

    def choose(self, work: Work) -> Device | str:
        """Return the device that multiplies, or why it stays on the host."""
        if work.size < max(1, LEAST_WORK if self._wanted is None else self._wanted):
            return SMALL
        if self._wanted is None:
            if kind_of(work) is None:
                return SKINNY
            if self._waiting_seconds < OPENING_SECONDS:
                return UNOPENED
        try:
            device = self.settings.device or get_device()
        except RecursionError:
            return DEEP
        except (RuntimeError, ValueError) as error:
            self._warn_once(f"NumPy is not accelerated: {error}")
            return NO_DEVICE
        if device in self._left_out and time.monotonic() < self._left_out[device][1]:
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

    def failed(self, device: Device | None, error: Exception) -> str:
        """Learn why a device has not multiplied, and return what a report says of it.

        A device that is merely out of memory may take the next product, and an error that is not
        the device's says nothing of the next. After any other the device is left out for a while.
        """
        if isinstance(error, RecursionError):
            return DEEP
        if isinstance(error, NestedCallError):  # of a signal handler's or finalizer's product
            return BUSY
        what = f"{type(error).__name__}: {error}"
        if device is None or not isinstance(error, (*DEVICE_ERRORS, MemoryError)):
            self._warn_once(f"a product failed inside clgemm and is NumPy's: {what}", error)
            return ERROR
        if isinstance(error, MemoryError | cl.MemoryError):
            self._warn_once(f"a product on {device.name} failed and is NumPy's: {what}")
            return FAILED
        before = self._left_out.get(device)
        failures = before[0].failures + 1 if before else 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 30), LONGEST_PAUSE_SECONDS)
        left_out = LeftOut(device.name, failures, time.time() + pause, what)
        self._left_out[device] = left_out, time.monotonic() + pause
        tell(logging.WARNING, f"a product failed and is NumPy's: {left_out}")
        return FAILED

    def succeeded(self, device: Device) -> None:
        """Learn that a device has multiplied."""
        self.device_name = device.name
        if self._left_out and self._left_out.pop(device, None) is not None:
            tell(logging.WARNING, f"{device.name} multiplies again")

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return the devices whose last product failed."""
        return tuple(found for found, _ in list(self._left_out.values()))

    def _crossovers(self, device: Device) -> Crossovers | None:
        with self._lock:
            key = device, blas_threads()
            if key not in self._measured:
                known = measured(device)
                self._measured[key] = None if known is None else known.least
            found = self._measured[key]
            if found is None and self._waiting_seconds >= MEASURING_SECONDS:
                start = time.perf_counter()
                try:
                    found = self._measured[key] = measure(device, self._host)
                except BaseException:
                    self._waiting_seconds = 0.0  # it takes seconds: not at the next product again
                    raise
                log.info("measured in %.1f s", time.perf_counter() - start)
            return found

    def _warn_once(self, message: str, error: Exception | None = None) -> None:
        with self._lock:
            if message in self._warned:
                return
            if len(self._warned) >= MOST_WARNINGS:
                self._warned.clear()
            self._warned.add(message)
        tell(logging.WARNING, message, error)
