"""Choosing an OpenCL device: what there is, which one serves, its limits and its queue."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from contextvars import ContextVar, Token
from typing import Any, cast

import numpy as np
import pyopencl as cl

from clgemm.config import Limits
from clgemm.pocl_threads import pinned_threads
from clgemm.streaming import TransferConfig

__all__ = ["Device", "compute_capability", "device", "devices", "get_device", "set_device"]

ENVIRONMENT_VARIABLE = "CLGEMM_DEVICE"
SEEING_OTHERS = {"__opencl_c_atomic_order_acq_rel", "__opencl_c_atomic_scope_device"}
# Limits.kept_bytes of NVIDIA's GPUs, by compute capability: OpenCL does not tell how large a
# second-level cache is. Measured on an H200, of whose 60 MB so much is best; an H100 has 50.
KEPT_BYTES = {(9, 0): 34_000_000}
NO_PLATFORM = (
    "no OpenCL device was found: 'pip install clgemm[pocl]' installs one that runs on any CPU; "
    "a GPU's comes with its driver"
)
FORKED = (
    "OpenCL cannot be used in a process forked from one that had opened it: start the process by "
    "'spawn' or 'forkserver'"
)


class Device:
    """One OpenCL device, with a context and an in-order queue of its own.

    Host arrays are computed on `queue`; pyopencl arrays bring queues of their own.

    Attributes
    ----------
    transfer : TransferConfig or None
        How host arrays reach it if not in the default way for its kind.
    """

    def __init__(
        self,
        cl_device: cl.Device,
        context: cl.Context | None = None,
        transfer: TransferConfig | None = None,
    ) -> None:
        self.cl_device = cl_device
        self.transfer = transfer
        # What is made when first asked for, once, be it within another such request.
        self._made: dict[str, Any] = {} if context is None else {"context": context}
        self._lock = threading.RLock()

    @functools.cached_property
    def name(self) -> str:
        """The device's name as its driver gives it."""
        return str(self.cl_device.name).strip()

    @functools.cached_property
    def platform(self) -> str:
        """The platform's name and version."""
        platform = self.cl_device.platform
        return f"{platform.name.strip()}, {platform.version.strip()}"

    @functools.cached_property
    def kind(self) -> str:
        """``"GPU"``, ``"CPU"`` or ``"accelerator"``."""
        # Simulators call themselves everything at once: what they are surely not is a GPU's driver.
        kinds = self.cl_device.type
        if kinds & cl.device_type.CPU:
            return "CPU"
        return "GPU" if kinds & cl.device_type.GPU else "accelerator"

    @functools.cached_property
    def limits(self) -> Limits:
        """What its kernels can take."""
        d, capability = self.cl_device, compute_capability(self.cl_device)
        return Limits(
            local_memory_bytes=d.local_mem_size,
            work_group_size=min(d.max_work_group_size, d.max_work_item_sizes[0]),
            allocation_bytes=d.max_mem_alloc_size,
            compute_units=d.max_compute_units,
            vector_width=max(1, d.native_vector_width_float) if self.kind == "CPU" else 1,
            gathers=self._sees_others(),
            kept_bytes=KEPT_BYTES.get(capability, 0) if "NVIDIA" in self.platform else 0,
        )

    def _sees_others(self) -> bool:
        d = self.cl_device
        try:
            if "NVIDIA" in self.platform:  # what its OpenCL C lacks, its assembly has
                return "OpenCL 3" in self.platform and compute_capability(d) >= (7, 0)
            return {feature.name for feature in d.opencl_c_features} >= SEEING_OTHERS
        except (cl.Error, AttributeError):  # older than OpenCL 3.0
            return False

    @property
    def context(self) -> cl.Context:
        """The context, made when first asked for."""
        with self._lock:
            if "context" not in self._made:
                self._made.setdefault("context", cl.Context([self.cl_device]))
            return cast("cl.Context", self._made["context"])

    @property
    def queue(self) -> cl.CommandQueue:
        """The in-order queue that host operands are computed on, made when first asked for."""
        context = self.context
        with self._lock:
            if "queue" not in self._made:
                self._made.setdefault("queue", cl.CommandQueue(context, self.cl_device))
            return cast("cl.CommandQueue", self._made["queue"])

    @functools.cached_property
    def shares_host_memory(self) -> bool:
        """Whether kernels read and write NumPy's memory where it lies.

        Runtimes may keep a shadow copy behind a USE_HOST_PTR buffer; so it is tried out.
        """
        if self.kind != "CPU" or not self.cl_device.host_unified_memory:
            return False
        probe = np.zeros(64, np.float32)[1:]  # as badly aligned as a view can be
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        buffer = cl.Buffer(self.context, flags, hostbuf=probe)
        cl.enqueue_fill_buffer(self.queue, buffer, np.ones(1, np.float32), 0, probe.nbytes)
        self.queue.finish()
        return bool(probe.all())

    def __repr__(self) -> str:
        return f"<clgemm.Device {self.name!r} ({self.kind}; {self.platform})>"


