"""Runs rungs on OpenCL devices."""

from __future__ import annotations

import time

import numpy as np
import pyopencl as cl

from clgemm.hardware.device import Device
from clgemm.ladder.measure import Matrix, Problem, Result, examine
from clgemm.ladder.rung import Rung, Shape, Target
from clgemm.ladder.story import source
from clgemm.runtime import programs

NVIDIA_LANES = 32
# The device's clock does not run if its times are this many times shorter than the host's.
STOPPED_CLOCK = 1000
SHUFFLES = {"cl_khr_subgroup_shuffle", "cl_intel_subgroups"}
SUB_GROUP_SIZES = (8, 16)  # sizes to ask for by intel_reqd_sub_group_size


def target(device: Device) -> Target:
    """Return the properties of an OpenCL device that the rungs need."""
    is_nvidia = device.kind == "GPU" and device.traits.is_nvidia
    return Target(
        local_memory_bytes=device.limits.local_memory_bytes,
        work_group_size=device.limits.work_group_size,
        allocation_bytes=device.limits.allocation_bytes,
        lanes=(NVIDIA_LANES,) if is_nvidia else _sub_group_sizes(device),
        is_nvidia=is_nvidia,
        capability=device.traits.capability if is_nvidia else (0, 0),
    )


def _sub_group_sizes(device: Device) -> tuple[int, ...]:
    # Without cl_intel_required_subgroup_size, a kernel cannot choose its sub-group size.
    extensions = set(device.cl_device.extensions.split())
    if not (SHUFFLES & extensions and "cl_intel_required_subgroup_size" in extensions):
        return ()
    return SUB_GROUP_SIZES


def standard(device: Device, rung: Rung) -> str:
    """Return the OpenCL C that a rung needs, such as ``"CL1.2"``."""
    macros = rung.macros(target(device))
    if macros.get("SHUFFLE") and not macros["PTX"]:  # OpenCL 1.2 has no sub-groups
        return "CL3.0" if device.cl_device.version >= "OpenCL 3" else "CL2.0"
    return "CL1.2"


class Product:
    """A rung built for a device, with the memory of one product.

    Parameters
    ----------
    guard : int
        Extra elements at the end of each buffer, where tests detect writes.
    """

    def __init__(self, device: Device, rung: Rung, shape: Shape, guard: int = 0) -> None:
        self._dtype = rung.dtype
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(device.context, device.cl_device, profiling)
        self.buffers = {
            name: cl.Buffer(
                device.context, cl.mem_flags.READ_WRITE, rung.dtype.itemsize * (size + guard)
            )
            for name, size in rung.buffers(shape).items()
        }
        macros = list(rung.macros(target(device)).items())
        program = programs.build(device, source(rung), macros, standard(device, rung), rung.options)
        self._launches = []
        for launch in rung.launches(shape):
            kernel = cl.Kernel(program, launch.kernel)
            sizes = [np.int32(size) for size in launch.sizes]
            kernel.set_args(*sizes, *(self.buffers[name] for name in launch.buffers))
            grid = tuple(g * i for g, i in zip(launch.groups, launch.items, strict=True))
            self._launches.append((kernel, grid, launch.items))

    def run(self) -> list[int]:
        """Compute the product, wait for it, and return the nanoseconds of each kernel."""
        by_device, by_host = [], []
        for kernel, grid, items in self._launches:
            begin = time.perf_counter_ns()
            event = cl.enqueue_nd_range_kernel(self.queue, kernel, grid, items)
            event.wait()
            by_host.append(time.perf_counter_ns() - begin)
            by_device.append(event.profile.end - event.profile.start)
        # In Mesa's software driver, the clock of events does not run.
        return by_device if sum(by_device) * STOPPED_CLOCK > sum(by_host) else by_host

    def write(self, name: str, values: Matrix) -> None:
        """Copy a matrix to a buffer in column-major order."""
        cl.enqueue_copy(self.queue, self.buffers[name], values.ravel(order="F"))

    def read(self, name: str, rows: int, columns: int) -> Matrix:
        """Return the matrix in a buffer."""
        values = np.empty((columns, rows), self._dtype)
        cl.enqueue_copy(self.queue, values, self.buffers[name])
        return values.T


def run(device: Device, rung: Rung, problem: Problem, repeat: int | None = None) -> Result:
    """Check and time a rung on a device."""
    product = Product(device, rung, problem.shape)
    return examine(product, rung, problem, "OpenCL", rung.note(target(device)), repeat)
