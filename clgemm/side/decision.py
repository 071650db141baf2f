"""Host or device: the one place that decides, for NumPy's functions here and for NumPy itself.

The products of a call signature are compared by what they take on either side, in microseconds.
NumPy computes the first ones, which measures the host. A child process computes the same product
meanwhile, which measures the device and builds its kernels (`clgemm.side.preparation`). Later
products correct both.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from clgemm.core.cache import note
from clgemm.core.problem import broadcast_batch
from clgemm.core.settings import NAMES, VALUES, named, quick_rule
from clgemm.core.threads import RejectedError
from clgemm.numpy_rules import COMPLEX64, COMPLEX128, EXACT_KIND, FLOAT64, Request, Sizes
from clgemm.runtime.operands import own_transpose
from clgemm.side import preparation
from clgemm.side.clock import Times, size_class
from clgemm.side.counts import (
    BEING_PREPARED,
    DEVICE,
    DTYPE,
    HOST_FASTER,
    NOT_OPEN,
    SMALL,
    UNKNOWN,
    Row,
    counts,
)
from clgemm.side.preparation import entries, running

# Products that take NumPy less than any device's call. NumPy computes a column times a row by a
# loop of its own, which takes longer.
LEAST_WORK, LEAST_BY_LOOP = 2**20, 2**16  # multiply-adds
LEAST_SCATTERED = 2**20  # elements of a matrix without neighbours, which NumPy copies first
LEAST_BY_ELEMENTS = 2**11  # multiply-adds of a dot with more than two axes
MOST_ENTRIES = 4096
BLAS_DTYPES = tuple(map(str, (FLOAT64, COMPLEX64, COMPLEX128)))  # besides float32
MARGIN = 0.97  # the device computes a product if it takes less than this part of the host's time
MOST_SLOWER = 8.0  # than the highest rate of either side: a device of which nothing is known
NEAR = 2.0  # the other side is tried if it is expected to take at most so many times as long
TRIAL_RUNS = 2  # of which the first, which may touch memory for the first time, does not count
SETTLING_RUNS = 5  # the most first runs on the device that do not count
VERY_NEAR = 1.15  # the same for later trials
FIRST_TRIAL, LATER_TRIALS = 3, 8  # products before the first trial; how many times as many later
# For how many products a decision holds before it is taken again. Those of NumPy are not even
# timed meanwhile, for so many microseconds.
MOST_KEPT, MOST_UNTIMED, UNTIMED_US = 64, 256, 5e3
ALWAYS = 2**62  # products

# The shape and the strides, in elements, of A and of B, as batches of matrices; the shape of C.
Operands = tuple[tuple[Any, ...], tuple[Any, ...], tuple[int, ...]]


class Entry:
    """What is known of the products of one call signature.

    Parameters
    ----------
    name : str
        NumPy's function, with what else tells the signatures apart.
    sizes, kind : tuple of int, str
        As in `Request`.
    dtypes, size_bytes : tuple of str, int, optional
        As in `Request`.

    Attributes
    ----------
    work : int
        Multiply-adds.
    size_class : SizeClass
        The class of products that compute about as fast.
    devices : tuple of Device or None
        Those that the program had named.
    host, device : Times
        Measured in this program.
    estimate_us : float
        Microseconds on the device, as another process has measured or found them; 0.0 if unknown.
    calls : int
        How often the product was computed, `untimed` apart.
    is_requested : bool
        Whether a child process was asked to compute the product.
    is_settled : bool
        Whether that is not to be asked again.
    is_timed : bool
        Whether NumPy's product is timed if NumPy computes it now.
    is_ready : bool
        Whether nothing is to be built for it, as far as is known.
    waits : bool
        Whether the product that is computed now waits for the device: NumPy takes longer than that.
    on_device : bool
        The side that was chosen last.
    reason : str
        Why it was the host.
    remaining, untimed : int
        Products for which that still holds, and those that NumPy has computed since without a look.
    trial, trials : int
        Runs of a trial that are left, and how many trials there were.
    """

    __slots__ = (
        "calls",
        "device",
        "devices",
        "dtypes",
        "estimate_us",
        "host",
        "is_ready",
        "is_requested",
        "is_settled",
        "is_timed",
        "name",
        "on_device",
        "operands",
        "reason",
        "remaining",
        "size_bytes",
        "size_class",
        "trial",
        "trials",
        "untimed",
        "waits",
        "work",
    )

    def __init__(
        self,
        name: str,
        sizes: Sizes,
        kind: str,
        operands: Operands,
        dtypes: tuple[str, ...] = (),
        size_bytes: int = 0,
    ) -> None:
        self.name, self.operands, self.dtypes, self.size_bytes = name, operands, dtypes, size_bytes
        self.work = math.prod(sizes)
        self.size_class = size_class(kind, self.work, min(sizes[:3]))
        self.devices = named()
        self.host, self.device, self.estimate_us = Times(), Times(), 0.0
        self.calls = self.remaining = self.untimed = self.trial = self.trials = 0
        self.is_requested = self.is_settled = self.on_device = self.waits = False
        self.is_ready = self.is_timed = True
        self.reason = UNKNOWN

    @property
    def function(self) -> str:
        """NumPy's function."""
        return self.name.partition(" ")[0]

    @property
    def has_blas(self) -> bool:
        """Whether NumPy has a BLAS for the dtype, in place of loops of its own."""
        return not self.dtypes or self.size_class[0].endswith(BLAS_DTYPES)

    def expected_us(self) -> tuple[float, float]:
        """Return the expected times of the host and of the device; 0.0 where nothing is known."""
        clock, of = preparation.clock, self.size_class
        host = self.host.us or clock.host.us(of, self.work)
        known = self.device.us or self.estimate_us
        return host, known or clock.of(self.devices).us(of, self.work)

    def goes_to_device(self) -> bool:
        """Decide the side of the product that is to be computed now."""
        self.is_timed = self.remaining <= 0
        self.calls += self.is_timed or self.on_device  # `untimed` holds the others
        if self.remaining > 0:
            self.remaining -= 1
            return self.on_device
        state = preparation.state
        self.waits = (not state.is_open or not self.is_ready) and state.is_worth_waiting(self)
        if self.waits:
            return True
        if state.is_open:
            self.on_device = self._decided()
            return self.on_device
        self.is_faster_on_device()  # for the reason
        return False

    def is_faster_on_device(self) -> bool:
        """Return whether the device is expected to be faster. `reason` then says why it is not.

        No trial begins by that.
        """
        if self.reason == DTYPE:  # rejected, for good
            return False
        host, device = self.expected_us()
        is_open = preparation.state.is_open
        if not device or (is_open and not (host and self.is_ready)):
            self.reason = BEING_PREPARED if self.is_requested or device else UNKNOWN
            return False
        is_faster = device < MARGIN * host
        if is_faster:
            self.reason = DEVICE if is_open else NOT_OPEN
        else:
            self.reason = HOST_FASTER
        return is_faster

    def may_gain(self, least: float) -> bool:
        """Return whether nothing says that the device takes so many times as long as NumPy."""
        host, device = self.expected_us()
        return not device > least * host > 0

    def _decided(self) -> bool:
        if self.trial > 0:
            self.trial -= 1
            if self.trial:
                return self.on_device
        is_faster = self.is_faster_on_device()
        if self.reason in (DEVICE, HOST_FASTER):  # both times are known
            is_tried = self._may_try(is_on_device=not is_faster)
            self.remaining = 0 if is_tried else min(self.calls, MOST_KEPT)
        else:
            is_tried = self._may_try_unknown()
        if is_tried:
            self.trial, self.trials = TRIAL_RUNS, self.trials + 1
        return not is_faster if is_tried else is_faster

    def _may_try(self, is_on_device: bool) -> bool:
        """Return whether to try a side that is expected to take longer.

        It is near, the product repeats, and the time so far allows for it.
        """
        host, device = self.expected_us()
        ratio = max(host, device) / min(host, device)
        # NumPy gets another trial in any case: it may have been measured beside something else.
        if ratio > (VERY_NEAR if self.trials else NEAR) and (is_on_device or self.trials > 1):
            return False
        if self.calls < FIRST_TRIAL * LATER_TRIALS**self.trials:
            return False
        if is_on_device and self.device.runs >= TRIAL_RUNS and not self.trials:
            return False
        return preparation.state.may_spend(TRIAL_RUNS * abs(host - device) + max(host, device))

    def _may_try_unknown(self) -> bool:
        """Return whether to try a device of which nothing is known for such products.

        A child process may not get a processor beside the program, and the device's own time is
        short in any case where NumPy takes longer than the device's shortest product.
        """
        host, least = self.host.us, preparation.clock.of(self.devices).least_us
        if self.reason == DTYPE or self.trials or not self.is_ready or host <= least:
            return False
        # NumPy's first products may take longer than later ones.
        if self.calls < FIRST_TRIAL or self.calls * host < preparation.ENOUGH_US:
            return False
        return preparation.state.may_spend(TRIAL_RUNS * self._most_us())

    def _most_us(self) -> float:
        """Return the microseconds that the device is not expected to exceed.

        Some products take NumPy's BLAS far longer than others of as many multiply-adds.
        """
        rates = preparation.clock.of(self.devices)
        at_least = max(preparation.clock.host.greatest, rates.greatest) / MOST_SLOWER
        by_rate = rates.least_us + self.work / at_least if at_least else math.inf
        return min(NEAR * self.host.us, by_rate)

    def record_host(self, us: float) -> None:
        """Record how long NumPy took."""
        number, self.untimed = 1 + self.untimed, 0
        self.calls += number - 1
        counts.add(self.function, self.reason or HOST_FASTER, number * us * 1e-6, number)
        rates = preparation.clock.host
        if running or preparation.state.is_working:
            self.host.add_bound(us)
            rates.add_bound(self.size_class, self.work, us)
        else:
            self.host.add(us)
            rates.add(self.size_class, self.work, us)
        if not self.trial:
            self.remaining = min(self.calls, MOST_UNTIMED, int(UNTIMED_US / us))
        preparation.state.advance(self, us, number)

    def record_device(self, us: float) -> None:
        """Record how long the device took. The first time includes what happens only once."""
        counts.add(self.function, DEVICE, us * 1e-6, size_bytes=self.size_bytes)
        if self.trial:  # it may have taken longer than was set aside for it
            preparation.state.spend(us - self._most_us())
        if self.device.runs and not self._settles(us):
            self.device.add(us)
            preparation.clock.of(self.devices).add(self.size_class, self.work, us)
        else:
            self.device.runs += 1
            self.estimate_us = self.estimate_us or us
        if self.host.us:
            preparation.state.gain_s += 1e-6 * (self.host.us - us)
            if us > self.host.us and not self.trial:  # slower than expected
                self.remaining = 0

    def _settles(self, us: float) -> bool:
        """Return whether the device is not at its usual speed yet, after so long a product.

        An earlier process was faster, and a few more such products are within what trials may take.
        """
        if self.device.us or self.device.runs >= SETTLING_RUNS or us < NEAR * self.estimate_us:
            return False
        return preparation.state.may_spend(us - self.estimate_us)

    def untimed_row(self) -> tuple[str, str, int, float]:
        """Return the function, reason, number and seconds of each of the untimed products."""
        return self.function, self.reason or HOST_FASTER, self.untimed, self.host.us * 1e-6

    def reject(self) -> None:
        """Record that the device does not compute such products."""
        self.on_device, self.reason = False, DTYPE

    def not_ready(self) -> None:
        """Record that kernels are missing: the device computes the product once they are built."""
        self.is_ready = self.on_device = False
        self.remaining = self.trial = 0
        self.reason = BEING_PREPARED
        preparation.state.prepare(self, again=True)


