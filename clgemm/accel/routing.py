"""The router: it sends a product to the device or to the host, and says why to the host."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict

import pyopencl as cl

from clgemm.accel.crossover import (
    EXPECTED_SECONDS,
    HostProduct,
    Measurement,
    keep,
    measurement_of,
)
from clgemm.accel.experience import OnDevice, OnHost
from clgemm.accel.failures import log_safely
from clgemm.accel.inside import BUSY
from clgemm.accel.known_sides import Key, KnownSide, KnownSides
from clgemm.accel.left_out import LeftOutDevices
from clgemm.accel.settings import Settings
from clgemm.accel.tally import SMALL, LeftOut
from clgemm.accel.task import Task
from clgemm.core.host_blas import blas_threads
from clgemm.core.nesting import NestedCallError
from clgemm.hardware.choice import get_device, get_devices
from clgemm.hardware.device import Device
from clgemm.planning.crossovers import (
    LEAST_WORK,
    Crossovers,
    Kind,
    Work,
    is_complete,
    kind_of,
    measured,
    pays,
)
from clgemm.planning.selection import is_clearly_faster, threshold, transfer_config
from clgemm.runtime.regions import any_held
from clgemm.runtime.turns import Product, host_makes

__all__ = ["DEEP", "ERROR", "FAILED", "Router"]

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
# The time to open a device. A program spends it once its products that the device may be faster at
# take as much on the host, with the one to be made. It spends the time to measure one kind of
# product only after as much time in products of that kind.
OPENING_SECONDS = 0.5
# Exceptions that mean that the device cannot go on.
DEVICE_ERRORS = (cl.Error, OSError, RuntimeError, ValueError)
MOST_WARNINGS = 100  # the most warnings that are remembered, so that none is repeated


class Router:
    """Chooses the side for each product that is not obviously small.

    Attributes
    ----------
    least : int
        A product of fewer multiply-adds stays on the host without a call of `choose`.
    """

    def __init__(self, settings: Settings, host: HostProduct) -> None:
        self.settings = settings
        wanted = threshold() if settings.threshold is None else settings.threshold
        self._wanted = wanted
        self._host = host
        self._lock = threading.RLock()
        self._is_measuring = False
        self.begin()

    def begin(self) -> None:
        """Forget all failures and warnings, and read measured crossovers again."""
        wanted = self._wanted
        self.least = 0 if self.settings.profile else LEAST_WORK if wanted is None else wanted
        self._sides = KnownSides()
        self._makers: tuple[Device, ...] = ()  # of the last product
        self._waiting_seconds = 0.0
        # By the device and the threads of NumPy's BLAS. With each, the `least` that follows.
        self._measured: dict[tuple[Device, int], tuple[Crossovers, int]] = {}
        # About kinds that have not been measured.
        self._on_host: defaultdict[Kind, OnHost] = defaultdict(OnHost)
        self._on_device: defaultdict[tuple[Device, Kind], OnDevice] = defaultdict(OnDevice)
        self._begun: dict[tuple[Device, int, Kind], Measurement] = {}
        self._left_out = LeftOutDevices()
        self._warned: set[str] = set()

    @property
    def device_name(self) -> str:
        """The name of the device that made the last product, or the names of several."""
        return ", ".join(device.name for device in self._makers)

    def product(self, task: Task) -> Product | None:
        """Return both sides' times of a product; None if no others count for its side."""
        if self._wanted is not None or self._waiting_seconds < OPENING_SECONDS:
            return None
        if task.compare is None or task.work.size == 0 or self._state() is None:
            return None
        device, chosen = self.settings.device or get_device(), get_devices()
        return task.compare() if device.kind == "CPU" and chosen == (device,) else None

    def choose(self, work: Work, sent: float = 1.0, product: Product | None = None) -> Device | str:
        """Return the device that multiplies, or the reason why the product stays on the host.

        Parameters
        ----------
        sent : float, optional
            As for `pays`, on a device with memory of its own.
        product : Product, optional
            Both sides' times, if the choice depends on the products before it.
        """
        if work.size < max(1, LEAST_WORK if self._wanted is None else self._wanted) and not product:
            return SMALL
        kind = kind_of(work)
        if self._wanted is None:
            if kind is None and product is None:
                return SKINNY
            if self._waiting_seconds < OPENING_SECONDS:
                expected = self._on_host[kind].expected_seconds(work.size) if kind else 0.0
                if self._waiting_seconds + expected < OPENING_SECONDS:
                    return UNOPENED
                self._waiting_seconds = OPENING_SECONDS  # once it is open, it serves shorter ones
        try:
            device = self.settings.device or get_device()
        except RecursionError:
            return DEEP
        except (RuntimeError, ValueError) as error:
            self._warn_once(f"NumPy is not accelerated: {error}")
            return NO_DEVICE
        if self._left_out.has(device):
            return FAILED
        if self._wanted is not None:
            return device
        if product is not None:
            if host_makes(product):
                return SMALL if kind else SKINNY
            return device
        assert kind is not None
        if sent < 1 and transfer_config(device) is None:
            sent = 1.0  # nothing is sent in any case
        found, least = self._known(device)
        if kind not in found:
            return self._choose_unmeasured(device, kind, work, sent)
        if not self.settings.profile:
            # If the device changes, the next product above this limit updates it.
            self.least = least
        return device if pays(work, found, sent) else SMALL

    def known(self, key: Key | None) -> KnownSide | None:
        """Return the side of a product that is the same as before; None if it may not be.

        Parameters
        ----------
        key : tuple or None
            By `clgemm.accel.known_sides.key_of`.
        """
        if key is None or (known := self._sides.find(key)) is None:
            return None
        if any_held() or self._left_out:
            return None
        kind = known.unmeasured
        if kind is not None and self._on_host[kind].seconds >= EXPECTED_SECONDS:
            return None  # it is to be measured
        if known.state != (state := self._state()) or state is None:
            return None
        if known.product is None:
            return known
        if get_devices() != (state[0],):
            return None  # others may share it
        return known if host_makes(known.product) else known._replace(side=state[0])

    def remember(
        self, key: Key | None, side: Device | str, work: Work, product: Product | None = None
    ) -> None:
        """Remember the side of a product.

        Parameters
        ----------
        product : Product, optional
            As `choose` was given it. Without it, a side that depends on other products is not
            remembered.
        """
        if isinstance(side, str) and side not in (SMALL, SKINNY, UNMEASURED):
            return
        if key is None or any_held() or (state := self._state()) is None:
            return
        if not isinstance(side, str) and side is not state[0]:
            return
        kind = kind_of(work)
        if product is not None:
            reason = SMALL if kind else SKINNY
            self._sides.note(key, KnownSide(reason, work.size, None, state, product))
            return
        unmeasured = kind if side == UNMEASURED else None
        # A product that is clearly faster on a GPU is soon made there: see `_choose_unmeasured`.
        is_settled = self._wanted is not None or kind is None or state[0].kind == "CPU"
        is_settled = is_settled or kind in self._known(state[0])[0]
        if not is_settled and (unmeasured is None or is_clearly_faster(state[0], work)):
            return
        self._sides.note(key, KnownSide(side, work.size, unmeasured, state))

    def stayed_again(self, known: KnownSide, seconds: float) -> None:
        """Record how long a product took that stayed on the host as before."""
        if known.unmeasured is not None:
            self._on_host[known.unmeasured].add(known.size, seconds)

    def _state(self) -> tuple[Device, int] | None:
        """Return what the choice depends on besides a product; None if there is no device."""
        try:
            return self.settings.device or get_device(), blas_threads()
        except (RecursionError, RuntimeError, ValueError):
            return None

    def stayed(self, reason: str, seconds: float, work: Work | None) -> None:
        """Record how long a product took on the host; `work` is None if it cannot be offloaded."""
        if work is None or reason not in (UNOPENED, UNMEASURED):
            return
        self._waiting_seconds += seconds
        if (kind := kind_of(work)) is not None:
            self._on_host[kind].add(work.size, seconds)

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
        left_out = self._left_out.add(device, what)
        log_safely(logging.WARNING, f"a product failed, and NumPy repeats it: {left_out}")
        return FAILED

    def succeeded(
        self,
        device: Device,
        work: Work,
        seconds: float,
        is_spread: bool = False,
        is_known: bool = False,
    ) -> None:
        """Record that a product succeeded on a device, or on all, and how long it took."""
        kind = kind_of(work) if self._wanted is None and not is_known else None
        if kind is not None and kind not in self._known(device)[0]:
            rate = self._on_host[kind].rate
            if rate:
                self._on_device[device, kind].add(work.size, seconds, rate)
        self._makers = get_devices() if is_spread else (device,)
        if self._left_out.remove(device):
            log_safely(logging.WARNING, f"{device.name} is used again")

    def queue(self, device: Device) -> cl.CommandQueue | None:
        """Return where a product for a chosen device is made; None for all chosen devices."""
        several = self.settings.device is None and len(get_devices()) > 1
        return None if several else device.queue

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return the devices whose last product failed."""
        return tuple(self._left_out)

    def _known(self, device: Device) -> tuple[Crossovers, int]:
        """Return the crossovers that are known, and the least work that they leave to `choose`."""
        key = device, blas_threads()
        if key not in self._measured:
            stored = measured(device)
            self._learn(key, {} if stored is None else stored.least)
        return self._measured[key]

    def _learn(self, key: tuple[Device, int], found: Crossovers) -> None:
        least = LEAST_WORK
        if is_complete(found):
            least = min((x for x in found.values() if x is not None), default=NEVER)
        self._measured[key] = found, least
        self._sides.clear()

    def _choose_unmeasured(
        self, device: Device, kind: Kind, work: Work, sent: float
    ) -> Device | str:
        """Return the side for a kind without a crossover, and measure it once that pays.

        A product that is clearly faster on the device goes there at once. The times of these
        products are compared with the host's: the first of each kind is the host's.
        """
        on_host, on_device = self._on_host[kind], self._on_device[device, kind]
        trusted = on_host.rate > 0 and not on_device.is_given_up
        if trusted and is_clearly_faster(device, work, sent):
            return device
        if on_host.seconds >= EXPECTED_SECONDS:
            self._measure(device, kind)
            if kind in (found := self._known(device)[0]):
                return device if pays(work, found, sent) else SMALL
        begun = self._begun.get((device, blas_threads(), kind))
        least = None if begun is None else begun.least
        return device if trusted and least and work.size >= least * sent else UNMEASURED

    def _measure(self, device: Device, kind: Kind) -> None:
        """Measure one kind of product for a while, and store its crossover if that is found."""
        with self._lock:
            on_host, threads = self._on_host[kind], blas_threads()
            # Another thread has just measured, or a signal handler multiplies meanwhile.
            if on_host.seconds < EXPECTED_SECONDS or self._is_measuring:
                return
            self._is_measuring = True
            start = time.perf_counter()
            try:
                on_host.seconds = 0.0  # whatever happens, wait again before the next attempt
                key = device, threads, kind
                if key not in self._begun:
                    self._begun[key] = measurement_of(kind, device, self._host)
                measurement = self._begun[key]
                measurement.go_on()
                self._sides.clear()  # the device may have won some sizes
                if measurement.has_ended:
                    found = {**self._known(device)[0], kind: keep(device, measurement)}
                    self._learn((device, threads), found)
            finally:
                self._is_measuring = False
            log.info("measured %s for %.1f s", kind, time.perf_counter() - start)

    def _warn_once(self, message: str, error: Exception | None = None) -> None:
        with self._lock:
            if message in self._warned:
                return
            if len(self._warned) >= MOST_WARNINGS:
                self._warned.clear()
            self._warned.add(message)
        log_safely(logging.WARNING, message, error)
