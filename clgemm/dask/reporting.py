"""The report on a cluster: each worker's device and counts of its products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clgemm.dask.process import about_process

__all__ = ["ClusterReport", "WorkerReport", "report"]


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
        part = f", {self.part}" if self.part else ""
        shared = f", shared by {self.others + 1} processes" if self.others else ""
        where = f"{self.device} ({self.platform}{part}{shared})"
        kept = ", ".join(f"{calls} ({reason})" for reason, calls in self.stayed.items())
        counts = f"{self.offloaded} products of {self.offloaded_bytes / 1e6:,.1f} MB"
        moved = f"{self.bytes_moved / 1e6:,.1f} MB moved"
        text = f"{self.address}: {counts} on {where}, {moved}; on the host: {kept or 'none'}"
        return "; ".join([text, *self.left_out])


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


def report(client: Any) -> ClusterReport:
    """Ask every worker of a cluster for its device and the counts of its products.

    Parameters
    ----------
    client : distributed.Client
        It must not be asynchronous.
    """
    answers = client.run(about_process, on_error="return")
    return ClusterReport(tuple(_worker_report(x, answers[x]) for x in sorted(answers)))


def _worker_report(address: str, about: Any) -> WorkerReport:
    if isinstance(about, BaseException):
        return WorkerReport(address, problem=f"it does not answer: {about!r}")
    known = dict(about)
    is_copied = known.pop("is_copied", False)
    known["left_out"] = tuple(known.pop("left_out", ()))
    moved = known.get("offloaded_bytes", 0) if is_copied else 0
    return WorkerReport(address, bytes_moved=moved, **known)