class _Small(Entry):
    """Products that take NumPy less than any device's call: they are counted, and not timed."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, (0, 0, 0, 0), "small", ((), (), ()))
        self.remaining, self.reason = ALWAYS, SMALL


def quick_test(
    name: str, count: Callable[[], object], least: int | None = None
) -> Callable[..., bool]:
    """Return a test of two float32 arrays, neither a scalar: whether NumPy computes their product.

    It is true for small products, and for those that NumPy is known to compute faster. The test is
    one piece of code that touches little memory: between long products, nothing of it is in the
    caches.

    Parameters
    ----------
    name : str
        NumPy's function.
    count : callable
        Called for each small product.
    least : int, optional
        Multiply-adds from which on the device multiplies, in place of measured times.
    """
    by_block, get, may_hold = named.by_block.get, entries.get, preparation.may_hold
    (first, second), values = NAMES, VALUES

    def test(a: Any, b: Any, out: Any = None) -> bool:
        size = a.size * b.size
        rule = least
        if rule is None and (first in values or second in values):
            rule = quick_rule(values.get(first), values.get(second))
        if rule is not None:  # a product of two matrices has m k * k n / k multiply-adds
            if size >= rule * (a.shape[1] if a.ndim == b.ndim == 2 else 1):
                return False
        elif size >= LEAST_BY_LOOP:
            largest = max(a.size, b.size)
            if a.ndim == b.ndim == 2:
                k = a.shape[1]
                is_small = k > 1 and size < LEAST_WORK * k and largest < LEAST_SCATTERED
            else:  # a vector's product has as many multiply-adds as the other operand's elements
                is_small = a.ndim + b.ndim < 4 and largest < LEAST_WORK
            if not is_small:
                if may_hold and may_hold[0]():
                    return False
                base = b.base
                if base is not None and (base is a or base is a.base):  # perhaps its transpose
                    return False
                devices = by_block() or named.by_process
                # A hash alone: to compare a key would touch the memory of all its parts.
                key = (name, a.shape, b.shape, a.strides, b.strides, devices, out is None)
                known = get(hash(key))
                if known is None or known.remaining <= 0 or known.on_device:
                    return False
                known.remaining -= 1
                known.untimed += 1
                return True
        count()
        return True

    return test


def find(name: str, a: Any, b: Any, out: Any) -> Entry | None:
    """Return what is known of a product of NumPy's own arrays; None if it is to be described."""
    return entries.get(_key(name, a, b, out))


