"""Host or device: the one place that decides, for NumPy's functions here and for NumPy itself.

The products of a call signature are compared by what they take on either side, in microseconds.
NumPy makes the first ones, which measures the host. A child process makes the same product
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
from typing import Any, NamedTuple

from clgemm.core.cache import note
from clgemm.core.problem import broadcast_batch
from clgemm.core.settings import named
from clgemm.core.threads import RejectedError
from clgemm.numpy_rules import EXACT_KIND, Request, Sizes
from clgemm.runtime.operands import own_transpose
from clgemm.side import preparation
from clgemm.side.clock import Class, Times, class_of
from clgemm.side.preparation import BEING_PREPARED, entries, running
from clgemm.side.settings import NAMES, VALUES, is_ruled, quick_rule, rule

__all__ = [
    "Entry",
    "Operands",
    "Side",
    "describe",
    "find",
    "is_ruled",
    "on_host",
    "quick_test",
]

# Products that take NumPy less than any device's call. NumPy makes a column times a row by a loop
# of its own, which takes longer.
LEAST_WORK, LEAST_BY_LOOP = 2**20, 2**16  # multiply-adds
LEAST_SCATTERED = 2**20  # elements of a matrix without neighbours, which NumPy copies first
LEAST_BY_ELEMENTS = 2**11  # multiply-adds of a dot with more than two axes
MOST_ENTRIES = 4096
MARGIN = 0.97  # the device makes a product if it takes less than this part of the host's time
NEAR = 2.0  # the other side is tried if it is expected to take at most so many times as long
TRIAL_RUNS = 2  # of which the first, which may touch memory for the first time, does not count
VERY_NEAR = 1.15  # the same for later trials
FIRST_TRIAL, LATER_TRIALS = 3, 8  # products before the first trial; how many times as many later
# For how many products a decision holds before it is taken again. Those of NumPy are not even
# timed meanwhile, for so many microseconds.
MOST_KEPT, MOST_PASSED, PASSED_US = 64, 256, 5e3

ALWAYS = 2**62  # products

# Why NumPy makes a product.
HOST_FASTER, UNKNOWN, SMALL = "the host is faster", "not known yet", "size"
NOT_OPEN, REFUSED = "opening the device would not pay yet", "dtype"

# The shape and the strides, in elements, of A and of B, as batches of matrices; the shape of C.
Operands = tuple[tuple[Any, ...], tuple[Any, ...], tuple[int, ...]]


class Side(NamedTuple):
    """A side's expected time.

    Attributes
    ----------
    us : float
        Microseconds; 0.0 if nothing is known.
    source : str
        Where that comes from.
    """

    us: float
    source: str


class Entry:
    """What is known of the products of one call signature.

    Attributes
    ----------
    work : int
        Multiply-adds.
    of : Class
        Its class, whose products compute about as fast.
    devices : tuple of Device or None
        Those that the program had named.
    host, device : Times
        Measured in this program.
    promised : float
        Microseconds on the device, as another process has measured or found them; 0.0 if unknown.
    dtypes : tuple of str
        Those of A, B and C, if they are not float32.
    is_requested : bool
        Whether a child process was asked to make the product.
    is_settled : bool
        Whether that is not to be asked again.
    is_ready : bool
        Whether nothing is to be built for it, as far as is known.
    waits : bool
        Whether the product that is made now waits for the device: NumPy takes longer than that.
    on_device : bool
        The side that was chosen last.
    left, passed : int
        Products for which that still holds, and those of NumPy that were made since without a look.
    """

    __slots__ = (
        "calls",
        "counts",
        "device",
        "devices",
        "dtypes",
        "host",
        "is_ready",
        "is_requested",
        "is_settled",
        "left",
        "name",
        "of",
        "on_device",
        "operands",
        "passed",
        "promised",
        "reason",
        "size_bytes",
        "trial",
        "trials",
        "waits",
        "work",
    )

    def __init__(self, name: str, work: int, of: Class, operands: Operands) -> None:
        self.name, self.work, self.of, self.operands = name, work, of, operands
        self.devices = named()
        self.host, self.device = Times(), Times()
        self.promised, self.calls, self.left, self.passed = 0.0, 0, 0, 0
        self.is_requested = self.is_settled = self.on_device = self.waits = False
        self.is_ready = True
        self.trial = self.trials = (
            0  # runs of a trial that are left, and how many trials there were
        )
        self.reason, self.size_bytes = UNKNOWN, 0
        self.dtypes: tuple[str, ...] = ()
        self.counts: dict[str, tuple[int, float]] = {}  # calls and microseconds, by reason

    def made(self) -> list[tuple[str, int, float]]:
        """Return why the host made products, "" for the device, how many, and their time."""
        found = [(reason, *each) for reason, each in list(self.counts.items())]
        if passed := self.passed:
            found.append((self.reason or HOST_FASTER, passed, passed * self.host.us))
        return found

    @property
    def offloaded_bytes(self) -> int:
        """Size of the operands and results of the products on the device."""
        return self.size_bytes * self.counts.get("", (0, 0.0))[0]

    def reset(self) -> None:
        """Count from zero."""
        self.counts, self.passed = {}, 0

    def _count(self, reason: str, us: float, number: int = 1) -> None:
        calls, total = self.counts.get(reason, (0, 0.0))
        self.counts[reason] = calls + number, total + number * us

    def expected_host(self) -> Side:
        """Return the host's expected time."""
        if self.host.us:
            return Side(self.host.us, f"measured, {self.host.runs} times")
        us = preparation.clock.host.us(self.of, self.work)
        return Side(us, "from products like it" if us else "unknown")

    def expected_device(self) -> Side:
        """Return the device's expected time."""
        if self.device.us:
            return Side(self.device.us, f"measured, {self.device.runs} times")
        if self.promised:
            return Side(self.promised, "measured in another process")
        us = preparation.clock.of(self.devices).us(self.of, self.work)
        return Side(us, "from products like it" if us else "unknown")

    def goes_to_device(self) -> bool:
        """Decide the side of the product that is to be made now."""
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            return self.on_device
        state = preparation.state
        self.waits = (not state.is_open or not self.is_ready) and state.is_worth_waiting(self)
        if self.waits:
            return True
        if not state.is_open:
            self.reason = self._reason_while_closed()
            return False
        self.on_device = self._decided()
        return self.on_device

    def would_go(self) -> bool:
        """Tell which side is taken, without a product; this tries nothing."""
        host, device = self.expected_host().us, self.expected_device().us
        if not (host and device and self.is_ready):
            self.reason = BEING_PREPARED if self.is_requested or device else UNKNOWN
            return False
        wanted = device < MARGIN * host
        self.reason = "" if wanted else HOST_FASTER
        return wanted

    def _reason_while_closed(self) -> str:
        """Return why NumPy makes the product before the device is open."""
        host, device = self.expected_host().us, self.expected_device().us
        if not device:
            return BEING_PREPARED if self.is_requested else UNKNOWN
        return NOT_OPEN if host and device < MARGIN * host else HOST_FASTER

    def _decided(self) -> bool:
        if self.trial > 0:
            self.trial -= 1
            if self.trial:
                return self.on_device
        wanted = self.would_go()
        host, device = self.expected_host().us, self.expected_device().us
        if not (host and device and self.is_ready):
            return False
        if self._may_try(host, device, is_on_device=not wanted):
            self.trial, self.trials = TRIAL_RUNS, self.trials + 1
            return not wanted
        self.left = min(self.calls, MOST_KEPT)
        return wanted

    def _may_try(self, host: float, device: float, is_on_device: bool) -> bool:
        """Tell whether to try a side that is expected to take longer.

        It is near, the product repeats, and the time so far allows for it.
        """
        ratio = max(host, device) / min(host, device)
        if ratio > (NEAR if not self.trials else VERY_NEAR):
            return False
        if self.calls < FIRST_TRIAL * LATER_TRIALS**self.trials:
            return False
        known = self.device if is_on_device else self.host
        if known.runs >= TRIAL_RUNS and not self.trials:
            return False
        return preparation.state.may_spend(TRIAL_RUNS * abs(host - device) + max(host, device))

    def stays(self) -> bool:
        """Decide, and tell whether NumPy makes the product."""
        return not self.goes_to_device()

    def note_host(self, us: float) -> None:
        """Record how long NumPy took."""
        number, self.passed = 1 + self.passed, 0
        self.calls += number - 1
        self._count(self.reason or HOST_FASTER, us, number)
        if preparation.running:
            self.host.add_bound(us)
        else:
            self.host.add(us)
            preparation.clock.host.add(self.of, self.work, us)
        if not self.trial:
            self.left = min(self.calls, MOST_PASSED, int(PASSED_US / us))
        preparation.state.saw(self, us, number)

    def note_device(self, us: float) -> None:
        """Record how long the device took. The first time includes what happens only once."""
        self._count("", us)
        if self.device.runs:
            self.device.add(us)
            preparation.clock.of(self.devices).add(self.of, self.work, us)
        else:
            self.device.runs = 1
            self.promised = self.promised or us
        if self.host.us:
            preparation.state.gained(self.host.us - us)

    def refuse(self) -> None:
        """Record that the device does not make such products."""
        self.left, self.on_device, self.reason = ALWAYS, False, REFUSED

    def not_ready(self) -> None:
        """Record that kernels are missing: the device makes the product once they are built."""
        self.is_ready = self.on_device = False
        self.left = self.trial = 0
        self.reason = BEING_PREPARED
        preparation.state.prepare(self, again=True)


