"""Stand-ins for the worker processes of the benchmark, and whether a process has ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from clgemm.bench.rounds import worker_of
from clgemm.core.child import Child


def scripted(text: str) -> Child:
    """Return a worker that runs a script instead."""
    made = worker_of("clgemm", ["", "", "0"], os.environ)
    made.command = [sys.executable, "-c", text]
    return made


def gone(process_id: int, seconds: float = 30.0) -> bool:
    """Tell whether a process ends within some time. It may be left for init to reap."""
    deadline = time.monotonic() + seconds
    while not _has_ended(process_id):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _has_ended(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:  # it has ended since, or there is no /proc
        return False
    return status.rpartition(")")[2].split()[0] == "Z"
