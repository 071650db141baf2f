"""The copies that products use in place of operands, and whether they are still what they were."""

from __future__ import annotations

import math
import threading
import warnings
from typing import NamedTuple

from clgemm.hardware.device import Device
from clgemm.runtime.copying import DeviceCopy
from clgemm.runtime.digests import ROW, ROW_BYTES, Comparison, Part
from clgemm.runtime.memory import Matrix
from clgemm.runtime.operands import ITEM_BYTES, HostArray, address_of, alignment, layout_of
from clgemm.runtime.regions import Region, any_held, containing, copied, count, forget
from clgemm.runtime.write_tracking import Tracking

__all__ = ["NOTHING_KEPT", "Kept", "Loan", "StaleError", "Used", "lend", "used"]

CHANGED = (
    "an array was changed while it was resident, through a view or a buffer from before: the "
    "product was repeated without its copy, which will be made anew. Each such change costs time"
)


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


class Kept(NamedTuple):
    """The copy of an operand on a device."""

    region: Region
    copy: DeviceCopy

    def matrix(self, block: HostArray) -> Matrix:
        """Return where a block of the operand lies in the copy."""
        offset = (address_of(block) - self.region.start) // ITEM_BYTES
        layout = layout_of(block)._replace(alignment_bytes=alignment(offset * ITEM_BYTES))
        assert self.copy.buffer is not None
        return Matrix(self.copy.buffer, offset, layout)


def _rows(parts: list[Part]) -> int:
    return sum(part.last - part.first for part in parts)


class Loan:
    """The copies that one product uses in place of its operands.

    Attributes
    ----------
    kept : pair of Kept or None
        Of each operand; None for one that has to be sent.
    """

    def __init__(self, a: tuple[Kept, HostArray] | None, b: tuple[Kept, HostArray] | None) -> None:
        both = [each for each in (a, b) if each is not None]
        self.kept = (a and a[0], b and b[0])
        self._sizes = [(kept.region, _stored_bytes(x)) for kept, x in both]
        self._tracked: list[tuple[DeviceCopy, Tracking, Part]] = []
        untracked: list[Part] = []
        for kept, x in both:
            if (part := _part(kept, x)) is None:
                continue
            if (tracking := kept.copy.tracking) is None:
                untracked.append(part)
            else:
                self._tracked.append((kept.copy, tracking, part))
        self._compared_rows = _rows(untracked)
        self._comparison = Comparison(untracked)

    def is_compared(self) -> bool:
        """Tell whether `require_fresh` would not wait for threads."""
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
            asked = part.first * ROW_BYTES, min(part.last * ROW_BYTES, part.memory.nbytes)
            found = part.of_bytes(tracking.written(*asked))
            if 2 * _rows(found) > part.expected.shape[1]:
                copy.tracking = None  # from now on threads compare while the device works
            written += found
        self._compared_rows += _rows(written)
        if not Comparison(written).is_same():
            raise StaleError

    def drop(self) -> None:
        """Forget all copies of the operands, and warn once of each."""
        news = [x for x, _ in self._sizes if x.holds and not x.has_warned]
        for region, _ in self._sizes:
            forget(region)
            region.has_warned = True
        if news:
            warnings.warn(CHANGED, RuntimeWarning, stacklevel=2)

    def count(self) -> None:
        """Note that the product is made, and what was not sent."""
        if not self._sizes:
            return
        products, saved_bytes, compared_bytes = used()
        _mine.used = Used(
            products + 1,
            saved_bytes + sum(size for _, size in self._sizes),
            compared_bytes + self._compared_rows * ROW_BYTES,
        )
        for region, size in self._sizes:
            count(region, size)


NOTHING_KEPT = Loan(None, None)


def used() -> Used:
    """Return what the products of this thread had from copies."""
    return getattr(_mine, "used", NONE_USED)


def lend(device: Device, a: HostArray, b: HostArray, is_nested: bool = False) -> Loan:
    """Return the copies of a product's operands, made now if there are none on this device.

    Parameters
    ----------
    device : Device
        One that host arrays are sent to.
    is_nested : bool, optional
        Whether this thread is in another product: then no copy is made.
    """
    if not any_held():
        return NOTHING_KEPT
    kept_a, kept_b = (_kept(device, x, is_nested) for x in (a, b))
    return Loan(kept_a and (kept_a, a), kept_b and (kept_b, b))


def _kept(device: Device, x: HostArray, is_nested: bool) -> Kept | None:
    if not x.size:
        return None
    for region in containing(x):
        if not region.guard.holds():  # the program has set the flag back
            forget(region)
        elif (copy := copied(region, device, is_nested)) is not None:
            return Kept(region, copy)
    return None


def _part(kept: Kept, x: HostArray) -> Part | None:
    """Return the memory of an operand, to compare it with what was copied."""
    region, copy = kept
    if copy.digests is None or not region.is_checked():
        return None
    first, last = layout_of(x).extent
    start = (address_of(x) - region.start) // ITEM_BYTES
    return Part(region.memory, copy.digests, (start + first) // ROW, (start + last) // ROW + 1)


def _stored_bytes(x: HostArray) -> int:
    """Return the size of an operand, without what is repeated."""
    counts = [n for n, stride in zip(x.shape, x.strides, strict=True) if stride]
    return ITEM_BYTES * int(math.prod(counts))
