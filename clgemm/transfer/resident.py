"""Resident arrays: host memory of which devices keep a copy, so that products need not send it.

A device that uses host memory in place needs no copies and gets none. A product uses the copies in
place of its operands, and makes sure that the memory still is what was copied.
"""

from __future__ import annotations

import logging
import math
import threading
import warnings
import weakref
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from clgemm.core.threads import ForkableLock
from clgemm.hardware.choice import chosen
from clgemm.hardware.device import Device, transfer_config
from clgemm.hardware.forks import keep_in_children, require_unforked
from clgemm.kernels.exact.types import RESULTS
from clgemm.runtime.digests import ROW, Comparison, Digests, Part, digests
from clgemm.runtime.operands import (
    AnyArray,
    Matrix,
    address_of,
    alignment,
    indexable,
    layout_of,
    span_of,
)
from clgemm.runtime.protection import Guard, protect
from clgemm.runtime.workspace import workspace
from clgemm.runtime.write_tracking import Tracking, track
from clgemm.transfer.staging import any_staging

log = logging.getLogger(__name__)

SHARE = 0.25  # of a device's memory, for all copies together
PIECE = 2**24  # bytes of one transfer: other threads may enqueue between two
CHANGED = (
    "an array was changed while it was resident, through a view or a buffer from before: the "
    "product was repeated, and the copy is made anew. Each such change costs time"
)


class resident:
    """Keep copies of arrays on the device, so that products need not send them.

    A product on a device with memory of its own sends its operands there. Resident arrays are sent
    once. All functions of this package and `clgemm.accel` use the copies. They also use them for
    any array whose memory lies in a resident array, such as a transpose, a slice or matrices of a
    batch. The arrays are read-only until the ``with`` block ends or `release` is called.

    Parameters
    ----------
    *arrays : array of any dtype that the device multiplies
        Each owns its memory or is its owner's only view. A read-only view is as good.
    check : bool, optional
        Whether each product makes sure that the memory it uses is what was copied. NumPy cannot
        stop those who hold a writable view or a buffer from before. Linux 6.7 and later tells which
        pages were written to, and these are compared. Elsewhere, threads compare all of the memory
        while the device works. Without the check, nobody may write to the arrays.
    share : float, optional
        The share of a device's memory that all resident arrays together may take, above 0 and at
        most 1. The largest share that living objects ask for counts. Beyond it, the copies that
        were used least recently are dropped, and made anew when they are needed.

    Raises
    ------
    TypeError
        If one of the arrays is not a `numpy.ndarray`, or of another dtype than `clgemm.matmul`
        computes on devices.
    ValueError
        If an array cannot be protected, because others could write to its memory. Either it is a
        view of a writable array that others hold, or its memory belongs to a buffer, a file or
        another library. Also if `share` is out of range, or the array's elements are not aligned.

    Notes
    -----
    The arrays are copied to the chosen device at once, and to others when a product there first
    needs them. An array that does not fit is sent with each product, and so are all arrays in a
    forked process. On a device that uses host memory in place, nothing is copied.

    If an array was changed in spite of all, the product is repeated with its new content, and there
    is a RuntimeWarning. Flags become what they were once the last `resident` of an array, its base
    and its views ends. An object that is garbage collected has released its arrays.

    Examples
    --------
    >>> with clgemm.resident(weights):
    ...     y = clgemm.matmul(x, weights)
    """

    def __init__(self, *arrays: Any, check: bool = True, share: float = SHARE) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share={share!r} is not above 0 and at most 1")
        named = [(f"array {i}", x) for i, x in enumerate(arrays)]
        for name, x in named:
            _require_multiplied(x, name)
        self._holding = holding = Holding(bool(check), float(share))
        self._end = weakref.finalize(self, holding.end)
        self._end.atexit = False
        try:
            for name, x in named:
                holding.add(x, name)
            holding.copy()
        except BaseException:
            self.release()
            raise

    @property
    def uses(self) -> int:
        """The number of operands of products that have used these arrays' copies."""
        return self._holding.counts()[0]

    @property
    def saved_bytes(self) -> int:
        """The size of these operands, which were not sent."""
        return self._holding.counts()[1]

    def release(self) -> None:
        """Free the copies and restore the arrays' flags; the second time, do nothing.

        Copies that a product of another thread uses live until it ends.
        """
        self._end()

    def __enter__(self) -> resident:
        if not self._end.alive:
            raise RuntimeError("these arrays have been released: make a new clgemm.resident")
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def _require_multiplied(x: Any, name: str) -> None:
    if type(x) is not np.ndarray:
        raise TypeError(f"{name} is of type {type(x).__name__}: only a numpy.ndarray is resident")
    dtype = x.dtype
    if not dtype.isnative or (dtype != np.float32 and dtype.str[1:] not in RESULTS):
        raise TypeError(f"{name} has dtype {x.dtype}: devices do not multiply that")
    if not indexable(x):
        raise ValueError(f"{name} is not aligned: strides {x.strides}; pass a copy")


