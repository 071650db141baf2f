"""OpenCL devices: their list, the limits, context and queue of each, and how each is identified."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, cast
from weakref import WeakSet

import numpy as np
import pyopencl as cl

from clgemm.core.cache import holds_contexts, on_forget, release_contexts
from clgemm.core.host import processor_facts
from clgemm.core.problem import FLOAT_BYTES
from clgemm.core.traits import Identity, Limits, Traits, runtime_of, short_platform
from clgemm.core.transfer import TransferConfig
from clgemm.hardware import runtimes
from clgemm.hardware.forks import keep_in_children, opened, require_unforked
from clgemm.hardware.supervisor import is_passing
from clgemm.hardware.traits import POCL, limits_of, register_width, traits_of
from clgemm.records.verdicts import Verdict, about_device, known, measured_costs

# Threads that copy. More of them wait longer for the interpreter's lock than they copy.
MOST_COPYING = 10
# Blocks per side of C, so that the GPU need not wait for all of B, and the size of B from which on
# that pays.
SQUARE, SQUARE_BYTES = 4, 2**31
TRIANGLE, TRIANGLE_BYTES = 4, 2**28  # the same of A A'

# Caches may keep so many contexts of a device alive that the program has dropped, of a GPU as many
# as take an eighth of its memory. NVIDIA's driver takes 530 MB for each (H100, 2026-11). A program
# that uses more of them in turns has its products planned again.
MOST_CONTEXTS, LEAST_CONTEXTS = 64, 4
CONTEXT_BYTES, CONTEXT_SHARE = 2**29, 8

_devices: WeakSet[Device] = WeakSet()
keep_in_children(lambda: _devices)


class Device:
    """One OpenCL device, with a context and an in-order queue of its own.

    Products of host arrays run on `queue` if the device uses them in place, and otherwise on queues
    of their own. pyopencl arrays bring their own queues.
    """

    def __init__(
        self,
        cl_device: cl.Device,
        context: cl.Context | None = None,
        transfer: TransferConfig | None = None,
    ) -> None:
        self.cl_device = cl_device
        self.transfer = transfer  # the limits of transfers; None for the defaults of its kind
        # The context and the queue, made once at their first use. The lock is reentrant: a
        # finalizer or a signal handler may ask for them in the middle of that.
        self._made: dict[str, Any] = {} if context is None else {"context": context}
        self._lock = threading.RLock()
        _devices.add(self)
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
    def short_platform(self) -> str:
        """The platform's name and version, without the options of PoCL's build."""
        return short_platform(self.platform)

    @functools.cached_property
    def label(self) -> str:
        """The device's name and platform in short, for messages."""
        return f"{self.name} ({self.short_platform})"

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
        """The limits of kernels on the device, and what launches cost there."""
        limits = limits_of(self.cl_device, self.kind, self.platform)
        measured = measured_costs(self.name, self.runtime)
        return limits if measured is None else limits.with_costs(measured.costs)

    @property
    def runtime(self) -> str:
        """The platform's name, without its version."""
        return runtime_of(self.platform)

    @functools.cached_property
    def traits(self) -> Traits:
        """The traits that kernel families decide by."""
        return traits_of(self)

    @property
    def context(self) -> cl.Context:
        """The context, made at its first use."""
        with self._lock:
            if "context" not in self._made:
                _count_context(self.cl_device)
                with self._opening():
                    made = runtimes.context_of(self.cl_device) or cl.Context([self.cl_device])
                self._made.setdefault("context", made)
            return cast("cl.Context", self._made["context"])

    @property
    def queue(self) -> cl.CommandQueue:
        """An in-order queue, made at its first use."""
        context = self.context
        with self._lock:
            if "queue" not in self._made:
                with self._opening():
                    made = cl.CommandQueue(context, self.cl_device)
                self._made.setdefault("queue", made)
            return cast("cl.CommandQueue", self._made["queue"])

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """Turn a want of memory, for what is made in a ``with`` block, into one clear error."""
        try:
            yield
        except cl.Error as error:
            if not is_passing(str(error)):
                raise
            raise MemoryError(
                f"{self.label} has no room for this process now; the driver says {error}"
            ) from error

    @functools.cached_property
    def is_integrated(self) -> bool:
        """Whether it is a GPU whose memory is the host's."""
        return self.kind == "GPU" and bool(self.cl_device.host_unified_memory)

    @property
    def shares_host_memory(self) -> bool:
        """Whether kernels read and write NumPy's memory in place.

        Of an integrated GPU, the check in a child process finds it: `clgemm.trials.worker`.
        """
        if self.is_integrated:
            return (known(about_device(where(self))) or Verdict()).in_place
        return self._uses_host_memory

    @functools.cached_property
    def _uses_host_memory(self) -> bool:
        """Whether a CPU's kernels read and write the host's memory.

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

    @functools.cached_property
    def claims_addresses(self) -> bool:
        """Whether kernels take addresses of host memory in place of buffers, as the driver says.

        OpenCL calls that fine-grained system SVM. `clgemm.hardware.trial` checks it.
        """
        try:
            claimed = cast("int", self.cl_device.svm_capabilities)
        except (cl.Error, AttributeError):  # older than OpenCL 2.0
            return False
        fine = cl.device_svm_capabilities.FINE_GRAIN_SYSTEM
        return bool(claimed & fine) and (self.is_integrated or self._uses_host_memory)

    def __repr__(self) -> str:
        return f"<clgemm.Device {self.name!r} ({self.kind}; {self.platform})>"


class Present(NamedTuple):
    """The devices and platforms that OpenCL lists."""

    devices: tuple[Device, ...]  # the fastest first; some may not work
    empty: tuple[str, ...]  # platforms without a device, each with the error that it reports if any


def _forget_limits() -> None:
    """Read what launches cost anew: it may have been measured."""
    for device in tuple(_devices):
        for name in ("limits", "traits"):
            device.__dict__.pop(name, None)


on_forget(_forget_limits)


@functools.cache
def present() -> Present:
    """Return every OpenCL device of the machine, including those that do not work.

    GPUs come first. Devices of one kind are sorted by compute units times vector width; for the
    same processor, PoCL comes after other runtimes: on every processor that was measured, Intel's
    makes integers up to twice as fast, and float32 1.03 to 1.3 times (docs/performance.md).
    """
    opened()
    runtimes.finish_start()
    runtimes.register()  # again: environment variables may have changed since clgemm's import
    found, empty = [], []
    with runtimes.pinned_threads():
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
    is_other = not candidate.platform.startswith(POCL)
    # llvmpipe is a GPU driver that runs on the CPU: it comes after the CPU itself.
    rank = 0 if "llvmpipe" in candidate.name else rank
    return rank, lanes * d.max_compute_units, is_other, d.max_clock_frequency


@holds_contexts
@functools.lru_cache(maxsize=MOST_CONTEXTS)
def wrapped(cl_device: cl.Device, context: cl.Context) -> Device:
    """Return the device for a context that the user made."""
    _count_context(cl_device)
    return Device(cl_device, context)


def most_contexts(cl_device: cl.Device) -> int:
    """Return how many contexts of a device caches may keep alive."""
    if not cl_device.type & cl.device_type.GPU or cl_device.host_unified_memory:
        return MOST_CONTEXTS
    share = cl_device.global_mem_size // (CONTEXT_SHARE * CONTEXT_BYTES)
    return max(LEAST_CONTEXTS, min(share, MOST_CONTEXTS))


_contexts: dict[cl.Device, int] = {}  # how many came up since the last were released


def _count_context(cl_device: cl.Device) -> None:
    """Release the contexts that were dropped if this is one too many."""
    _contexts[cl_device] = _contexts.get(cl_device, 0) + 1
    if _contexts[cl_device] > most_contexts(cl_device):
        _contexts[cl_device] = 1
        release_contexts()


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
    """Return whether the commands of a queue run in order."""
    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    return not cast("int", queue.properties) & out_of_order


def identify(device: Device) -> Identity:
    """Return the facts about a device that records are matched against."""
    d = device.cl_device
    return Identity(
        name=device.name,
        kind=device.kind,
        vendor=str(d.vendor).strip(),
        platform=device.platform,
        driver=str(d.driver_version),
        architecture=_architecture(device),
    )


def _architecture(device: Device) -> str:
    if device.kind == "CPU":
        machine = platform.machine()
        traits = device.traits
        if traits.has_vectors:
            # With many cores, more of them wait while an operand is packed: other configs are fast.
            many = ", many cores" if traits.has_many_cores else ""
            return f"{machine}, vectors of {8 * FLOAT_BYTES * traits.register_width} bits{many}"
        # Mesa maps work-items to vector lanes, and the device's name has the vectors' width.
        bits = re.search(r"\b(\d+) bits", device.name)
        return f"{machine}, work-items on vectors of {bits[1] if bits else 'unknown'} bits"
    major, minor = device.traits.capability
    return f"compute capability {major}.{minor}" if major else device.name


def identity(device: Device) -> list[str]:
    """Return what `find` takes to find the device in another process.

    The other process may list the devices in another order.
    """
    same = [d for d in present().devices if (d.name, d.platform) == (device.name, device.platform)]
    position = next((i for i, d in enumerate(same) if d.cl_device == device.cl_device), 0)
    return [device.name, device.platform, str(position)]


def find(identified: list[str]) -> Device:
    """Return the device that an `identity` describes.

    Raises
    ------
    RuntimeError
        If this process does not have the device; the message lists its devices.
    """
    name, platform_name, position = identified
    same = [d for d in present().devices if (d.name, d.platform) == (name, platform_name)]
    if int(position) >= len(same):
        raise RuntimeError(
            f"this process has no device {name} of {platform_name}; it has {present().devices}"
        )
    return same[int(position)]


def where(device: Device) -> str:
    """Return a device as verdicts name it: with driver, pyopencl's version and processor."""
    if (known := device.__dict__.get("_where")) is not None:
        return str(known)
    parts = f"{device.platform}, pyopencl {cl.VERSION_TEXT}, {_processor()}"
    digest = hashlib.sha256(parts.encode()).hexdigest()[:16]
    found = f"{device.label}, driver {device.cl_device.driver_version}, {digest}"
    device.__dict__["_where"] = found
    return found


def _processor() -> str:
    """Return the processor's model, stepping and extensions, which determine compiled code."""
    names = "vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features"
    found = processor_facts()
    return ", ".join(found.get(x, "") for x in names) if found else platform.processor()


def transfer_config(device: Device) -> TransferConfig | None:
    """Return the limits of transfers to a device; None if it uses host arrays in place."""
    if device.transfer is not None:
        return device.transfer
    return None if device.shares_host_memory else default_config(device)


def default_config(device: Device) -> TransferConfig:
    """Return the limits of transfers to a device that has no own ones."""
    return _default_config(device.cl_device.global_mem_size // 2)


@functools.cache
def _default_config(memory_bytes: int) -> TransferConfig:
    return TransferConfig(
        memory_bytes=memory_bytes,
        threads=max(1, min(os.cpu_count() or 1, MOST_COPYING)),
        square=SQUARE,
        square_bytes=SQUARE_BYTES,
        triangle=TRIANGLE,
        triangle_bytes=TRIANGLE_BYTES,
    )