def compute_capability(device: cl.Device) -> tuple[int, int]:
    """Return what NVIDIA counts its GPUs' abilities by; (0, 0) of others."""
    try:
        return device.compute_capability_major_nv, device.compute_capability_minor_nv
    except (cl.Error, AttributeError):
        return 0, 0


@functools.cache
def devices() -> tuple[Device, ...]:
    """Return every OpenCL device here, the default one first.

    Returns
    -------
    tuple of Device
        Empty where there is no OpenCL platform. GPUs come before other devices, then the one
        with more compute units times vector width times clock frequency.
    """
    found = []
    with pinned_threads():
        try:
            platforms = cl.get_platforms()
        except cl.LogicError:  # the loader's word for: none is installed
            platforms = []
        for platform in platforms:
            # A platform may be there without a device (Mesa's Clover beside its successor).
            with contextlib.suppress(cl.RuntimeError, cl.LogicError):
                found += [Device(d) for d in platform.get_devices()]
    return tuple(sorted(found, key=_speed, reverse=True))


def _speed(candidate: Device) -> tuple[int, int, int]:
    d = candidate.cl_device
    lanes = d.native_vector_width_float * d.max_compute_units
    rank = {"GPU": 3, "accelerator": 2, "CPU": 1}[candidate.kind]
    # A GPU's driver played by the CPU comes after the CPU itself.
    return (0 if "llvmpipe" in candidate.name else rank, lanes, d.max_clock_frequency)


def find_device(spec: str | int | Device | cl.Device | cl.Context | cl.CommandQueue) -> Device:
    """Return the device that `spec` names.

    Parameters
    ----------
    spec : str, int, Device, pyopencl.Device, pyopencl.Context or pyopencl.CommandQueue
        A string is ``"gpu"``, ``"cpu"``, a position in `devices()`, or a part of a device's or
        platform's name, in any case.

    Raises
    ------
    ValueError
        If a string or number names no device; the message lists what there is.
    RuntimeError
        If there is no OpenCL device at all.
    TypeError
        If `spec` is of another type.
    """
    if isinstance(spec, Device):
        return spec
    if isinstance(spec, cl.CommandQueue):
        return of_queue(spec)
    if isinstance(spec, cl.Context):
        return _wrapped(spec.devices[0], spec)
    if isinstance(spec, cl.Device):
        return next((d for d in devices() if d.cl_device == spec), None) or Device(spec)
    if not isinstance(spec, str | int):
        raise TypeError(
            f"a device is named by a string, number or OpenCL object, not {type(spec).__name__}"
        )
    present = devices()
    if not present:
        raise RuntimeError(NO_PLATFORM)
    wanted = str(spec).strip().lower()
    if wanted.isdecimal():
        matches = list(present[int(wanted) : int(wanted) + 1])
    elif wanted in ("gpu", "cpu", "accelerator"):
        matches = [d for d in present if d.kind.lower() == wanted]
    else:
        matches = [d for d in present if wanted in f"{d.name} {d.platform}".lower()]
    if not wanted or not matches:
        listing = "; ".join(
            f"{i}: {d.name} ({d.kind}; {d.platform})" for i, d in enumerate(present)
        )
        raise ValueError(f"{spec!r} names no OpenCL device; there is {listing}")
    return matches[0]