class DeviceCopy:
    """A copy of host memory on a device.

    Attributes
    ----------
    memory : uint8 array, shape (bytes,)
        What is copied.
    buffer : pyopencl.Buffer or None
        The copy, once it is made. A product that uses it refers to it until it ends.
    digests : uint64 array or None
        Of the memory just before it was copied; None if they were not asked for.
    tracking : Tracking or None
        Since before the digests were taken; None if they were not, where nothing tells writes, and
        once most of the memory was written to.
    """

    def __init__(self, memory: AnyArray) -> None:
        self.memory = memory
        self.buffer: cl.Buffer | None = None
        self.digests: Digests | None = None
        self.tracking: Tracking | None = None
        self._lock = threading.RLock()
        self._is_begun = self._has_failed = False

    @property
    def size_bytes(self) -> int:
        """The device memory that it takes, or will take."""
        return 0 if self._has_failed else self.memory.nbytes

    @property
    def is_made(self) -> bool:
        """Whether the copy is complete."""
        return self.buffer is not None

    def made(self, device: Device, with_digests: bool, waits: bool) -> bool:
        """Make the copy unless another thread has. Return whether there is one.

        Parameters
        ----------
        waits : bool
            Whether to make it, or to wait until another thread has.
        """
        if self.is_made or not waits:
            return self.is_made
        with self._lock:
            # A copy that has failed, or that a signal handler or a finalizer asks for while it is
            # being made, is not tried again.
            if self._is_begun:
                return self.is_made
            self._is_begun = True
            try:
                self._make(device, with_digests)
            except (cl.Error, MemoryError) as error:
                self._has_failed, self.tracking = True, None
                log.warning("an array is sent with each product, since no copy stays: %s", error)
            except BaseException:
                self._is_begun = False
                raise
            return self.is_made

    def _make(self, device: Device, with_digests: bool) -> None:
        pool, memory, lock = any_staging(device), self.memory, workspace(device.queue).lock
        with lock:
            buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, memory.nbytes)
        # Before it is copied: what changes it in between is found out later.
        if with_digests:
            self.tracking = track(memory)
            self.digests = digests(memory)
        for first in range(0, memory.size, PIECE):
            with lock:
                event = cl.enqueue_copy(
                    *(pool.up, buffer, memory[first : first + PIECE]),
                    dst_offset=first,
                    is_blocking=False,
                )
                pool.up.flush()
            event.wait()
        self.buffer = buffer


class _Counts:
    """How many operands the copies of a region served, and the bytes not sent for them."""

    def __init__(self) -> None:
        self.uses = self.saved_bytes = 0


class Region:
    """Host memory of one resident array, from its first element to its last.

    Attributes
    ----------
    memory : uint8 array, shape (bytes,)
    holds : set of Holding
        The region ends with the last.
    """

    def __init__(self, array: AnyArray, guard: Guard) -> None:
        self.memory: AnyArray = span_of(array).view(np.uint8)
        self.start = address_of(self.memory)
        self.stop = self.start + self.memory.nbytes
        self.guard = guard
        self.holds: set[Holding] = set()
        self.counts = _Counts()
        self.has_warned = False

    def is_checked(self) -> bool:
        """Return whether its content is compared before a copy is used."""
        holds = list(self.holds)
        return not self.guard.is_immutable() and any(hold.check for hold in holds)


# Reentrant: a finalizer may release in the middle. Nothing is enqueued under this lock.
_lock = ForkableLock()
_regions: dict[tuple[int, int], Region] = {}  # by where they start and stop
# Each device's copies, by its context; those used last are last.
_copies: dict[cl.Context, OrderedDict[Region, DeviceCopy]] = {}


def any_held() -> bool:
    """Return whether any array is resident."""
    return bool(_regions)


def make_room(device: Device) -> bool:
    """Release all copies on a device, whose memory is needed. Return whether there were any.

    Copies in use are released when their product ends.
    """
    with _lock:
        return bool(_copies.pop(device.context, None))


def containing(x: AnyArray) -> list[Region]:
    """Return the regions that all of an array lies in."""
    start, size = address_of(x), x.itemsize
    if x.flags.forc:
        stop = start + x.nbytes
    else:
        first, last = layout_of(x).extent
        start, stop = start + size * first, start + size * (last + 1)
    return [x for x in list(_regions.values()) if x.start <= start and stop <= x.stop]


def alignment_there(x: AnyArray) -> int:
    """Return an array's alignment in copies of the region that it lies in; 0 if it is in none."""
    return next((alignment(address_of(x) - each.start) for each in containing(x)), 0)


