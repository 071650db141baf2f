"""Acceleration of a worker's process: it begins once and lasts as long as anything needs it."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import threading
from dataclasses import dataclass
from typing import Any

from clgemm.accel import enabled
from clgemm.accel import report as accel_report
from clgemm.core.host_blas import blas_threads
from clgemm.core.precision import PRECISION_VARIABLE
from clgemm.dask.contractions import release_einsum, route_einsum
from clgemm.dask.devices import assign
from clgemm.hardware.choice import get_device, set_device
from clgemm.hardware.choice import reason as device_reason
from clgemm.hardware.device import Device

__all__ = ["Settings", "about_process", "begin", "end"]

log = logging.getLogger("clgemm.dask")

NOT_ACCELERATED = "not accelerated"


@dataclass(frozen=True)
class Settings:
    """The arguments of `Accelerate`."""

    threshold: int | None
    precision: str | None
    device: Any


class _Acceleration:
    """The changes in this process, and how to undo them.

    Attributes
    ----------
    problem : str
        Why nothing was changed; empty if the process is accelerated.
    """

    def __init__(self, settings: Settings, cores: int) -> None:
        self.device: Device | None = None
        self.part = self.problem = ""
        self.others = 0
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:  # an error in this block undoes the changes so far
            try:
                self._choose(settings, cores, undo)
            except (RuntimeError, ValueError) as error:  # no device works, or none has that name
                self.problem = str(error).partition("\n")[0]
                log.warning("clgemm: NumPy multiplies in this worker: %s", error)
                return
            if settings.precision is not None:
                undo.callback(_restore_precision, os.environ.get(PRECISION_VARIABLE))
                os.environ[PRECISION_VARIABLE] = settings.precision
            undo.enter_context(enabled(settings.threshold))
            undo.callback(release_einsum)
            route_einsum()
            self._undo = undo.pop_all()

    def _choose(self, settings: Settings, cores: int, undo: contextlib.ExitStack) -> None:
        if settings.device is None or device_reason().startswith("chosen by"):
            self.device = get_device()  # perhaps a program in this worker has chosen it
            return
        candidate, claim = assign(settings.device, cores)
        if claim is not None:
            undo.callback(claim.release)
            self.others = claim.others
        self.device, self.part = candidate.device, candidate.part
        set_device(self.device)
        undo.callback(set_device, None)

    def undo(self) -> None:
        """Restore NumPy, Dask, the device and the precision, and release the claim."""
        self._undo.close()


def _restore_precision(before: str | None) -> None:
    if before is None:
        os.environ.pop(PRECISION_VARIABLE, None)
    else:
        os.environ[PRECISION_VARIABLE] = before


_lock = threading.Lock()
_owners: set[object] = set()  # the plugins and preloads that need the acceleration
_now: _Acceleration | None = None


def begin(owner: object, settings: Settings, cores: int) -> None:
    """Accelerate this process for an owner. The settings of the first owner apply."""
    global _now
    with _lock:
        if _now is None:
            _now = _Acceleration(settings, cores)
        _owners.add(owner)


def end(owner: object) -> None:
    """Remove an owner, and restore this process if no owner is left."""
    global _now
    with _lock:
        _owners.discard(owner)
        if not _owners and _now is not None:
            _now.undo()
            _now = None


def about_process() -> dict[str, Any]:
    """Describe this process's acceleration, in values that any other process can unpickle."""
    now = _now
    facts: dict[str, Any] = {
        "host": platform.node(),
        "pid": os.getpid(),
        "blas_threads": blas_threads(),
        "problem": NOT_ACCELERATED if now is None else now.problem,
    }
    if now is None or now.device is None:
        return facts
    found = accel_report()
    return facts | {
        "device": now.device.name,
        "platform": now.device.short_platform,
        "kind": now.device.kind,
        "compute_units": now.device.limits.compute_units,
        "part": now.part,
        "others": now.others,
        "offloaded": found.offloaded,
        "offloaded_bytes": found.offloaded_bytes,
        "is_copied": not now.device.shares_host_memory,
        "stayed": dict(found.stayed),
        "left_out": [str(x) for x in found.left_out],
    }
