"""The report of accelerated NumPy: the products on either side, with reasons, and advice."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from clgemm.accel.failures import ERROR, FAILED, NO_DEVICE, FailedDevice
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

# Of advice.
LEAST_BYTES = 2**18  # smaller operands cost a call, not their transfer
LEAST_TIMES = 5
LEAST_SECONDS = 0.01
MOST_OPERANDS, MOST_RESULTS = 4096, 64  # that are remembered
MOST_SENTENCES = 3
SAMPLES = 5  # elements by which a change is noticed


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
        from clgemm.terminal import html_table

        return html_table(HEADS, self.cells(), title=str(self))

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


def make_report(failed: tuple[FailedDevice, ...], children: str, device: Any) -> Report:
    """Return the products on each side since the counts were reset.

    Parameters
    ----------
    device : Device or None
        The device of accelerated NumPy's settings; None for the chosen ones.
    """
    rows, name = decision.rows(), ""
    if any(row.reason == DEVICE for row in rows):
        from clgemm.hardware.choice import chosen

        with contextlib.suppress(RuntimeError, ValueError):
            name = ", ".join(each.name for each in (chosen() if device is None else [device]))
    return Report(name, rows, failed, children, preparation.progress(), *counts.moved())


class Sent(NamedTuple):
    """An operand that was sent.

    Attributes
    ----------
    name, what : str
        Its name in the program, or "it"; the name, its shape, and the line where it was first sent.
    samples : bytes
        Some of its elements.
    """

    name: str
    what: str
    size_bytes: int
    samples: bytes
    times: int


class Advisor:
    """What a profile remembers of operands and results, to say what would save time."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Clear everything."""
        self._lock = threading.RLock()  # a new one: another thread of a parent may hold the former
        self._sent: OrderedDict[Any, Sent] = OrderedDict()
        self._results: OrderedDict[int, weakref.ref[Any]] = OrderedDict()
        self._returned = self._returned_bytes = 0
        self._device: Any = None

    def record(self, operands: Sequence[Any], result: Any) -> None:
        """Record what was sent for a product, if the device has memory of its own.

        Operands of which a copy stays on the device were not sent.
        """
        from clgemm.hardware.choice import chosen
        from clgemm.hardware.device import transfer_config
        from clgemm.transfer.resident import any_held, containing

        device = chosen()[0]
        if transfer_config(device) is None:
            return
        is_held = any_held()
        with self._lock:
            self._device = device
            for x in map(np.asarray, operands):
                if x.nbytes >= LEAST_BYTES and not (is_held and containing(x)):
                    self._record_operand(x)
            if isinstance(result, np.ndarray) and result.nbytes >= LEAST_BYTES:
                owner = _owner(result)
                self._results[id(owner)] = weakref.ref(owner)
                while len(self._results) > MOST_RESULTS:
                    self._results.popitem(last=False)

    def _record_operand(self, x: Any) -> None:
        owner = _owner(x)
        made = self._results.get(id(owner))
        if made is not None and made() is owner:
            self._returned += 1
            self._returned_bytes += x.nbytes
            return
        key = x.__array_interface__["data"][0], x.shape, x.strides
        samples = x.flat[np.linspace(0, x.size - 1, SAMPLES).astype(np.intp)].tobytes()
        before = self._sent.pop(key, None)
        if before is None or before.samples != samples:
            before = Sent(*_described(x), x.nbytes, samples, 0)
        self._sent[key] = before._replace(times=before.times + 1)
        while len(self._sent) > MOST_OPERANDS:
            self._sent.popitem(last=False)

    def sentences(self) -> tuple[str, ...]:
        """Return advice, what saves most first. It measures the link to the device."""
        with self._lock:
            often = [each for each in self._sent.values() if each.times >= LEAST_TIMES]
            returned, returned_bytes, device = self._returned, self._returned_bytes, self._device
        if device is None or not (often or returned >= LEAST_TIMES):
            return ()
        byte_s = _seconds_per_byte(device)
        found = [
            (
                (x.times - 1) * x.size_bytes * byte_s,
                f"{x.what} was sent {x.times:,} times; `with clgemm.resident({x.name})`",
            )
            for x in often
        ]
        if returned >= LEAST_TIMES:
            text = (
                f"results were operands of later products {returned:,} times "
                f"({returned_bytes / 1e6:,.0f} MB): arrays of pyopencl, which stay on the device,"
            )
            found.append((2 * returned_bytes * byte_s, text))  # to the host and back
        return tuple(
            f"{text} would save about {seconds:.2g} s"
            for seconds, text in sorted(found, reverse=True)[:MOST_SENTENCES]
            if seconds >= LEAST_SECONDS
        )


advisor = Advisor()


def _owner(x: Any) -> Any:
    """Return the array that owns the memory of a view, or the view itself."""
    return x.base if isinstance(x.base, np.ndarray) else x


def _described(x: Any) -> tuple[str, str]:
    """Return an operand's name in the program; with its shape and the line that multiplies it."""
    size = " x ".join(map(str, x.shape))
    frame = _program_frame()
    if frame is None:
        return "it", f"an operand ({size})"
    where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    names = (
        name
        for name, value in _names(frame)
        if value is x or (isinstance(value, np.ndarray) and _owner(value) is _owner(x))
    )
    name = next(names, None)
    described = "an operand" if name is None else f"`{name}`"
    return name or "it", f"{described} ({size}, {where})"


def _names(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Yield what a line of the program can name: variables, and attributes of local ones."""
    yield from frame.f_locals.items()
    for name, value in tuple(frame.f_locals.items()):
        if not isinstance(value, np.ndarray):
            for attribute, held in tuple(getattr(value, "__dict__", {}).items()):
                yield f"{name}.{attribute}", held
    yield from frame.f_globals.items()


def _program_frame() -> FrameType | None:
    """Return the innermost frame that belongs neither to clgemm nor to NumPy."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("clgemm", "numpy"):
            return frame
        frame = frame.f_back
    return None


def _seconds_per_byte(device: Any) -> float:
    """Return what the transfer of a byte takes, from pinned memory: the least that it may take."""
    import pyopencl as cl

    from clgemm.transfer.staging import any_staging

    pool = any_staging(device)
    seconds = []
    with pool.lent(1, pool.space.lock) as (chunk,):
        buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, chunk.nbytes)
        for _ in range(3):
            begun = time.perf_counter()
            cl.enqueue_copy(pool.up, buffer, chunk, is_blocking=True)
            seconds.append(time.perf_counter() - begun)
    return min(seconds) / chunk.nbytes