def copied(region: Region, device: Device, is_nested: bool = False) -> DeviceCopy | None:
    """Return a region's copy on a device, made if there is none; None if it cannot be made."""
    # Nothing that takes other locks happens under this one.
    context, most_bytes = device.context, _most_bytes(device)
    is_checked = region.is_checked()
    with _lock:
        if not region.holds:
            return None
        copies = _copies.setdefault(context, OrderedDict())
        copy = copies.pop(region, None)
        if copy is None or (is_checked and copy.is_made and copy.digests is None):
            if not _is_room(region, copies, *most_bytes):
                return None
            copy = DeviceCopy(region.memory)
        copies[region] = copy
    if not copy.made(device, is_checked, waits=not is_nested):
        return None
    with _lock:  # another thread may have released the region meanwhile
        if not region.holds:
            copies.pop(region, None)
    return copy


def _most_bytes(device: Device) -> tuple[int, int]:
    """Return the memory of a device that takes copies, and its largest buffer; 0 for others."""
    if (config := transfer_config(device)) is None:
        return 0, 0
    # A call may take half of the device's memory, or what a user says.
    whole = min(device.cl_device.global_mem_size, 2 * config.memory_bytes)
    return whole, device.limits.allocation_bytes


def _is_room(
    region: Region, copies: OrderedDict[Region, DeviceCopy], device_bytes: int, buffer_bytes: int
) -> bool:
    """Release the copies used least recently until another fits. Return whether it does."""
    size_bytes = region.memory.nbytes
    limit = device_bytes * max(
        (hold.share for each in list(_regions.values()) for hold in list(each.holds)), default=0.0
    )
    if size_bytes > min(limit, buffer_bytes):
        return False
    while copies and size_bytes + sum(each.size_bytes for each in list(copies.values())) > limit:
        copies.popitem(last=False)
    return True


class Holding:
    """Arrays that are kept by one wish of the program, until `end`.

    Parameters
    ----------
    check, share
        As for `resident`.
    """

    def __init__(self, check: bool, share: float) -> None:
        self.check, self.share = check, share
        self._held: list[tuple[Guard, Region | None]] = []
        self._before: dict[_Counts, tuple[int, int]] = {}

    def add(self, x: AnyArray, name: str) -> None:
        """Protect an array, and keep its memory.

        Raises
        ------
        ValueError
            As `protect`.
        """
        with _lock:
            guard, region = protect(x, name), None
            if x.size:
                region = Region(x, guard)
                region = _regions.setdefault((region.start, region.stop), region)
                region.holds.add(self)
                counts = region.counts
                self._before.setdefault(counts, (counts.uses, counts.saved_bytes))
            self._held.append((guard, region))

    def copy(self) -> None:
        """Copy the arrays to the chosen device, if there is one that takes copies."""
        try:
            require_unforked()
            device = chosen()[0]
        except RuntimeError as error:  # no device works, or this process was forked
            log.debug("nothing is copied: %s", error)
            return
        if transfer_config(device) is not None:
            for _, region in list(self._held):
                if region is not None:
                    copied(region, device)

    def counts(self) -> tuple[int, int]:
        """Return how many operands the copies were used for, and the bytes not sent for them."""
        return (
            sum(counts.uses - uses for counts, (uses, _) in self._before.items()),
            sum(counts.saved_bytes - saved for counts, (_, saved) in self._before.items()),
        )

    def end(self) -> None:
        """Free the copies and end the protection, unless another holding needs them."""
        with _lock:
            while self._held:
                guard, region = self._held.pop()
                if region is not None:
                    region.holds.discard(self)
                    if not region.holds:
                        _regions.pop((region.start, region.stop), None)
                        forget(region)
                guard.release()


def forget(region: Region) -> None:
    """Invalidate a region's device copies. Copies in use are released when their product ends."""
    with _lock:
        for copies in list(_copies.values()):
            copies.pop(region, None)


keep_in_children(lambda: [dict(_copies)], _copies.clear)


class StaleError(RuntimeError):
    """Memory has changed since it was copied; nothing has been written to the result."""


_mine = threading.local()


class Used(NamedTuple):
    """What products of resident arrays came to.

    Attributes
    ----------
    products : int
        Those that used copies.
    saved_bytes : int
        What was not sent for them.
    compared_bytes : int
        What was read to find changes.
    """

    products: int
    saved_bytes: int
    compared_bytes: int


NONE_USED = Used(0, 0, 0)


