"""What keeps a product from the device: failures, products inside others, the end of the process.

It also says which exceptions during a product the program must see, and what follows from others.
"""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
import time
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from clgemm.core.threads import NestedCallError, current_frames
from clgemm.side import preparation

if TYPE_CHECKING:
    from clgemm.side.decision import Entry

log = logging.getLogger("clgemm.accel")

# Reasons why a product stays on the host.
NO_DEVICE = "no OpenCL device"
FAILED = "device failure"
ERROR = "error inside clgemm"
DEEP = "call near the recursion limit"
BUSY = "call inside another product"
CLOSED = "call at exit"

MOST_WARNINGS = 100  # the most warnings that are remembered, so that none is repeated
# The most stack frames that a product on a device needs.
ROOM = 150
# Packages that a product calls: an exception class of another package comes from the program.
CALLED = {"builtins", "clgemm", "numpy", "pyopencl", "pytools", *sys.stdlib_module_names}
STEP_SECONDS = 1e-3


class FailedDevice(NamedTuple):
    """A device that is not used for a while because its last product failed.

    Attributes
    ----------
    failures : int
        The number of failures in a row.
    until : float
        The time when it is tried again, in seconds as `time.time` counts.
    error : str
        The last failure.
    """

    device: str
    failures: int
    until: float
    error: str

    def __str__(self) -> str:
        until = time.strftime("%H:%M:%S", time.localtime(self.until))
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        return f"{self.device} is not used until {until}, since it failed {times}: {self.error}"


class Failures:
    """What has failed under one group of settings, and until when the device is not used.

    Parameters
    ----------
    device : Device or None
        The device of the settings; None for the chosen ones.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        """Clear all failures and warnings."""
        self._failed: FailedDevice | None = None
        self._ends = 0.0  # of the pause, as a monotonic time
        self._warned: set[str] = set()

    def pauses(self) -> bool:
        """Return whether the device is not to be used now."""
        return self._failed is not None and time.monotonic() < self._ends

    def worked(self) -> None:
        """Record that the device has computed a product."""
        if self._failed is not None:
            name, self._failed = self._failed.device, None
            log_safely(logging.WARNING, f"{name} is used again")

    def failed(self) -> tuple[FailedDevice, ...]:
        """Return the device if its last product failed."""
        return () if self._failed is None else (self._failed,)

    def add(self, error: BaseException, is_tried: bool, entry: Entry | None) -> str:
        """Record that a product failed, and return the reason for the report.

        After an error of the device, the device is not used for a while. It may compute the next
        product if it was out of memory or if the error is not its own.

        Parameters
        ----------
        is_tried : bool
            Whether the device was to compute the product.
        """
        if isinstance(error, RecursionError):
            return DEEP
        if isinstance(error, NestedCallError):  # a signal handler or finalizer asked for it
            return BUSY
        what = f"{type(error).__name__}: {error}"
        if is_tried and (found := self._of_device(error, what, entry)):
            return found
        self._warn_once(f"a product failed inside clgemm, and NumPy repeats it: {what}", error)
        return ERROR

    def _of_device(self, error: BaseException, what: str, entry: Entry | None) -> str:
        """Return the reason if the device, or the lack of one, is to blame; else ""."""
        try:
            import pyopencl as cl

            from clgemm.hardware.choice import BrokenDeviceError, NoDeviceError, chosen
            from clgemm.runtime.readiness import NotReadyError
        except (ImportError, OSError) as missing:
            return self._without_device(missing, entry)
        if isinstance(error, NotReadyError) and entry is not None:
            entry.not_ready()
            return entry.reason
        if isinstance(error, BrokenDeviceError | NoDeviceError):
            return self._without_device(error, entry)
        if not isinstance(error, (MemoryError, cl.Error, OSError, RuntimeError, ValueError)):
            return ""
        try:
            name = (self._device or chosen()[0]).name
        except (RuntimeError, ValueError) as none:
            return self._without_device(none, entry)
        if isinstance(error, MemoryError | cl.MemoryError):
            self._warn_once(f"a product failed on {name}, and NumPy repeats it: {what}")
        else:
            self._pause(name, what)
        return FAILED

    def _without_device(self, error: BaseException, entry: Entry | None) -> str:
        """Leave products to NumPy, with one warning."""
        if entry is None:
            self._warn_once(f"NumPy is not accelerated: {error}")
        else:
            preparation.state.give_up(str(error))  # which warns
        return NO_DEVICE

    def _pause(self, name: str, what: str) -> None:
        failures = 1 + (self._failed.failures if self._failed else 0)
        pause = preparation.pause_s(failures)
        self._failed = FailedDevice(name, failures, time.time() + pause, what)
        self._ends = time.monotonic() + pause
        log_safely(logging.WARNING, f"a product failed, and NumPy repeats it: {self._failed}")

    def _warn_once(self, message: str, error: BaseException | None = None) -> None:
        with self._lock:
            if message in self._warned:
                return
            if len(self._warned) >= MOST_WARNINGS:
                self._warned.clear()
            self._warned.add(message)
        log_safely(logging.WARNING, message, error)


def belongs_to_program(error: BaseException) -> bool:
    """Return whether an exception during a product must reach the program.

    Examples are an exception that a signal's handler raises, and one that a debugger or another
    thread raises in this thread.
    """
    if not isinstance(error, Exception):
        return True
    return type(error).__module__.partition(".")[0] not in CALLED or _is_of_a_handler(error)


def is_near_recursion_limit() -> bool:
    """Return whether the recursion limit is too near for a product on a device."""
    try:
        sys._getframe(max(sys.getrecursionlimit() - ROOM, 1))
    except ValueError:  # the stack is not that deep
        return False
    return True


def log_safely(level: int, message: str, error: BaseException | None = None) -> None:
    """Log a message, with the error's traceback if there is one; ignore a failure to log."""
    try:
        log.log(level, "%s", message, exc_info=error)
    except Exception as raised:  # the program's logging handlers may raise anything
        if _is_of_a_handler(raised):
            raise


