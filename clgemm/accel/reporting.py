"""The report of accelerated NumPy: the products on either side, with reasons, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from clgemm.accel.failures import ERROR, FAILED, NO_DEVICE, FailedDevice
from clgemm.core.html import table
from clgemm.side import decision, preparation
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

HEADS = "function", "calls", "where and why", "seconds"  # of a table of the rows
REMEDY = (
    "'python -m clgemm warmup' prepares the device, and --threshold N sends it every product of N "
    "multiply-adds or more"
)
# Why no product ran on the device, by the reason of those that took longest.
WHY = {
    BEING_PREPARED: f"the device was still being prepared; {REMEDY}",
    UNKNOWN: f"its products were too few to compare both sides; {REMEDY}",
    NOT_OPEN: (
        "the device is faster at its products, but to open it takes longer than it would have "
        "saved; the next run of the same program opens it at once if that pays"
    ),
    HOST_FASTER: "NumPy is faster at its products than the device, transfers included",
    SMALL: "its products are below the threshold, or take NumPy less than any device's call",
    DTYPE: "it multiplies no float32 arrays",
}
# The same for faults: they go first, however long the products took.
FAULTS = {
    NO_DEVICE: "no OpenCL device works: 'python -m clgemm info' lists the reasons",
    FAILED: "the device failed: the log says why",
    ERROR: "the products failed inside clgemm: the log says why",
}


class Report(NamedTuple):
    """The products on each side since the start of the current or last acceleration.

    Attributes
    ----------
    device : str
        The name of the device that was used last; empty if none was used.
    rows : tuple of Row
        The counts by function and reason.
    left_out : tuple of FailedDevice
        Devices whose last product failed.
    children : str
        A sentence about Python processes that are not accelerated; empty if there are none.
    preparing : str
        How far the preparation of the device is; empty if nothing is being prepared.
    offloaded_bytes : int
        Size of the operands and results of the products on the device.
    resident : int
        Products on the device that used copies of resident arrays.
    saved_bytes : int
        Size of the operands that were not sent for these. A device that uses host memory in place
        is sent nothing, and has no copies.
    compared_bytes : int
        Size of the memory that was read to find changes of resident arrays. Where Linux tells which
        pages are written to, this is 0 unless some are.
    """

    device: str
    rows: tuple[Row, ...]
    left_out: tuple[FailedDevice, ...] = ()
    children: str = ""
    preparing: str = ""
    offloaded_bytes: int = 0
    resident: int = 0
    saved_bytes: int = 0
    compared_bytes: int = 0

    @property
    def saved(self) -> str:
        """A sentence about what resident arrays have saved; empty if no copy was used."""
        if not self.resident:
            return ""
        return (
            f"{self.resident:,} of the products used resident arrays: "
            f"{self.saved_bytes / 1e6:,.1f} MB were not sent, "
            f"{self.compared_bytes / 1e6:,.1f} MB were read to find changes"
        )

    @property
    def offloaded(self) -> int:
        """Products computed on the device."""
        return sum(row.calls for row in self.rows if not row.reason)

    @property
    def stayed(self) -> Mapping[str, int]:
        """The number of calls on the host for each reason."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row.reason:
                found[row.reason] = found.get(row.reason, 0) + row.calls
        return found

    def __str__(self) -> str:
        where = self.device or "the device"
        on_host = ", ".join(f"{calls} ({reason})" for reason, calls in self.stayed.items())
        text = f"{self.offloaded} products on {where}; on the host: {on_host or 'none'}"
        rest = self.saved, self.preparing, *map(str, self.left_out), self.children
        return "; ".join(filter(None, [text, *rest]))

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows as texts, under `HEADS`."""
        return [
            (
                row.function,
                f"{row.calls:,}",
                f"host: {row.reason}" if row.reason else "device",
                "" if row.seconds is None else f"{row.seconds:.3f}",
            )
            for row in self.rows
        ]

    def _repr_html_(self) -> str:
        """Return what a notebook displays."""
        return table(HEADS, self.cells(), title=str(self))

    @property
    def why_nothing(self) -> str:
        """A sentence that says why no product ran on the device, and what helps; "" if one did."""
        if self.offloaded:
            return ""
        seconds: dict[str, float] = {}
        for row in self.rows:
            seconds[row.reason] = seconds.get(row.reason, 0.0) + (row.seconds or 0.0)
        if not seconds:
            return "Nothing was offloaded: the program made no product with NumPy."
        for reason, fault in FAULTS.items():
            if reason in seconds:
                return f"Nothing was offloaded: {fault}."
        first = max(seconds, key=lambda reason: (seconds[reason], reason != DTYPE))
        if preparation.state.reason and first in (BEING_PREPARED, UNKNOWN):
            return f"Nothing was offloaded: {preparation.state.reason}."
        why = WHY.get(first, f"the reason is {first!r}")
        return f"Nothing was offloaded: {why}."


def make_report(
    failed: tuple[FailedDevice, ...] = (), children: str = "", device: Any = None
) -> Report:
    """Return the products on each side since the counts were reset.

    Parameters
    ----------
    device : Device, optional
        The device of accelerated NumPy's settings. The default is the chosen ones.
    """
    rows = decision.rows()
    name = _name_of(device) if any(row.reason == DEVICE for row in rows) else ""
    return Report(name, rows, failed, children, preparation.progress(), *counts.moved())


def _name_of(device: Any) -> str:
    """Return the name of a device, or the names of the chosen ones."""
    if device is not None:
        return str(device.name)
    from clgemm.hardware.choice import chosen

    try:
        return ", ".join(device.name for device in chosen())
    except (RuntimeError, ValueError):
        return ""
