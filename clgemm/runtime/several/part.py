"""A product of host arrays that devices share, and what makes it or parts of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from clgemm.hardware.device import Device
from clgemm.runtime.operands import HostArray

__all__ = ["Advance", "Compute", "Part", "Together"]


class Part(NamedTuple):
    """A product of host arrays: C = alpha A B + beta C, in a precision."""

    alpha: float
    a: HostArray
    b: HostArray
    beta: float
    c: HostArray
    precision: str | None


class Compute(Protocol):
    """What makes a part on one device and returns when it is complete."""

    def __call__(self, part: Part, device: Device, tile_rows: int, advance: Advance) -> None:
        """Make the part.

        Parameters
        ----------
        tile_rows : int
            As for `make_stream`.
        advance : callable
            To be called with the multiply-adds of what is done. What it raises ends the part.
        """


class Together(Protocol):
    """What makes a part on several equal GPUs at once and returns when it is complete."""

    def __call__(self, part: Part, devices: Sequence[Device], advance: Advance) -> bool:
        """Make the part, and tell whether it could be; if not, nothing was done.

        Parameters
        ----------
        advance : callable
            As for `Compute`.
        """


class Advance(Protocol):
    """What is told of multiply-adds that are done."""

    def __call__(self, work: int, /) -> object: ...
