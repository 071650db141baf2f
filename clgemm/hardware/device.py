"""OpenCL devices: what the platforms list, and each device's limits, context and queue."""

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

POCL, INTEL = "Portable Computing Language", "Intel(R) OpenCL"  # how platforms' names begin
SEEING_OTHERS = {"__opencl_c_atomic_order_acq_rel", "__opencl_c_atomic_scope_device"}
# Limits.kept_bytes of NVIDIA's GPUs, by compute capability: OpenCL does not tell how large a
# second-level cache is. Measured on an H200, of whose 60 MB so much is best; an H100 has 50.
KEPT_BYTES = {(9, 0): 34_000_000}


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
        opened()

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
    def label(self) -> str:
        """The device's name and platform, as short as they are clear: for messages."""
        # PoCL's version goes on, after two spaces, with how it was built.
        return f"{self.name} ({self.platform.partition('  ')[0]})"

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


def register_width(device: Device) -> int:
    """Return the floats in a vector register of a CPU, as the runtime's compiler uses it."""
    width = min(device.limits.vector_width, 16)
    # LLVM 14, in PoCL 3.0 as PyPI has it, takes AMD's processors with AVX-512 for older ones; PoCL
    # names the processor's own width all the same.
    old = any(f"PoCL {version}" in device.platform for version in ("1.", "2.", "3.0"))
    return min(width, 8) if old and "AMD" in device.cl_device.vendor else width


def compute_capability(device: cl.Device) -> tuple[int, int]:
    """Return what NVIDIA counts its GPUs' abilities by; (0, 0) of others."""
    try:
        return device.compute_capability_major_nv, device.compute_capability_minor_nv
    except (cl.Error, AttributeError):
        return 0, 0


class Present(NamedTuple):
    """What OpenCL's platforms list.

    Attributes
    ----------
    devices : tuple of Device
        The fastest first, whether they work or not.
    empty : tuple of str
        Platforms without a device, and why if they say so.
    """

    devices: tuple[Device, ...]
    empty: tuple[str, ...]


@functools.cache
def present() -> Present:
    """Return every OpenCL device here, whether it works or not.

    GPUs come before other devices, then the one with more compute units times vector width, then
    PoCL before other runtimes of the same processor.
    """
    opened()
    runtimes.register()  # again: variables may have changed since clgemm was imported
    found, empty = [], []
    with pinned_threads():
        try:
            platforms = cl.get_platforms()
        except cl.LogicError:  # the loader's word for: none is installed
            platforms = []
        for platform in platforms:
            name = f"{platform.name.strip()}, {platform.version.strip()}"
            try:
                here = [Device(d) for d in platform.get_devices()]
            except (cl.RuntimeError, cl.LogicError) as error:
                # It may be there without a device, as Mesa's Clover beside its successor is.
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
    # A GPU's driver played by the CPU comes after the CPU itself.
    rank = 0 if "llvmpipe" in candidate.name else rank
    return rank, lanes * d.max_compute_units, is_pocl, d.max_clock_frequency


@functools.lru_cache(maxsize=64)
def wrapped(cl_device: cl.Device, context: cl.Context) -> Device:
    """Return a device in a context that the user brings."""
    return Device(cl_device, context)


def of_queue(queue: cl.CommandQueue) -> Device:
    """Return the device that a queue feeds, in the queue's own context.

    Raises
    ------
    RuntimeError
        If this process was forked from one that had opened OpenCL.
    """
    require_unforked(queue.context)
    return wrapped(queue.device, queue.context)


def is_in_order(queue: cl.CommandQueue) -> bool:
    """Whether commands of the queue run one after the other."""
    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    return not cast("int", queue.properties) & out_of_order
