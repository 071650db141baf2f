"""Advice of a profile: operands that were sent to a device again and again, and what that took."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

LEAST_BYTES = 2**18  # smaller operands cost a call, not their transfer
LEAST_TIMES = 5
LEAST_SECONDS = 0.01
MOST_OPERANDS, MOST_RESULTS = 4096, 64  # that are remembered
MOST_SENTENCES = 3
SAMPLES = 5  # elements by which a change is noticed


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
        from clgemm.planning.transfers import transfer_config
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
