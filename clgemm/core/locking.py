"""Page-locking of host arrays where they lie: its limits, and which parts of an array it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

__all__ = ["UNLOCKED", "Locking", "Run", "is_locked_region", "runs"]


@dataclass(frozen=True)
class Locking:
    """How much of the operands and results is page-locked where it lies, and how.

    A device reads and writes page-locked memory without a copy by the host's processors. The rest
    goes through chunks. An array is locked by regions of whole pages, just before their transfer.

    Attributes
    ----------
    loads, results : float
        The share of the operands' regions and of the result's regions that is locked, 0 to 1.
    region_bytes : int
        Bytes of a region: a multiple of the page size. No region is larger than a chunk.
    held_bytes : int
        The most bytes that all calls of the process together hold locked.
    transfer : {"pointer", "map", "buffer"}
        What the transfer takes: the array's memory, the mapped buffer over it, or that buffer.
    in_thread : bool
        Whether a thread of its own locks ahead. Otherwise the calling thread locks one region at a
        time.
    """

    loads: float = 0.0
    results: float = 0.0
    region_bytes: int = 2**22
    held_bytes: int = 2**28
    transfer: Literal["pointer", "map", "buffer"] = "pointer"
    in_thread: bool = False

    def __post_init__(self) -> None:
        for name in ("loads", "results"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} is not between 0 and 1")
        if self.transfer not in ("pointer", "map", "buffer"):
            raise ValueError(f"transfer={self.transfer!r} is not 'pointer', 'map' or 'buffer'")
        if not 0 < self.region_bytes <= self.held_bytes:
            raise ValueError(
                f"region_bytes={self.region_bytes} is not between 1 and "
                f"held_bytes={self.held_bytes}"
            )


UNLOCKED = Locking()


class Run(NamedTuple):
    """A part of an array that one transfer moves.

    Attributes
    ----------
    first, size : int
        Its first element and its number of elements.
    locked : bool
        Whether it is a region to lock; otherwise it goes through a chunk.
    """

    first: int
    size: int
    locked: bool


def is_locked_region(number: int, share: float) -> bool:
    """Tell whether a region is among the share that is locked; these are spread evenly."""
    return int((number + 1) * share) > int(number * share)


def runs(
    address: int, count: int, item_bytes: int, most: int, region_bytes: int, share: float
) -> Iterator[Run]:
    """Cut a contiguous array into regions to lock and other parts.

    Regions lie at multiples of `region_bytes` in memory, so that two of them share no page. What
    precedes the first and follows the last whole region is never locked.

    Parameters
    ----------
    address : int
        Of the first element, a multiple of `item_bytes`, as `region_bytes` is.
    count, item_bytes : int
        The number of elements, and the bytes of one.
    most : int
        The most elements of a part that is not locked.

    Yields
    ------
    Run
        In order, without gaps.
    """
    region = region_bytes // item_bytes
    first = -(address // item_bytes) % region  # element at which the first whole region begins
    begin = 0  # of what is not locked
    while share and first + region <= count:
        if is_locked_region((address + first * item_bytes) // region_bytes, share):
            yield from _parts(begin, first, most)
            yield Run(first, region, True)
            begin = first + region
        first += region
    yield from _parts(begin, count, most)


def _parts(begin: int, end: int, most: int) -> Iterator[Run]:
    """Cut what is not locked into parts of nearly the same length."""
    if end > begin:
        number = -(-(end - begin) // most)
        edges = [begin + (end - begin) * i // number for i in range(number + 1)]
        for first, last in pairwise(edges):
            yield Run(first, last - first, False)
