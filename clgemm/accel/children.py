"""Acceleration and detection of Python processes that an accelerated program starts."""

# ruff: noqa: PTH100, PTH118, PTH120 - pathlib would delay every program

from __future__ import annotations

import os
import re
import sys
from typing import Any

VARIABLE = "CLGEMM_ACCEL_CHILDREN"
FOLDER = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "for_children"
)  # its sitecustomize.py accelerates them
SPAWNED = (
    "Python processes that the program started use plain NumPy: --children, or "
    "install(children=True), accelerates them too, unless they are forked"
)
FORKED = (
    "forked processes use plain NumPy, since OpenCL does not survive a fork: start processes by "
    "multiprocessing's 'spawn' or 'forkserver' to accelerate them"
)


def accelerate_children(least: int | None, device: Any) -> None:
    """Accelerate the Python processes that this process starts from now on.

    Parameters
    ----------
    least, device : int or None, Device or None
        As in `clgemm.accel.hooks.Settings`.
    """
    import json

    who = None
    if device is not None:
        from clgemm.hardware.device import identity

        who = identity(device)
    os.environ[VARIABLE] = json.dumps({"threshold": least, "device": who})
    paths = [path for path in _paths() if path != FOLDER]
    os.environ["PYTHONPATH"] = os.pathsep.join([FOLDER, *paths])


def leave_children_plain() -> None:
    """Leave NumPy plain in the processes that this process starts from now on."""
    os.environ.pop(VARIABLE, None)
    if FOLDER in (paths := _paths()):
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path != FOLDER)
        if not os.environ["PYTHONPATH"]:
            del os.environ["PYTHONPATH"]


def _paths() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


class StartedProcesses:
    """A record of the Python processes that were started while NumPy was accelerated.

    Of those that multiprocessing, joblib and forks start. Others are not looked for: an audit hook
    would slow down each import of the program.
    """

    def __init__(self) -> None:
        self._is_on = self._is_hooked = False
        self._spawned = self._forked = False
        self._counted = 0

    def watch(self, is_on: bool) -> None:
        """Begin a new record, or end it."""
        if is_on and not self._is_on:
            self._spawned = self._forked = False
            self._counted = _multiprocessing_count()
        self._count()
        self._is_on = is_on
        if is_on and not self._is_hooked:
            self._is_hooked = True
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_parent=self._fork)

    def clear(self) -> None:
        """Clear the record in a forked child, which has started no process yet."""
        self._is_on = self._spawned = self._forked = False

    def note(self) -> str:
        """Return a sentence for the user about processes that are not accelerated, or ""."""
        self._count()
        if VARIABLE in os.environ:
            return FORKED if self._forked else ""
        return SPAWNED if self._spawned or self._forked else ""

    def _fork(self) -> None:
        self._forked |= self._is_on

    def _count(self) -> None:
        """Record the processes that multiprocessing has started, unless some were forked."""
        if self._is_on and not self._forked and _multiprocessing_count() > self._counted:
            self._spawned = True


started = StartedProcesses()


def _multiprocessing_count() -> int:
    """Return how many processes multiprocessing and joblib have started, plus one."""
    module = sys.modules.get("multiprocessing.process")
    found = re.search(r"\d+", repr(getattr(module, "_process_counter", None)))
    return int(found[0]) if found else 1