class _Small(Entry):
    """Products that take NumPy less than any device's call: they are counted, and not timed."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, 0, class_of("small", 0, 0), ((), (), ()))
        self.left, self.reason = ALWAYS, SMALL

    def goes_to_device(self) -> bool:
        return False

    def note_host(self, us: float) -> None:  # noqa: ARG002 - as `Entry` has it
        self.passed += 1


def quick_test(
    name: str, count: Callable[[], object], least: int | None = None
) -> Callable[..., bool]:
    """Return a test of two float32 arrays, neither a scalar: whether NumPy makes their product.

    It is true for small products, and for those that NumPy is known to make faster. The test is one
    piece of code that touches little memory: between long products, nothing of it is in the caches.

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
                if out is not None or (may_hold and may_hold[0]()):
                    return False
                base = b.base
                if base is not None and (base is a or base is a.base):  # perhaps its transpose
                    return False
                devices = by_block() or named.by_process
                known = get((name, a.shape, b.shape, a.strides, b.strides, devices))
                if known is None or known.left <= 0 or known.on_device:
                    return False
                known.left -= 1
                known.passed += 1
                return True
        count()
        return True

    return test


def find(name: str, a: Any, b: Any, out: Any) -> Entry | None:
    """Return what is known of a product of NumPy's own arrays; None if it is to be described."""
    return entries.get(_key(name, a, b, out))