@functools.lru_cache(maxsize=64)
def _wrapped(cl_device: cl.Device, context: cl.Context) -> Device:
    return Device(cl_device, context)


def of_queue(queue: cl.CommandQueue) -> Device:
    """Return the device that a queue feeds, in the queue's own context."""
    return _wrapped(queue.device, queue.context)


_forked = False  # from a process that had opened OpenCL, whose runtimes do not survive that


def _after_fork() -> None:
    global _forked
    _forked = _forked or devices.cache_info().currsize > 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_chosen: Device | None = None  # by set_device, for the whole process
_scoped: ContextVar[Device | None] = ContextVar("clgemm_device", default=None)  # by device(...)


@functools.cache
def _default(spec: str) -> Device:
    """Return the device that the environment names, or the first of all."""
    if spec:
        try:
            return find_device(spec)
        except ValueError as error:
            raise ValueError(f"{ENVIRONMENT_VARIABLE}={error}") from None
    if not devices():
        raise RuntimeError(NO_PLATFORM)
    return devices()[0]


def get_device() -> Device:
    """Return the device that host operands are computed on: scoped, set, or the default.

    Raises
    ------
    RuntimeError
        If there is no OpenCL device; the message says which command installs one. If this process
        was forked from one that had opened OpenCL: in its child OpenCL would crash, or hang.
    ValueError
        If the environment variable CLGEMM_DEVICE names none; the message lists what there is.
    """
    if _forked:
        raise RuntimeError(FORKED)
    return _scoped.get() or _chosen or _default(os.environ.get(ENVIRONMENT_VARIABLE, ""))


def reason() -> str:
    """Say why `get_device` returns what it does."""
    if _scoped.get():
        return "chosen by clgemm.device(...)"
    if _chosen:
        return "chosen by clgemm.set_device(...)"
    if os.environ.get(ENVIRONMENT_VARIABLE):
        return f"named by {ENVIRONMENT_VARIABLE}={os.environ[ENVIRONMENT_VARIABLE]}"
    return "the fastest device present: GPUs first, then by compute units x vector width x clock"


def set_device(spec: str | int | Device | cl.Device | cl.Context | cl.CommandQueue | None) -> None:
    """Compute host operands on this device from now on, in every thread.

    Parameters
    ----------
    spec : str, int, Device, pyopencl.Device, pyopencl.Context, pyopencl.CommandQueue or None
        As ``"gpu"``, ``"cpu"``, a position in `devices()`, a part of a device's or platform's
        name, or an object of pyopencl. None goes back to the default.

    Raises
    ------
    ValueError, RuntimeError, TypeError
        As `spec` names no device, there is none, or it is of a wrong type; nothing changes.
    """
    global _chosen
    _chosen = None if spec is None else find_device(spec)


class device(contextlib.ContextDecorator):  # noqa: N801 - used as a function, like numpy.errstate
    """Compute host operands on another device within a ``with`` block or a function.

    Parameters
    ----------
    spec : str, int, Device, pyopencl.Device, pyopencl.Context or pyopencl.CommandQueue
        As for `set_device`. It holds for the current thread or task and may be nested.

    Examples
    --------
    >>> with clgemm.device("cpu"):
    ...     c = clgemm.sgemm(1.0, a, b)
    """

    def __init__(self, spec: str | int | Device | cl.Device | cl.Context | cl.CommandQueue) -> None:
        self._device = find_device(spec)
        self._tokens: list[Token[Device | None]] = []

    def _recreate_cm(self) -> device:
        return device(self._device)  # each call of a decorated function restores for itself

    def __enter__(self) -> Device:
        self._tokens.append(_scoped.set(self._device))
        return self._device

    def __exit__(self, *exception: object) -> None:
        _scoped.reset(self._tokens.pop())


def is_in_order(queue: cl.CommandQueue) -> bool:
    """Whether commands of the queue run one after the other."""
    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    return not cast("int", queue.properties) & out_of_order