def _is_of_a_handler(error: Exception) -> bool:
    """Return whether a frame of a signal's handler is in the exception's traceback."""
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """Return the code object of a signal's handler, or None if it is not a Python function."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    parts = (getattr(handler, name, None) for name in ("__func__", "__call__"))
    for found in (handler, *parts):
        code = getattr(getattr(found, "__func__", found), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None


class RunningProducts:
    """The running products, at most one for each thread.

    No product starts inside another one of its thread, or while the process exits. A signal's
    handler or a finalizer may ask for a product inside another one, whose device, locks
    and memory are in use. This class takes no lock, so that a signal may interrupt it anywhere.
    """

    def __init__(self) -> None:
        # For each thread the frame of its product. A frame that an exception ended before `leave`
        # does no harm, because it is on no stack.
        self._frames: dict[int, FrameType] = {}
        self.is_closed = False

    def enter(self) -> str | None:
        """Begin a product of the caller, who must call `leave`, or return why it must not begin."""
        thread = threading.get_ident()
        if (frame := self._frames.get(thread)) is not None and _is_on(frame, sys._getframe()):
            return BUSY
        self._frames[thread] = sys._getframe(1)
        # Check after registering the frame: `close` waits for each product that it does not stop.
        if self.is_closed:
            self._frames.pop(thread, None)
            return CLOSED
        return None

    def leave(self) -> None:
        """End the caller's product, if it has begun."""
        thread = threading.get_ident()
        if self._frames.get(thread) is sys._getframe(1):
            self._frames.pop(thread, None)

    def close(self, seconds: float) -> None:
        """Let no product begin, and wait at most `seconds` for the other threads' products."""
        self.is_closed = True
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._others():
            time.sleep(STEP_SECONDS)

    def _others(self) -> bool:
        """Return whether another thread is in a product."""
        own, stacks = threading.get_ident(), current_frames()
        return any(
            thread != own and _is_on(frame, stacks.get(thread))
            for thread, frame in list(self._frames.items())
        )


def _is_on(frame: FrameType, stack: FrameType | None) -> bool:
    """Return whether a frame is on the stack whose innermost frame is `stack`."""
    while stack is not None:
        if stack is frame:
            return True
        stack = stack.f_back
    return False
