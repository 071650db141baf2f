"""OpenCL devices: their list, and the limits, context and queue of each."""

from __future__ import annotations

import functools
import threading
from typing import Any, NamedTuple, cast

import numpy as np
import pyopencl as cl

from clgemm.core.config import Limits
from clgemm.core.transfer import TransferConfig
from clgemm.hardware import runtimes
from clgemm.hardware.forks import opened, require_unforked
from clgemm.hardware.pocl_threads import pinned_threads

__all__ = [
    "INTEL",
    "POCL",
    "Device",
    "Present",
    "compute_capability",
    "is_in_order",
    "of_queue",
    "present",
    "register_width",
    "wrapped",
]

POCL, INTEL = "Portable Computing Language", "Intel(R) OpenCL"  # the beginnings of platform names
# With these features of OpenCL 3.0, a work-group sees what another one of the launch wrote.
SEEING_OTHERS = {"__opencl_c_atomic_order_acq_rel", "__opencl_c_atomic_scope_device"}
# Limits.kept_bytes of NVIDIA's GPUs by compute capability, since OpenCL does not report the size of
# the second-level cache. Measured on an H200, whose cache has 60 MB.
KEPT_BYTES = {(9, 0): 34_000_000}


class Device:
    """One OpenCL device, with a context and an in-order queue of its own.

    Products of host arrays run on `queue`; pyopencl arrays bring their own queues.

    Attributes
    ----------
    transfer : TransferConfig or None
        The limits of transfers; None for the defaults of its kind.
    """

    def __init__(
        self,
        cl_device: cl.Device,
        context: cl.Context | None = None,
        transfer: TransferConfig | None = None,
    ) -> None:
        self.cl_device = cl_device
        self.transfer = transfer
        # The context and the queue, made once at their first use. The lock is reentrant: a
        # finalizer or a signal handler may ask for them in the middle of that.
        self._made: dict[str, Any] = {} if context is None else {"context": context}
        self._lock = threading.RLock()
        opened()

    @functools.cached_property
    def name(self) -> str:
        """The device's name, as its driver reports it."""
        return str(self.cl_device.name).strip()

    @functools.cached_property
    def platform(self) -> str:
        """The platform's name and version."""
        platform = self.cl_device.platform
        return f"{platform.name.strip()}, {platform.version.strip()}"

    @functools.cached_property
    def label(self) -> str:
        """The device's name and platform in short, for messages."""
        # In PoCL's version, two spaces precede the options of its build.
        return f"{self.name} ({self.platform.partition('  ')[0]})"

    @functools.cached_property
    def kind(self) -> str:
        """``"GPU"``, ``"CPU"`` or ``"accelerator"``."""
        # Simulators report all types at once, and none of them is a GPU.
        kinds = self.cl_device.type
        if kinds & cl.device_type.CPU:
            return "CPU"
        return "GPU" if kinds & cl.device_type.GPU else "accelerator"

    @functools.cached_property
    def limits(self) -> Limits:
        """The limits of kernels on the device."""
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
            if "NVIDIA" in self.platform:  # not a feature of its OpenCL C, but PTX has it
                return "OpenCL 3" in self.platform and compute_capability(d) >= (7, 0)
            return {feature.name for feature in d.opencl_c_features} >= SEEING_OTHERS
        except (cl.Error, AttributeError):  # older than OpenCL 3.0
            return False

    @property
    def context(self) -> cl.Context:
        """The context, made at its first use."""
        with self._lock:
            if "context" not in self._made:
                self._made.setdefault("context", cl.Context([self.cl_device]))
            return cast("cl.Context", self._made["context"])

    @property
    def queue(self) -> cl.CommandQueue:
        """The in-order queue for products of host arrays, made at its first use."""
        context = self.context
        with self._lock:
            if "queue" not in self._made:
                self._made.setdefault("queue", cl.CommandQueue(context, self.cl_device))
            return cast("cl.CommandQueue", self._made["queue"])

    @functools.cached_property
    def shares_host_memory(self) -> bool:
        """Whether kernels read and write NumPy's memory in place.

        A runtime may copy the memory of a USE_HOST_PTR buffer, so a small buffer tests it.
        """
        if self.kind != "CPU" or not self.cl_device.host_unified_memory:
            return False
        probe = np.zeros(64, np.float32)[1:]  # a view with the smallest alignment
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        buffer = cl.Buffer(self.context, flags, hostbuf=probe)
        cl.enqueue_fill_buffer(self.queue, buffer, np.ones(1, np.float32), 0, probe.nbytes)
        self.queue.finish()
        return bool(probe.all())

    def __repr__(self) -> str:
        return f"<clgemm.Device {self.name!r} ({self.kind}; {self.platform})>"