def _key(name: str, a: Any, b: Any, out: Any) -> Any:
    """Return what products must have in common so that they take the same time."""
    key: Any = (name, a.shape, b.shape, a.strides, b.strides, named())
    if out is not None:
        key = (*key, "out")
    if own_transpose(a, b):
        key = (*key, "symmetric")
    if preparation.may_hold and preparation.may_hold[0]():
        regions = sys.modules["clgemm.transfer.resident"]
        key = (*key, bool(regions.containing(a)), bool(regions.containing(b)))
    return key


def describe(request: Request) -> Entry:
    """Return the entry of a product, made at the first one."""
    name, a, b, dtypes = request.name, request.a, request.b, request.dtypes
    key = _key(name, a, b, request.out)
    if (found := entries.get(key)) is not None:
        return found
    m, n, k, matrices = request.sizes
    x, y = request.operands()
    batch = broadcast_batch(x.shape[:-2], y.shape[:-2])
    shape = (*batch, x.shape[-2], y.shape[-1])
    lying = tuple((z.shape, tuple(s // z.itemsize for s in z.strides)) for z in (x, y))
    kind = "symmetric" if own_transpose(a, b) and not dtypes else request.kind
    of = class_of(kind, m * n * k * matrices, min(m, n, k))
    entry = Entry(name, m * n * k * matrices, of, (lying[0], lying[1], shape))
    entry.dtypes = dtypes
    preparation.state.recall(entry)
    note(entries, key, entry, MOST_ENTRIES)
    return entry


def note_small(request: Request) -> None:
    """Take note of a product that `is_negligible`, so that the next one is found at once."""
    name, a, b = request.name, request.a, request.b
    note(entries, _key(name, a, b, request.out), _Small(name), MOST_ENTRIES)


def on_host(entry: Entry, product: Callable[..., Any], *arguments: Any) -> Any:
    """Make a product by NumPy, and record how long that takes."""
    thread = threading.get_ident()
    running[thread] = entry
    begun = time.perf_counter()
    try:
        result = product(*arguments)
    finally:
        running.pop(thread, None)
    entry.note_host(1e6 * (time.perf_counter() - begun))
    return result


def on_device(entry: Entry, product: Callable[[], Any]) -> tuple[Any] | None:
    """Make a product on the device, and record how long that takes.

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
        entry.refuse()
        return None
    finally:
        running.pop(thread, None)
    entry.note_device(1e6 * (time.perf_counter() - begun))
    return (result,)


def is_negligible(sizes: Sizes, kind: str) -> bool:
    """Tell whether NumPy makes a product faster than any device's call, by how it computes it."""
    work = math.prod(sizes)
    if kind.startswith(EXACT_KIND):
        return False
    if kind == "elements":
        return work < LEAST_BY_ELEMENTS
    if kind == "loop":
        return sizes[0] * sizes[1] * sizes[3] < LEAST_BY_LOOP and work < LEAST_SCATTERED
    return kind != "copied" and work < LEAST_WORK


def ruled(work: int, own_rule: int | None = None) -> bool | None:
    """Return whether a rule of the user's sends a product to the device; None without a rule.

    Parameters
    ----------
    own_rule : int, optional
        Multiply-adds from which on the device multiplies, in place of the environment's.

    Raises
    ------
    ValueError
        If CLGEMM_THRESHOLD or CLGEMM_SIDE is wrong.
    """
    least = own_rule if own_rule is not None else rule() if is_ruled() else None
    return None if least is None else work >= least
