"""Accelerating one worker process, once, for as long as one of its workers wants it."""

from __future__ import annotations

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
from clgemm.dask.devices import Assigned, assign
from clgemm.hardware.choice import get_device, set_device
from clgemm.hardware.choice import reason as device_reason
from clgemm.hardware.device import Device

__all__ = ["Settings", "about_process", "begin", "end"]

log = logging.getLogger("clgemm.dask")

NOT_ACCELERATED = "not accelerated"


@dataclass(frozen=True)
class Settings:
    """What `Accelerate` was asked for."""

    threshold: int | None
    precision: str | None
    device: Any


class _Acceleration:
    """What is changed in this process, and how to undo it."""

    def __init__(self, settings: Settings, cores: int) -> None:
        self.device: Device | None = None
        self.part = self.problem = ""
        self.others = 0
        self._assigned: Assigned | None = None
        self._block: enabled | None = None
        self._precision_before = os.environ.get(PRECISION_VARIABLE)
        self._sets_device = self._sets_precision = False
        try:
            self._choose(settings, cores)
        except (RuntimeError, ValueError) as error:  # no device, or none of that name
            self.problem = str(error).partition("\n")[0]
            log.warning("clgemm: NumPy multiplies in this worker: %s", error)
            return
        try:
            if settings.precision is not None:
                os.environ[PRECISION_VARIABLE] = settings.precision
                self._sets_precision = True
            self._block = enabled(settings.threshold)
            self._block.__enter__()
            route_einsum()
        except BaseException:
            self.undo()
            raise

    def _choose(self, settings: Settings, cores: int) -> None:
        if settings.device is None or device_reason().startswith("chosen by"):
            self.device = get_device()  # a program in this worker has chosen before
            return
        self._assigned = assign(settings.device, cores)
        candidate, claim = self._assigned
        self.device, self.part = candidate.device, candidate.part
        self.others = 0 if claim is None else claim.others
        set_device(self.device)
        self._sets_device = True

    def undo(self) -> None:
        """Leave NumPy, Dask, the device and the precision as they were."""
        if self._block is not None:
            self._block.__exit__(None, None, None)
            self._block = None
            release_einsum()
        if self._sets_device:
            set_device(None)
        if self._sets_precision:
            if self._precision_before is None:
                os.environ.pop(PRECISION_VARIABLE, None)
            else:
                os.environ[PRECISION_VARIABLE] = self._precision_before
        if self._assigned is not None and self._assigned.claim is not None:
            self._assigned.claim.release()


_lock = threading.Lock()
_owners: set[object] = set()  # who wants it: a worker's plugin, its preload
_now: _Acceleration | None = None


def begin(owner: object, settings: Settings, cores: int) -> None:
    """Accelerate this process for an owner; the first one's settings hold."""
    global _now
    with _lock:
        if _now is None:
            _now = _Acceleration(settings, cores)
        _owners.add(owner)


def end(owner: object) -> None:
    """Restore this process once no owner is left; harmless for one that is none."""
    global _now
    with _lock:
        _owners.discard(owner)
        if not _owners and _now is not None:
            _now.undo()
            _now = None


def about_process() -> dict[str, Any]:
    """Return what there is to say of this process, in values that any process can read."""
    now = _now
    told: dict[str, Any] = {
        "host": platform.node(),
        "pid": os.getpid(),
        "blas_threads": blas_threads(),
        "problem": NOT_ACCELERATED if now is None else now.problem,
    }
    if now is None or now.device is None:
        return told
    found = accel_report()
    return told | {
        "device": now.device.name,
        "platform": now.device.platform.partition("  ")[0],
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