class OperandCopy(NamedTuple):
    """An operand of a product, and the copy on a device of the region that it lies in."""

    operand: AnyArray
    region: Region
    copy: DeviceCopy

    @property
    def size_bytes(self) -> int:
        """The size of the operand, without what is repeated."""
        x = self.operand
        counts = [n for n, stride in zip(x.shape, x.strides, strict=True) if stride]
        return int(x.itemsize * math.prod(counts))

    def matrix(self, block: AnyArray) -> Matrix:
        """Return where a block of the operand lies in the copy."""
        offset = address_of(block) - self.region.start
        layout = layout_of(block)._replace(alignment_bytes=alignment(offset))
        assert self.copy.buffer is not None
        return Matrix(self.copy.buffer, offset // block.itemsize, layout)

    def part(self) -> Part | None:
        """Return the operand's memory, to compare it with what was copied; None if it is not."""
        x, region, expected = self.operand, self.region, self.copy.digests
        if expected is None or not region.is_checked():
            return None
        first, last = layout_of(x).extent
        start, size = address_of(x) - region.start, x.itemsize
        stop = start + size * (last + 1)
        return Part(region.memory, expected, (start + size * first) // ROW, -(-stop // ROW))


def _rows(parts: list[Part]) -> int:
    return sum(part.last - part.first for part in parts)


class OperandCopies:
    """The copies that one product uses in place of its operands.

    Attributes
    ----------
    of_operands : pair of OperandCopy or None
        Those of A and of B; None for one that has to be sent.
    """

    def __init__(self, a: OperandCopy | None, b: OperandCopy | None) -> None:
        self.of_operands = a, b
        self._used = [each for each in (a, b) if each is not None]
        self._tracked: list[tuple[DeviceCopy, Tracking, Part]] = []
        untracked: list[Part] = []
        for each in self._used:
            if (part := each.part()) is None:
                continue
            if (tracking := each.copy.tracking) is None:
                untracked.append(part)
            else:
                self._tracked.append((each.copy, tracking, part))
        self._compared_rows = _rows(untracked)
        self._comparison = Comparison(untracked)

    def matrices(self, a: AnyArray, b: AnyArray) -> tuple[Matrix | None, Matrix | None]:
        """Return where A and B are on the device; None for one that has to be sent."""
        first, second = self.of_operands
        return first and first.matrix(a), second and second.matrix(b)

    def is_compared(self) -> bool:
        """Return whether `require_fresh` would not wait for threads."""
        return self._comparison.is_over()

    def require_fresh(self) -> None:
        """Return once it is known that the operands are what was copied.

        Raises
        ------
        StaleError
            If they are not.
        """
        if not self._comparison.is_same():
            raise StaleError
        written: list[Part] = []
        for copy, tracking, part in self._tracked:
            asked = part.first * ROW, min(part.last * ROW, part.memory.nbytes)
            found = part.of_bytes(tracking.written(*asked))
            if 2 * _rows(found) > part.expected.shape[1]:
                copy.tracking = None  # from now on threads compare while the device works
            written += found
        self._compared_rows += _rows(written)
        if not Comparison(written).is_same():
            raise StaleError

    def drop(self) -> None:
        """Invalidate all copies of the operands, and warn once of each."""
        regions = [each.region for each in self._used]
        news = [x for x in regions if x.holds and not x.has_warned]
        for region in regions:
            forget(region)
            region.has_warned = True
        if news:
            warnings.warn(CHANGED, RuntimeWarning, stacklevel=2)

    def count(self) -> None:
        """Record that the product is computed, and what was not sent."""
        if not self._used:
            return
        products, saved_bytes, compared_bytes = used()
        with _lock:
            for each in self._used:
                saved_bytes += each.size_bytes
                each.region.counts.uses += 1
                each.region.counts.saved_bytes += each.size_bytes
        compared_bytes += self._compared_rows * ROW
        _mine.used = Used(products + 1, saved_bytes, compared_bytes)


NO_COPIES = OperandCopies(None, None)


def used() -> Used:
    """Return what the products of this thread had from copies."""
    return getattr(_mine, "used", NONE_USED)


def operand_copies(
    device: Device, a: AnyArray, b: AnyArray, is_nested: bool = False
) -> OperandCopies:
    """Return the copies of a product's operands, made now if there are none on this device.

    Parameters
    ----------
    device : Device
        One that host arrays are sent to.
    is_nested : bool, optional
        Whether this thread is in another product: then no copy is made.
    """
    if not any_held():
        return NO_COPIES
    return OperandCopies(*(_copy_of(device, x, is_nested) for x in (a, b)))


def _copy_of(device: Device, x: AnyArray, is_nested: bool) -> OperandCopy | None:
    if not x.size:
        return None
    for region in containing(x):
        if not region.guard.holds():  # the program has set the flag back
            forget(region)
        elif (address_of(x) - region.start) % x.itemsize:
            continue  # a view as another dtype, whose elements lie across those of the copy
        elif (copy := copied(region, device, is_nested)) is not None:
            return OperandCopy(x, region, copy)
    return None
