"""Preparation of the device beside the program, which does not wait and hardly pays for it.

Until the device is open, NumPy computes the products, and child processes do all that can be done
without this process: they check the device, build kernels, and measure. This process imports
pyopencl and opens the device once that pays: when it has cost more not to have it, and the opening
is short beside the time so far, or when the last run of the same program says so.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from clgemm.core.cache import recall, remember
from clgemm.core.host import blas_label, gpu_nodes, usable_processors
from clgemm.core.settings import DEVICE_VARIABLE, chosen_precision, may_prepare, rule
from clgemm.side.clock import Clock

if TYPE_CHECKING:
    from clgemm.side.decision import Entry

log = logging.getLogger(__name__)

START_US = 2e4  # of products before anything is done
ENOUGH_US = 5e3  # a product is asked for once it has taken so long in all
# What child processes cost the program, which is slower meanwhile. They are started once products
# that may gain by it have taken NumPy so long, or at the end of a program of LEAST_LEFT_US.
CHILD_COST_US, LEAST_LEFT_US = 2e6, 2.5e5
LIKELY_GAIN = 20  # how many times as much NumPy's loops without a BLAS count: most gain a lot
# A product is not asked for where others of its class take the device so many times as long.
TOO_SLOW = 1.25
# The parts of the time so far that all this may take, and trials of a side.
WORK_SHARE, TRIALS_SHARE = 0.02, 0.02
# What this process takes to read what is stored, to start child processes, to ask for a product, to
# look for answers.
READ_US, CHILD_US, REQUEST_US, POLL_US = 4e3, 1.6e4, 300.0, 50.0
OPENING_SHARE = 0.03  # an opening that is so short beside the time so far is no risk
OPENING_S = 0.4  # of an opening that was not measured
WORTH = 2.0  # how many openings the last run of the program must have been able to save
LONG_US = 1e6  # a product that may be waited for takes longer; others give way to child processes
LARGE_WORK, LIKELY_RATE = 10**11, 3e4  # multiply-adds; a core's multiply-adds per microsecond
UNPREPARED_S = 12.0  # the first product of a device that nobody has prepared yet
MOST_STORED = 64  # products of a program
LONGEST_TIME = 1e12  # a stored number above is none: microseconds, or calls
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0  # after which is tried again what has failed
OPENED = "a device was opened"  # the key of what is stored then

clock = Clock()
may_hold: list[Any] = []  # a function: whether an open device holds copies of arrays
entries: dict[Any, Entry] = {}  # what is known of each call signature
running: dict[int, Entry] = {}  # the product that each thread computes now
_begun = time.perf_counter()


def pause_s(failures: int) -> float:
    """Return the time until something is tried again, by its failures in a row."""
    return min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 30), LONGEST_PAUSE_S)


class Pause:
    """The time until something is tried again, longer after each failure."""

    def __init__(self) -> None:
        self._failures, self._ends_s = 0, 0.0

    def begin(self, now_s: float) -> None:
        """Begin a pause, unless there is one."""
        if self.is_over(now_s):
            self._failures += 1
            self._ends_s = now_s + pause_s(self._failures)

    def is_over(self, now_s: float) -> bool:
        """Return whether there is none now."""
        return now_s >= self._ends_s


class State:
    """How far this process is.

    Attributes
    ----------
    is_open : bool
        Whether the device is open.
    is_working : bool
        Whether child processes work, which makes this process's products take longer.
    reason : str
        Why it will not be; empty otherwise.
    """

    def __init__(self) -> None:
        self.is_open, self.is_working, self.reason = False, False, ""
        self._is_opening = False
        self._opens, self._asks = Pause(), Pause()  # after either had no room
        self._postponed: list[Entry] = []
        self._missing: list[Entry] = []  # what no other process has measured
        self.gain_s = 0.0  # what the device has saved, or would have
        self._host_us = 0.0
        self._spent_us = self._worked_us = 0.0
        self._is_started = self._has_read = False
        self._requests: dict[int, Entry] = {}
        # Of the last run of this program: what its products took and how many there were, and what
        # the device would have saved.
        self._program = ""
        self._products: dict[str, tuple[float, int, float]] = {}
        self._expected_s = 0.0
        self._wanted: dict[int, Entry] = {}

    def elapsed_s(self) -> float:
        """Return the seconds since this package was imported."""
        return time.perf_counter() - _begun

    def is_worth_waiting(self, entry: Entry) -> bool:
        """Return whether NumPy takes longer than the rest of the preparation and the device.

        If so, the device is open then.
        """
        host, device = entry.expected_us()
        if not host and entry.work > LARGE_WORK:
            host = entry.work / (clock.host.greatest or LIKELY_RATE * usable_processors())
        if host < LONG_US or self.reason:
            return False
        device = device or 0.2 * host
        is_known = entry.estimate_us and not entry.is_requested
        left_s = (0.0 if self.is_open else _opening_s()) + (0.0 if is_known else UNPREPARED_S)
        return host > device + 1e6 * left_s and self.open()

    def advance(self, entry: Entry, us: float, number: int = 1) -> None:
        """Go on with the preparation, after so many products that NumPy has computed.

        Parameters
        ----------
        us : float
            What each took, in microseconds.
        """
        if self.reason:
            return
        self._host_us += number * us
        self._wanted[id(entry)] = entry
        if self._host_us < START_US or rule() is not None:
            return
        if not self.is_open:
            if expected := entry.expected_us()[1]:
                self.gain_s += number * max(0.0, us - expected) * 1e-6
            if self._pays():
                self.open()
        begun = time.perf_counter()
        if not self._has_read and self._may_work(READ_US):
            self.read()
        if self._has_read and self._may_work(REQUEST_US if self._is_started else CHILD_US):
            for each in list(self._wanted.values()):
                self.prepare(each)
            self._wanted.clear()
            if self._missing:
                self._request_missing()
        if self.is_working and self._may_work(POLL_US):
            self._poll()
        if self._postponed and self._asks.is_over(self.elapsed_s()):
            for each in self._postponed:
                self.prepare(each, again=True)
            self._postponed.clear()
        self._worked_us += 1e6 * (time.perf_counter() - begun)

    def _may_work(self, us: float) -> bool:
        """Return whether this process may do what takes so long, beside the program."""
        return self._worked_us + us <= WORK_SHARE * 1e6 * self.elapsed_s()

    def may_spend(self, us: float) -> bool:
        """Set time aside for a trial, if the time so far allows for it."""
        if self._spent_us + us > TRIALS_SHARE * 1e6 * self.elapsed_s():
            return False
        self.spend(us)
        return True

    def spend(self, us: float) -> None:
        """Count what trials take, or take longer than was set aside."""
        self._spent_us += max(0.0, us)

    def prepare(self, entry: Entry, again: bool = False) -> None:
        """Look up what the device takes for a product, or have a child process compute it."""
        if again:
            self._request(entry)
            return
        if entry.is_settled or (entry.estimate_us and self.is_open):
            return
        if entry.calls * entry.host.us < ENOUGH_US:
            return
        entry.is_settled = True
        if measured := _measured_us(_product_key(_signature(entry), entry.devices)):
            self._learn(entry, measured)
        else:
            self._missing.append(entry)

    def _request_missing(self, is_at_exit: bool = False) -> None:
        """Have those products computed that may gain by it, if they pay for a child process."""
        self._missing = [each for each in self._missing if each.may_gain(TOO_SLOW)]
        taken_us = sum(
            each.calls * each.host.us * (1 if each.has_blas else LIKELY_GAIN)
            for each in self._missing
        )
        if self._is_started or taken_us >= (LEAST_LEFT_US if is_at_exit else CHILD_COST_US):
            for each in self._missing:
                self._request(each, is_at_exit)
            self._missing.clear()

    def _request(self, entry: Entry, is_at_exit: bool = False) -> None:
        """Have a child process compute a product, unless one does."""
        if not may_prepare() or entry in self._requests.values():
            return
        from clgemm.hardware import trial

        # On a busy machine, child processes get no time else.
        is_urgent = entry.host.us >= LONG_US and not is_at_exit
        if not self._is_started:
            does_rest, outlives = not is_at_exit, is_at_exit
            self._is_started = self.is_working = trial.start(is_urgent, does_rest, outlives)
        if not self._is_started:
            if is_at_exit:
                return
            # The device is used unchecked, from the next large product on.
            log.info("no child process can be started: %s", trial.impossible())
            self.open()
            return
        a, b, shape = entry.operands
        key = _product_key(_signature(entry), entry.devices)
        arguments = {"device": _identity(entry.devices), "a": a, "b": b, "shape": shape}
        arguments |= {"precision": chosen_precision(), "key": key}
        arguments |= {"is_symmetric": entry.size_class[0] == "symmetric", "dtypes": entry.dtypes}
        number = trial.request("product", is_urgent, **arguments)
        if number is not None:
            self._requests[number] = entry
            entry.is_requested = self.is_working = True

    def _poll(self) -> None:
        """Take in what child processes have found."""
        from clgemm.hardware import trial

        answers = trial.answers()
        for number in [each for each in answers if each in self._requests]:
            answer, entry = answers.pop(number), self._requests.pop(number)
            if answer["outcome"] != "right":
                if answer["outcome"] == "unchecked":
                    log.info("a product was not prepared: %s", answer["reason"])
                    self._postponed.append(entry)
                    self._asks.begin(self.elapsed_s())
                continue
            self._learn(entry, 1e6 * answer["seconds"])
            if self.is_open:
                from clgemm.records import verdicts

                verdicts.learn_built(answer["built"], keep=False)
        found = trial.found_devices()
        if found is not None and found["device"] is None:
            self.give_up(found["problem"])
        self.is_working = bool(self._requests or progress())

    def _learn(self, entry: Entry, us: float) -> None:
        """Take over what another process has measured of a product, which is built then."""
        entry.is_ready, entry.estimate_us, entry.remaining = True, us, 0
        clock.of(entry.devices).add(entry.size_class, entry.work, us)
        self.gain_s += max(0.0, entry.host.us - us) * entry.host.runs * 1e-6

    def give_up(self, reason: str) -> None:
        """Leave all products to NumPy, with one warning."""
        self.reason, self.is_open = reason, False
        with contextlib.suppress(Exception):  # the program's logging handlers may raise anything
            _warn_once(f"clgemm: NumPy multiplies: {reason}")

    def _pays(self) -> bool:
        """Return whether to open the device now."""
        cost, elapsed = _opening_s(), self.elapsed_s()
        # A program that would take half the time may lose more, if it ends just after that.
        risk = max(OPENING_SHARE, (self.gain_s / elapsed) ** 2 / 4)
        if self.gain_s > cost and cost < risk * elapsed:
            return True
        return self._expected_s > WORTH * cost

    def open(self) -> bool:
        """Open the device, and return whether it is open."""
        if self.is_open or self.reason or self._is_opening:
            return self.is_open
        if not self._opens.is_over(self.elapsed_s()):
            return False
        self._is_opening = True  # a signal's handler may multiply meanwhile, and other threads do
        begun = time.perf_counter()
        try:
            open_chosen()
        except RecursionError:
            return False
        except MemoryError as error:  # other processes hold it
            self._opens.begin(self.elapsed_s())
            log.info("the device was not opened: %s", error)
            return False
        except Exception as error:
            self.give_up(str(error))
            return False
        finally:
            self._is_opening = False
        from clgemm.transfer import resident

        may_hold[:] = [resident.any_held]
        self.is_open = True
        clock.opening_s = time.perf_counter() - begun
        log.info("opened the device in %.2f s", clock.opening_s)
        return True

    def recall(self, entry: Entry) -> None:
        """Take over what the last run of this program has measured of a product."""
        if self._products and entry.devices is None:
            host, _, device = self._products.get(_signature(entry), (0.0, 0, 0.0))
            entry.host.us = entry.host.us or host
            entry.estimate_us = entry.estimate_us or device

    def look_up(self, entry: Entry) -> None:
        """Take over what is stored of a product and of those like it, without any preparation."""
        self.read()
        self.recall(entry)
        key = _product_key(_signature(entry), entry.devices)
        entry.estimate_us = entry.estimate_us or _measured_us(key)

    def read(self) -> None:
        """Read what the last run of this program has found, and what this machine is known for."""
        if self._has_read:
            return
        self._has_read = True
        clock.load(recall(_machine_key()))
        self._program = _program_key()  # at exit, Python has forgotten the script
        atexit.register(self._write)
        before = recall(self._program)
        if not isinstance(before, dict):
            return
        products = before.get("products")
        for key, found in products.items() if isinstance(products, dict) else ():
            if not _are_times(found):
                continue
            host, calls, device = found
            device = device or _measured_us(_product_key(key))
            self._products[key] = host, calls, device
            if device:
                self._expected_s += 1e-6 * calls * max(0.0, host - device)

    def _write(self) -> None:
        """Store what this run has found, for the next one."""
        if self is not state:
            return
        with contextlib.suppress(Exception):  # the program is over: nothing may go wrong now
            known = [e for e in entries.values() if e.host.us and e.devices is None]
            known.sort(key=lambda e: -e.calls * e.host.us)
            products = {
                _signature(e): [e.host.us, e.calls, e.device.us] for e in known[:MOST_STORED]
            }
            remember(self._program, {"products": products})
            remember(_machine_key(), clock.as_dict())
            if not (self.reason or self._is_started):
                self._request_missing(is_at_exit=True)


state = State()


def progress() -> str:
    """Return how far the background work is, in words; "" if there is none."""
    trial = sys.modules.get("clgemm.hardware.trial")
    found = trial.status() if trial is not None else {}
    if not found or found.get("done") == found.get("total") or state.reason:
        return ""
    done, total = found.get("done", 0), found.get("total", 0)
    return f"preparing: {done} of {total} parts done, {found['seconds']:.0f} s"


def begin() -> None:
    """Start a child process beside this process's imports, for the first product of `sgemm`.

    Where a process of this user has already opened a device, nothing is likely to be missing.
    """
    if "pyopencl" in sys.modules or recall(OPENED) is not None:
        return
    from clgemm.hardware import trial

    if trial.start(is_urgent=True, does_rest=may_prepare()):
        remember(OPENED, True)


def load() -> None:
    """Import what a product on a device takes, and start the drivers meanwhile."""
    from clgemm.hardware.runtimes import start_drivers

    start_drivers()
    import clgemm.runtime.finite
    import clgemm.transfer.call_cache
    import clgemm.transfer.multiply  # noqa: F401 - for what it imports


def open_chosen() -> None:
    """Open the chosen device.

    Raises
    ------
    RuntimeError, ValueError
        As `clgemm.hardware.choice.chosen`.
    """
    load()
    from clgemm.hardware.choice import chosen

    assert chosen()[0].queue is not None


def _opening_s() -> float:
    """Return what opening the device is expected to take this process."""
    return clock.opening_s or OPENING_S


def _identity(devices: Any) -> Any:
    """Return the first of the named devices as another process finds it; None if none is named."""
    if devices is None:
        return None
    from clgemm.hardware.device import identity

    return identity(devices[0])


def _signature(entry: Entry) -> str:
    """Return the name of a product on disk."""
    import hashlib

    text = f"{entry.name} {entry.size_class[0]} {entry.operands}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _product_key(name: str, devices: Any = None) -> str:
    """Return the key of what a product takes on the named devices."""
    where = "" if devices is None else f" {_identity(devices)}"
    return f"product {name}, {chosen_precision()}{where}, {_machine_key()}"


def _measured_us(key: str) -> float:
    """Return what another process has measured of a product on the device; 0.0 if none has."""
    found = recall(key)
    return 1e6 * found if isinstance(found, float) else 0.0


def _are_times(found: Any) -> bool:
    """Return whether these are what `State` stores of a product: a user may edit the file."""
    return (
        isinstance(found, list)
        and len(found) == 3
        and all(type(each) in (int, float) and 0 <= each < LONGEST_TIME for each in found)
    )


def _program_key() -> str:
    """Return the key of what is stored of this program: a script, or code, with its arguments."""
    import hashlib

    file = getattr(sys.modules.get("__main__"), "__file__", None)
    what = sys.orig_argv[1:]
    if file:
        what = [os.path.abspath(file), *sys.argv[1:]]  # noqa: PTH100 - quicker
    digest = hashlib.sha256("\0".join(what).encode("utf-8", "replace"))
    return f"program {digest.hexdigest()[:16]}: {_machine_key()}"


def _machine_key() -> str:
    """Return the key of what is stored of this machine: both sides, as far as is known unopened."""
    named = os.environ.get(DEVICE_VARIABLE, "")
    return f"sides of {named or 'the default device'}, {_machine()}"


@functools.cache
def _machine() -> str:
    """Return what the times on either side depend on, as far as a process sees it at once."""
    found = [os.environ.get(name, "") for name in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")]
    vendors = found[0] or found[1] or "/etc/OpenCL/vendors"
    found += gpu_nodes()
    with contextlib.suppress(OSError):
        names = os.listdir(vendors)  # noqa: PTH208 - quicker
        found += sorted(name for name in names if name.endswith(".icd"))
    return f"{blas_label()}, {sys.prefix}, {' '.join(found)}"


@functools.cache
def _warn_once(message: str) -> None:
    log.warning("%s", message)


def _after_fork() -> None:
    """Begin anew in a forked child. OpenCL does not survive a fork, if the parent has opened it."""
    global state
    running.clear()
    before, state = state, State()
    if before.is_open:
        from clgemm.hardware.forks import FORKED

        state.reason = FORKED


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
