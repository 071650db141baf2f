"""The router: it sends a product to the device or to the host, and says why to the host."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

import pyopencl as cl

from clgemm.accel.crossover import HostProduct, measure
from clgemm.accel.failures import log_safely
from clgemm.accel.inside import BUSY
from clgemm.accel.tally import SMALL, LeftOut
from clgemm.core.host_blas import blas_threads
from clgemm.core.nesting import NestedCallError
from clgemm.hardware.choice import get_device, get_devices
from clgemm.hardware.device import Device
from clgemm.planning.crossovers import LEAST_WORK, Crossovers, Work, kind_of, measured, pays
from clgemm.planning.selection import threshold, transfer_config

__all__ = ["DEEP", "ERROR", "FAILED", "Router", "Settings"]

log = logging.getLogger(__name__)

# Reasons why a product stays on the host.
NO_DEVICE = "no OpenCL device"
FAILED = "device failure"
ERROR = "error inside clgemm"
DEEP = "call near the recursion limit"
SKINNY = "short sides"
UNOPENED = "device not opened yet"
UNMEASURED = "crossover not measured yet"
NEVER = 2**62
# The time to open a device and the time to measure it. A program spends it only after as much time
# in products that the device may be faster at.
OPENING_SECONDS, MEASURING_SECONDS = 0.5, 8.0
# Exceptions that mean that the device cannot go on.
DEVICE_ERRORS = (cl.Error, OSError, RuntimeError, ValueError)
# A device that fails is not used for the first pause. Each further failure doubles the pause.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 600.0
MOST_WARNINGS = 100  # the most warnings that are remembered, so that none is repeated


@dataclass(frozen=True)
class Settings:
    """The settings of `install` and `enabled`.

    Attributes
    ----------
    threshold : int or None
        Multiply-adds from which on the device multiplies; None for the measured crossovers.
    device : Device or None
        None for the device, or devices, of `clgemm.get_devices`.
    profile : bool
        Whether to count and time every product, also small ones and those of other dtypes.
    """

    threshold: int | None = None
    device: Device | None = None
    profile: bool = False


class Router:
    """Chooses the side for each product that is not obviously small.

    Attributes
    ----------
    least : int
        A product of fewer multiply-adds stays on the host without a call of `choose`.
    device_name : str
        The name of the device that made the last product, or the names of several.
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
        """Forget all failures and warnings, and read measured crossovers again."""
        wanted = self._wanted
        self.least = 0 if self.settings.profile else LEAST_WORK if wanted is None else wanted
        self.device_name = ""
        # By the device and the threads of NumPy's BLAS.
        self._measured: dict[tuple[Device, int], Crossovers | None] = {}
        # Devices that are not used, each with the monotonic time when it is tried again.
        self._left_out: dict[Device, tuple[LeftOut, float]] = {}
        self._warned: set[str] = set()

    def choose(self, work: Work, sent: float = 1.0) -> Device | str:
        """Return the device that multiplies, or the reason why the product stays on the host.

        Parameters
        ----------
        sent : float, optional
            As for `pays`, on a device with memory of its own.
        """
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
            # If the device changes, the next product above this limit updates it.
            self.least = min((x for x in found.values() if x is not None), default=NEVER)
        if sent < 1 and transfer_config(device) is None:
            sent = 1.0  # nothing is sent in any case
        return device if pays(work, found, sent) else SMALL

    def stayed(self, reason: str, seconds: float) -> None:
        """Record how long a product took on the host."""
        if reason in (UNOPENED, UNMEASURED):
            self._waiting_seconds += seconds

    def failed(self, device: Device | None, error: Exception) -> str:
        """Record that a product failed on the device, and return the reason for the report.

        After an error of the device, the device is not used for a while. It may make the next
        product if it was out of memory or if the error is not its own.
        """
        if isinstance(error, RecursionError):
            return DEEP
        if isinstance(error, NestedCallError):  # a signal handler or finalizer asked for it
            return BUSY
        what = f"{type(error).__name__}: {error}"
        if device is None or not isinstance(error, (*DEVICE_ERRORS, MemoryError)):
            self._warn_once(f"a product failed inside clgemm, and NumPy repeats it: {what}", error)
            return ERROR
        if isinstance(error, MemoryError | cl.MemoryError):
            self._warn_once(f"a product failed on {device.name}, and NumPy repeats it: {what}")
            return FAILED
        before = self._left_out.get(device)
        failures = before[0].failures + 1 if before else 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 30), LONGEST_PAUSE_SECONDS)
        left_out = LeftOut(device.name, failures, time.time() + pause, what)
        self._left_out[device] = left_out, time.monotonic() + pause
        log_safely(logging.WARNING, f"a product failed, and NumPy repeats it: {left_out}")
        return FAILED

    def succeeded(self, device: Device) -> None:
        """Record that a product succeeded on a device."""
        names = [device.name] if self.queue(device) else [d.name for d in get_devices()]
        self.device_name = ", ".join(names)
        if self._left_out and self._left_out.pop(device, None) is not None:
            log_safely(logging.WARNING, f"{device.name} is used again")

    def queue(self, device: Device) -> cl.CommandQueue | None:
        """Return where a product for a chosen device is made; None for all chosen devices."""
        several = self.settings.device is None and len(get_devices()) > 1
        return None if several else device.queue

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
                    self._waiting_seconds = 0.0  # wait again before the next try, which takes long
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
        log_safely(logging.WARNING, message, error)