def register_width(device: Device) -> int:
    """Return how many floats of a CPU's vector register the runtime's compiler uses."""
    width = min(device.limits.vector_width, 16)
    # PoCL 3.0 from PyPI has LLVM 14, which compiles for AMD's processors with AVX-512 as for older
    # ones. PoCL still reports the processor's own width.
    old = any(f"PoCL {version}" in device.platform for version in ("1.", "2.", "3.0"))
    return min(width, 8) if old and "AMD" in device.cl_device.vendor else width


def compute_capability(device: cl.Device) -> tuple[int, int]:
    """Return the compute capability of an NVIDIA GPU, or (0, 0) for other devices."""
    try:
        return device.compute_capability_major_nv, device.compute_capability_minor_nv
    except (cl.Error, AttributeError):
        return 0, 0


class Present(NamedTuple):
    """The devices and platforms that OpenCL lists.

    Attributes
    ----------
    devices : tuple of Device
        The fastest first. Some may not work.
    empty : tuple of str
        Platforms without a device, each with the error that it reports, if any.
    """

    devices: tuple[Device, ...]
    empty: tuple[str, ...]


@functools.cache
def present() -> Present:
    """Return every OpenCL device of the machine, including those that do not work.

    GPUs come first. Devices of one kind are sorted by compute units times vector width; for the
    same processor, PoCL comes before other runtimes.
    """
    opened()
    runtimes.register()  # again: environment variables may have changed since clgemm's import
    found, empty = [], []
    with pinned_threads():
        try:
            platforms = cl.get_platforms()
        except cl.LogicError:  # the loader raises this if no platform is installed
            platforms = []
        for platform in platforms:
            name = f"{platform.name.strip()}, {platform.version.strip()}"
            try:
                here = [Device(d) for d in platform.get_devices()]
            except (cl.RuntimeError, cl.LogicError) as error:
                # A platform may have no device, such as Mesa's Clover where rusticl is installed.
                here = []
                if error.code != cl.status_code.DEVICE_NOT_FOUND:
                    name += f": {error}"
            found += here
            empty += [] if here else [name]
    return Present(tuple(sorted(found, key=_speed, reverse=True)), tuple(empty))


def _speed(candidate: Device) -> tuple[int, int, bool, int]:
    d = candidate.cl_device
    lanes = register_width(candidate) if candidate.kind == "CPU" else d.native_vector_width_float
    rank = {"GPU": 3, "accelerator": 2, "CPU": 1}[candidate.kind]
    is_pocl = candidate.platform.startswith(POCL)
    # llvmpipe is a GPU driver that runs on the CPU: it comes after the CPU itself.
    rank = 0 if "llvmpipe" in candidate.name else rank
    return rank, lanes * d.max_compute_units, is_pocl, d.max_clock_frequency


@functools.lru_cache(maxsize=64)
def wrapped(cl_device: cl.Device, context: cl.Context) -> Device:
    """Return the device for a context that the user made."""
    return Device(cl_device, context)


def of_queue(queue: cl.CommandQueue) -> Device:
    """Return the device of a queue, in the queue's own context.

    Raises
    ------
    RuntimeError
        If this process was forked from one that had opened OpenCL.
    """
    require_unforked(queue.context)
    return wrapped(queue.device, queue.context)


def is_in_order(queue: cl.CommandQueue) -> bool:
    """Tell whether the commands of a queue run in order."""
    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    return not cast("int", queue.properties) & out_of_order
