"""Acceleration of Dask's workers, and the report on them.

A worker is accelerated by a client's plugin or by a module to preload: once, for as long as one of
them needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dask.array.dispatch import einsum_lookup
from distributed import WorkerPlugin

from clgemm.accel import enabled
from clgemm.accel import report as accel_report
from clgemm.core.host import blas_threads
from clgemm.core.settings import PRECISION_VARIABLE, least_of, require_precision
from clgemm.dask.devices import ONE_EACH, assign
from clgemm.hardware.choice import get_device, set_device
from clgemm.hardware.choice import reason as device_reason
from clgemm.hardware.device import Device
from clgemm.terminal import html_table

log = logging.getLogger("clgemm.dask")


class Accelerate(WorkerPlugin):  # type: ignore[misc]
    """Accelerate NumPy in every worker, each on a device of its own.

    Workers that are started later, restarted or added by adaptive scaling are accelerated too. A
    worker without an OpenCL device multiplies with NumPy and logs one warning. NumPy is restored
    when the plugin is removed (``client.unregister_worker_plugin("clgemm")``) and when the worker
    closes. Registering it again changes nothing, whatever the arguments are.

    Parameters
    ----------
    threshold : int, optional
        As for `clgemm.accel.install`.
    precision : {"strict", "float32", "fast"}, optional
        As `clgemm.precision`, for the whole worker.
    device : str, int, sequence of those or None, optional
        ``"one-each"`` gives each worker of a machine a device that no other worker of this user
        has. GPUs come first. Then come parts of the processor, with as many compute units as the
        worker has threads. If there are too few devices, workers share them. CLGEMM_DEVICE,
        CUDA_VISIBLE_DEVICES and its like limit the choice. A name or position, as for
        `clgemm.set_device`, is one device for all workers. With a list of these, each worker of a
        machine gets another one. None leaves the choice to `clgemm.get_device`.

    Raises
    ------
    ValueError
        If `threshold` is negative or no whole number, or `precision` is not one of the three.
    TypeError
        If `device` is of another type.

    Examples
    --------
    >>> client.register_plugin(clgemm.dask.Accelerate())
    >>> c = da.matmul(a, b).compute()
    >>> print(clgemm.dask.report(client))
    """

    name = "clgemm"
    idempotent = True

    def __init__(
        self,
        threshold: int | None = None,
        precision: str | None = None,
        device: str | int | Sequence[str | int] | None = ONE_EACH,
    ) -> None:
        least = least_of(threshold, None)
        if precision is not None:
            require_precision(precision)
        self._settings = Settings(least, precision, _checked(device))

    async def setup(self, worker: Any) -> None:
        """Accelerate a worker's process. Dask calls this."""
        # In a thread: finding devices may take seconds, and the worker has to answer meanwhile.
        cores = worker.state.nthreads
        await asyncio.to_thread(begin, (worker.id, "plugin"), self._settings, cores)

    async def teardown(self, worker: Any) -> None:
        """Restore NumPy in a worker's process. Dask calls this."""
        await asyncio.to_thread(end, (worker.id, "plugin"))


def _checked(device: Any) -> Any:
    if device is None or isinstance(device, str | int):
        return device
    if isinstance(device, Sequence) and device and all(isinstance(x, str | int) for x in device):
        return tuple(device)
    raise TypeError(
        f"device={device!r} is neither 'one-each', a name or position, a list of those, nor None"
    )


async def dask_setup(worker: Any) -> None:
    """Accelerate a worker that preloads this package: ``dask worker --preload clgemm.dask``.

    Its settings are CLGEMM_THRESHOLD, CLGEMM_PRECISION and CLGEMM_DEVICE.
    """
    if hasattr(worker, "state") and hasattr(worker.state, "nthreads"):  # a worker, no nanny
        await asyncio.to_thread(begin, (worker.id, "preload"), Settings(), worker.state.nthreads)


async def dask_teardown(worker: Any) -> None:
    """Restore NumPy in a worker that closes."""
    await asyncio.to_thread(end, (worker.id, "preload"))


@dataclass(frozen=True)
class Settings:
    """The arguments of `Accelerate`."""

    threshold: int | None = None
    precision: str | None = None
    device: Any = ONE_EACH


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
            undo.callback(einsum_lookup.register, np.ndarray, np.einsum)
            einsum_lookup.register(np.ndarray, einsum)
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
    """Return the fields of this process's `WorkerReport`, which any other process can unpickle."""
    now = _now
    facts: dict[str, Any] = {
        "host": platform.node(),
        "pid": os.getpid(),
        "blas_threads": blas_threads(),
        "problem": "not accelerated" if now is None else now.problem,
    }
    if now is None or now.device is None:
        return facts
    found = accel_report()
    is_copied = not now.device.shares_host_memory
    return facts | {
        "device": now.device.name,
        "platform": now.device.short_platform,
        "kind": now.device.kind,
        "compute_units": now.device.limits.compute_units,
        "part": now.part,
        "others": now.others,
        "offloaded": found.offloaded,
        "offloaded_bytes": found.offloaded_bytes,
        "bytes_moved": found.offloaded_bytes if is_copied else 0,
        "stayed": dict(found.stayed),
        "left_out": tuple(map(str, found.left_out)),
    }


