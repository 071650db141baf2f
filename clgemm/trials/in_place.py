"""Whether an integrated GPU reads and writes the host's memory in place, by a trial of its driver.

A driver may copy what it is told to use, and then the host sees a result only once it is mapped:
NVIDIA's does so on a GB10, and Arm's for Mali GPUs. Transfers through pinned memory serve there.
"""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from clgemm.hardware.device import Device
from clgemm.runtime.waiting import finish
from clgemm.runtime.workspace import workspace

SIZES_BYTES = 2**14, 2**23  # drivers may copy small memory alone, or large
EDGE = 5  # elements before and behind what the device writes, in its first and last cache line
ROUNDS = 3
LOOKS = 10_000  # at a command, beside which the host writes


def uses_host_memory(device: Device) -> bool:
    """Return whether a GPU works in the host's memory, and harms nothing beside its own part."""
    for size_bytes in SIZES_BYTES:
        host = np.frombuffer(mmap.mmap(-1, size_bytes), np.int32)
        try:
            if not _is_shared(device, host):
                return False
        except cl.Error:
            return False
        finally:
            finish(device.queue, workspace(device.queue).lock)  # before the memory goes
    return True


def _is_shared(device: Device, host: npt.NDArray[np.int32]) -> bool:
    """Return whether both sides see at once what the other one writes to a buffer's memory.

    The host writes to the edges while the device writes to what lies between them. Nothing is
    mapped: OpenCL does not promise that this works.
    """
    inside = slice(EDGE, -EDGE)
    flags, queue = cl.mem_flags.READ_WRITE, device.queue
    buffer = cl.Buffer(device.context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=host)
    copy, seen = cl.Buffer(device.context, flags, host.nbytes), np.empty_like(host)
    for number in range(1, ROUNDS + 1):
        host[inside] = -number
        cl.enqueue_copy(queue, copy, buffer)
        written = host[inside].nbytes
        pattern = np.array([number], np.int32)
        event = cl.enqueue_fill_buffer(queue, buffer, pattern, EDGE * host.itemsize, written)
        queue.flush()
        for look in range(LOOKS):
            host[:EDGE] = host[-EDGE:] = look
            if event.command_execution_status <= cl.command_execution_status.COMPLETE:
                break
        event.wait()
        cl.enqueue_copy(queue, seen, copy)
        is_right = (host[inside] == number).all() and (seen[inside] == -number).all()
        if not (is_right and (host[:EDGE] == look).all() and (host[-EDGE:] == look).all()):
            return False
    return True
