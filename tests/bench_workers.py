"""Stand-ins for the worker processes of the benchmark, and whether a process has ended."""

from __future__ import annotations

import os
import sys

from clgemm.bench.pipe import Worker


def scripted(text: str) -> Worker:
    """Return a worker that runs a script instead."""
    made = Worker("clgemm", ["", "", "0"], os.environ)
    made.command = [sys.executable, "-c", text]
    return made


def gone(process_id: int) -> bool:
    """Tell whether a process has ended."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False
