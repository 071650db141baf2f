"""The threads that are in a product on a device, one product for each.

No product starts inside another one of its thread, or while the process exits.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType

from clgemm.core.threads import current_frames

__all__ = ["BUSY", "CLOSED", "RunningProducts"]

BUSY = "call inside another product"
CLOSED = "call at exit"
STEP_SECONDS = 1e-3


class RunningProducts:
    """The running products, at most one for each thread.

    A signal's handler or a finalizer may ask for a product inside another one, whose device, locks
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
        """Tell whether another thread is in a product."""
        own, stacks = threading.get_ident(), current_frames()
        return any(
            thread != own and _is_on(frame, stacks.get(thread))
            for thread, frame in list(self._frames.items())
        )


def _is_on(frame: FrameType, stack: FrameType | None) -> bool:
    """Tell whether a frame is on the stack whose innermost frame is `stack`."""
    while stack is not None:
        if stack is frame:
            return True
        stack = stack.f_back
    return False
