"""What each thread of the process runs."""

from __future__ import annotations

import gc
import sys
from types import FrameType

__all__ = ["current_frames"]


def current_frames() -> dict[int, FrameType]:
    """Return for each thread its innermost frame, as `sys._current_frames` does.

    Python 3.11 makes frame objects while it holds a lock of the interpreter. A garbage collection
    there may wait for a thread that waits for this lock, and the process hangs
    (https://github.com/python/cpython/issues/106883). So no collection starts meanwhile.
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()
