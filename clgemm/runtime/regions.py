"""Host memory of resident arrays: which there is, and which device has a copy of it.

A device that uses host memory in place needs no copies and gets none.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

import pyopencl as cl

from clgemm.core.threads import ForkableLock
from clgemm.hardware.choice import chosen
from clgemm.hardware.device import Device
from clgemm.hardware.forks import keep_in_children, require_unforked
from clgemm.planning.transfers import transfer_config
from clgemm.runtime.copying import DeviceCopy
from clgemm.runtime.operands import ITEM_BYTES, HostArray, address_of, layout_of, span_of
from clgemm.runtime.protection import Guard, protect

__all__ = [
    "Holding",
    "Region",
    "any_held",
    "containing",
    "copied",
    "count",
    "forget",
    "make_room",
]

log = logging.getLogger(__name__)


class _Counts:
    """How many operands the copies of a region served, and the bytes not sent for them."""

    def __init__(self) -> None:
        self.uses = self.saved_bytes = 0


class Region:
    """Host memory of one resident array, from its first element to its last.

    Attributes
    ----------
    memory : float32 array, shape (elements,)
    holds : set of Holding
        The region ends with the last.
    """

    def __init__(self, array: HostArray, guard: Guard) -> None:
        self.memory = span_of(array)
        self.start = address_of(self.memory)
        self.stop = self.start + self.memory.nbytes
        self.guard = guard
        self.holds: set[Holding] = set()
        self.counts = _Counts()
        self.has_warned = False

    def has(self, start: int, stop: int) -> bool:
        return self.start <= start and stop <= self.stop

    def is_checked(self) -> bool:
        """Tell whether its content is compared before a copy is used."""
        holds = list(self.holds)
        return not self.guard.is_immutable() and any(hold.check for hold in holds)


# Reentrant: a finalizer may release in the middle. Nothing is enqueued under this lock.
_lock = ForkableLock()
_regions: dict[tuple[int, int], Region] = {}  # by where they start and stop
# Each device's copies, by its context; those used last are last.
_copies: dict[cl.Context, OrderedDict[Region, DeviceCopy]] = {}


def any_held() -> bool:
    """Tell whether any array is resident."""
    return bool(_regions)


def make_room(device: Device) -> bool:
    """Forget all copies on a device, whose memory is needed; tell whether there were any.

    Those that a product uses live until it ends.
    """
    context = device.context
    with _lock:
        copies = _copies.get(context)
        found = bool(copies)
        if copies:
            copies.clear()
        return found


def containing(x: HostArray) -> list[Region]:
    """Return the regions that all of an array lies in."""
    first, last = layout_of(x).extent
    start = address_of(x) + ITEM_BYTES * first
    stop = start + ITEM_BYTES * (last - first + 1)
    return [region for region in list(_regions.values()) if region.has(start, stop)]


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
    """Forget the copies used least recently until another fits; tell whether it does."""
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

    def add(self, x: HostArray, name: str) -> None:
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


def count(region: Region, saved_bytes: int) -> None:
    """Note that a product used a copy of a region, and did not send this much."""
    with _lock:
        region.counts.uses += 1
        region.counts.saved_bytes += saved_bytes


def forget(region: Region) -> None:
    """Forget all copies of a region; those that a product uses live until it ends."""
    with _lock:
        for copies in list(_copies.values()):
            copies.pop(region, None)


keep_in_children(lambda: [dict(_copies)], _copies.clear)
