"""Which threads are in a product on a device: none begins within another, or at the exit."""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType

__all__ = ["BUSY", "CLOSED", "Passages"]

BUSY = "place inside clgemm"
CLOSED = "time at exit"
STEP_SECONDS = 1e-3


class Passages:
    """The products on their way, at most one in a thread.

    A product within a product (of a signal's handler, or a finalizer) would meet a device, locks
    and memory that the outer one is using. No locks here, so that any place may be interrupted.
    """

    def __init__(self) -> None:
        # By thread, the function that makes the product. One that an exception has ended before it
        # could `leave` keeps nobody out: it is on no stack.
        self._frames: dict[int, FrameType] = {}
        self.is_closed = False

    def enter(self) -> str | None:
        """Let the caller begin a product, to `leave` in the end, or return why it may not."""
        thread = threading.get_ident()
        if (frame := self._frames.get(thread)) is not None and _is_on(frame, sys._getframe()):
            return BUSY
        self._frames[thread] = sys._getframe(1)
        # Only now: `close` waits for those whom it has not stopped.
        if self.is_closed:
            self._frames.pop(thread, None)
            return CLOSED
        return None

    def leave(self) -> None:
        """End the product that the caller began, if it did."""
        thread = threading.get_ident()
        if self._frames.get(thread) is sys._getframe(1):
            self._frames.pop(thread, None)

    def close(self, seconds: float) -> None:
        """Let nobody in from now on, and wait so long for the other threads' products to end."""
        self.is_closed = True
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._others():
            time.sleep(STEP_SECONDS)

    def _others(self) -> bool:
        """Tell whether another thread is in a product."""
        own, stacks = threading.get_ident(), sys._current_frames()
        return any(
            thread != own and _is_on(frame, stacks.get(thread))
            for thread, frame in list(self._frames.items())
        )


def _is_on(frame: FrameType, stack: FrameType | None) -> bool:
    """Tell whether a function is running: its frame is on a stack, given by its innermost frame."""
    while stack is not None:
        if stack is frame:
            return True
        stack = stack.f_back
    return False