def einsum(subscripts: Any, *operands: Any, optimize: Any = False, **keywords: Any) -> Any:
    """Return np.einsum of chunks, with matrix products for float32.

    Accelerated workers have this function in Dask's table, so that `dask.array.einsum` calls it.
    np.einsum uses matrix products only if `optimize` is true.
    """
    if optimize is False and len(operands) > 1 and all(x.dtype == np.float32 for x in operands):
        optimize = True
    return np.einsum(subscripts, *operands, optimize=optimize, **keywords)


@dataclass(frozen=True)
class WorkerReport:
    """The device of one worker, and counts of its products since it was accelerated.

    Attributes
    ----------
    address : str
        The worker's address.
    host, pid : str, int
        The machine and the process. Workers of one process have the same counts.
    device, platform, kind : str
        The OpenCL device; empty if the worker has none.
    part : str
        Which part of the device the worker has, or which of several of the same name; empty for a
        whole device that is the only one.
    compute_units : int
        The compute units of the device or the part.
    others : int
        How many processes had the device before this one and share it.
    blas_threads : int
        The number of threads of NumPy's BLAS in the process.
    offloaded : int
        The number of products on the device.
    offloaded_bytes : int
        The size of their operands and results.
    bytes_moved : int
        How many of these bytes were copied to or from the device; 0 if the device shares the host's
        memory.
    stayed : mapping of str to int
        The number of products on the host for each reason.
    left_out : sequence of str
        Devices whose last product failed.
    problem : str
        Why the worker is not accelerated; empty if it is.
    """

    address: str
    host: str = ""
    pid: int = 0
    device: str = ""
    platform: str = ""
    kind: str = ""
    part: str = ""
    compute_units: int = 0
    others: int = 0
    blas_threads: int = 0
    offloaded: int = 0
    offloaded_bytes: int = 0
    bytes_moved: int = 0
    stayed: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.address}: NumPy multiplies: {self.problem}"
        address, where, products, size, moved, kept = self._cells()
        counts = f"{products} products of {size} MB on {where}, {moved} MB moved"
        return f"{address}: {counts}; on the host: {kept}"

    def _cells(self) -> tuple[str, ...]:
        """Return what a row of a table holds."""
        kept = ", ".join(f"{calls} ({reason})" for reason, calls in self.stayed.items())
        part = f", {self.part}" if self.part else ""
        shared = f", shared by {self.others + 1} processes" if self.others else ""
        return (
            self.address,
            f"{self.device} ({self.platform}{part}{shared})",
            str(self.offloaded),
            *(f"{each / 1e6:,.1f}" for each in (self.offloaded_bytes, self.bytes_moved)),
            "; ".join([kept or "none", *self.left_out]),
        )


@dataclass(frozen=True)
class ClusterReport:
    """The reports of a cluster's workers."""

    workers: tuple[WorkerReport, ...]

    @property
    def offloaded(self) -> int:
        """The number of products on devices, in all processes."""
        return sum({(w.host, w.pid): w.offloaded for w in self.workers}.values())

    @property
    def bytes_moved(self) -> int:
        """The number of bytes copied to and from devices, in all processes."""
        return sum({(w.host, w.pid): w.bytes_moved for w in self.workers}.values())

    def __str__(self) -> str:
        return "\n".join(map(str, self.workers)) or "no workers"

    def _repr_html_(self) -> str:
        """Return what a notebook displays."""
        heads = "worker", "device", "products", "MB", "MB moved", "on the host"
        rows = [(str(x),) if x.problem else x._cells() for x in self.workers]
        return html_table(heads, rows, title="" if rows else "no workers")


def report(client: Any) -> ClusterReport:
    """Ask every worker of a cluster for its device and the counts of its products.

    Parameters
    ----------
    client : distributed.Client
        It must not be asynchronous.
    """
    answers = client.run(about_process, on_error="return")
    for address, about in answers.items():
        if isinstance(about, BaseException):
            answers[address] = {"problem": f"it does not answer: {about!r}"}
    return ClusterReport(tuple(WorkerReport(x, **answers[x]) for x in sorted(answers)))
