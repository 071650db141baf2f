"""The threads that copy between host arrays and pinned memory, for all calls of a process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

__all__ = ["Work", "copying_threads"]

# What a thread does next: a function, and its argument.
Work: TypeAlias = "SimpleQueue[tuple[Callable[[Any], object], Any]]"

_lock = threading.RLock()
# By process, since threads do not fork, and number of threads.
_work: dict[tuple[int, int], Work] = {}


def copying_threads(count: int) -> Work | None:
    """Return what feeds so many threads, made when first needed; None if there can be none."""
    if sys.is_finalizing():  # daemon threads have stopped
        return None
    key = os.getpid(), count
    with _lock:
        if key not in _work:
            work: Work = SimpleQueue()
            started = 0
            try:
                for number in range(count):
                    name = f"clgemm-copy_{number}"
                    threading.Thread(target=_serve, args=(work,), name=name, daemon=True).start()
                    started += 1
            except RuntimeError:  # no more threads, or the interpreter ends
                if not started:
                    return None
            _work[key] = work
        return _work[key]


def _serve(work: Work) -> None:
    while True:
        _do(*work.get())


def _do(function: Callable[[Any], object], argument: object) -> None:
    """Do one thing; nothing refers to it afterwards."""
    function(argument)