def _key(name: str, a: Any, b: Any, out: Any) -> int:
    """Return a hash of what products must have in common so that they take the same time."""
    key: Any = (name, a.shape, b.shape, a.strides, b.strides, named(), out is None)
    if own_transpose(a, b):
        key = (*key, "symmetric")
    if preparation.may_hold and preparation.may_hold[0]():
        resident = sys.modules["clgemm.transfer.resident"]
        key = (*key, bool(resident.containing(a)), bool(resident.containing(b)))
    return hash(key)


def describe(request: Request) -> Entry:
    """Return the entry of a product, created at the first one, also if it `is_negligible`."""
    name, a, b, dtypes = request.name, request.a, request.b, request.dtypes
    key = _key(name, a, b, request.out)
    if (found := entries.get(key)) is not None:
        return found
    if is_negligible(request.sizes, request.kind):
        entry: Entry = _Small(name)
    else:
        x, y = request.operands()
        batch = broadcast_batch(x.shape[:-2], y.shape[:-2])
        shape = (*batch, x.shape[-2], y.shape[-1])
        lying = tuple((z.shape, tuple(s // z.itemsize for s in z.strides)) for z in (x, y))
        kind = "symmetric" if own_transpose(a, b) and not dtypes else request.kind
        operands = lying[0], lying[1], shape
        entry = Entry(name, request.sizes, kind, operands, dtypes, request.size_bytes)
        preparation.state.recall(entry)
    if len(entries) >= MOST_ENTRIES:
        for kept in list(entries.values()):
            if kept.untimed:
                counts.add_untimed(*kept.untimed_row())
    note(entries, key, entry, MOST_ENTRIES)
    return entry


def on_host(entry: Entry, product: Callable[..., Any], *arguments: Any) -> Any:
    """Compute a product by NumPy, and record how long that takes, unless that is known."""
    if not entry.is_timed:
        entry.untimed += 1
        return product(*arguments)
    thread = threading.get_ident()
    running[thread] = entry
    begun = time.perf_counter()
    try:
        result = product(*arguments)
    finally:
        running.pop(thread, None)
    entry.record_host(1e6 * (time.perf_counter() - begun))
    return result


def on_device(entry: Entry, product: Callable[[], Any]) -> tuple[Any] | None:
    """Compute a product on the device, and record how long that takes.

    Returns
    -------
    tuple or None
        None if the device is not ready for it: nothing was done then.
    """
    from clgemm.runtime.readiness import NotReadyError, optional

    thread = threading.get_ident()
    running[thread] = entry
    begun = time.perf_counter()
    try:
        with contextlib.nullcontext() if entry.waits else optional():
            result = product()
    except NotReadyError:
        entry.not_ready()
        return None
    except RejectedError:
        entry.reject()
        return None
    finally:
        running.pop(thread, None)
    entry.record_device(1e6 * (time.perf_counter() - begun))
    return (result,)


def is_negligible(sizes: Sizes, kind: str) -> bool:
    """Return whether a product takes NumPy less than any device's call, by its kind."""
    work = math.prod(sizes)
    if kind.startswith(EXACT_KIND):
        return False
    if kind == "elements":
        return work < LEAST_BY_ELEMENTS
    if kind == "loop":
        return sizes[0] * sizes[1] * sizes[3] < LEAST_BY_LOOP and work < LEAST_SCATTERED
    return kind != "copied" and work < LEAST_WORK


def rows() -> tuple[Row, ...]:
    """Return all counts, with those of the products that NumPy computed without a look."""
    untimed = [entry.untimed_row() for entry in list(entries.values()) if entry.untimed]
    return tuple(counts.rows(untimed))


def reset_counts() -> None:
    """Set all counts to zero."""
    counts.reset()
    for entry in list(entries.values()):
        entry.untimed = 0
