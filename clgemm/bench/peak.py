"""Measurement of the device's arithmetic peak and memory bandwidth, for the roofline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyopencl as cl

from clgemm.hardware.device import Device
from clgemm.runtime import programs

LONG_S = 0.02  # in a launch of this length, the overhead of starting it is negligible
TRIES = 3
FACTOR, TERM = 0.96875, 0.03125
GPU_ITEMS = (256, 32)  # work-items per work-group, and work-groups per compute unit
STREAM_BYTES = 2**29  # the least size of the array for the bandwidth
CACHED = 8  # and its least size in multiples of the device's cache

Variant = TypeVar("Variant")


class PeakVariant(NamedTuple):
    """The macros of a build of peak.cl."""

    width: int
    chains: int


def peak_variants(native_width: int) -> list[PeakVariant]:
    """Return the builds of peak.cl to time, of which the fastest gives the peak.

    Some runtimes report no vector width, or one that their compiler does not use. A core has 16 or
    32 vector registers, and 8 to 10 chains hide the latency of its two units.
    """
    widths = sorted({native_width, max(1, native_width // 2)})
    return [PeakVariant(width, chains) for width in widths for chains in (8, 10, 12, 20)]


def measure(device: Device) -> dict[str, Any]:
    """Measure the device's peak and its memory bandwidth.

    Returns
    -------
    dict
        ``gflops``, and the ``width`` and ``chains`` that reached it; ``bandwidth_gbps``, billions
        of bytes read from memory per second. A figure is 0 if it cannot be measured; ``failures``
        says why.
    """
    failures: list[str] = []
    native = device.limits.vector_width
    peaks = _measured(device, _peak_gflops, peak_variants(native), failures)
    streams = _measured(device, _bandwidth_gbps, sorted({1, 4, native}), failures)
    variant = max(peaks, key=peaks.__getitem__, default=PeakVariant(0, 0))
    return {
        "gflops": peaks.get(variant, 0.0),
        "width": variant.width,
        "chains": variant.chains,
        "bandwidth_gbps": max(streams.values(), default=0.0),
        "failures": failures,
    }


def _measured(
    device: Device,
    measurement: Callable[[Device, Variant], float],
    variants: Iterable[Variant],
    failures: list[str],
) -> dict[Variant, float]:
    """Return the figure of each variant that runs, and append the failures of the others."""
    measured = {}
    for variant in variants:
        try:
            measured[variant] = measurement(device, variant)
        except (cl.Error, RuntimeError) as error:  # noqa: PERF203 - a measurement takes longer
            failures.append(f"{measurement.__name__[1:]} of {variant}: {error}")
    return measured


def _kernel(device: Device, name: str, macros: dict[str, int]) -> cl.Kernel:
    macros = {**macros, "GROUP": _items(device)[1]}
    package = resources.files("clgemm")
    files = "kernels/common/prelude.cl", f"bench/{name}.cl"
    source = "\n".join(package.joinpath(file).read_text(encoding="utf-8") for file in files)
    return cl.Kernel(programs.build(device, source, list(macros.items())), name)


def _items(device: Device) -> tuple[int, int]:
    """Return the work-items in all and per work-group: enough to fill each compute unit."""
    units = device.limits.compute_units
    if device.kind == "CPU":
        return 8 * units, 1
    group = min(GPU_ITEMS[0], device.limits.work_group_size)
    return GPU_ITEMS[1] * units * group, group


def _seconds(queue: cl.CommandQueue, kernel: cl.Kernel, items: tuple[int, int]) -> float:
    begin = time.perf_counter_ns()
    cl.enqueue_nd_range_kernel(queue, kernel, items[:1], items[1:])
    queue.finish()
    return (time.perf_counter_ns() - begin) / 1e9


def _peak_gflops(device: Device, variant: PeakVariant) -> float:
    # Do not use fma(): some compilers abort the process for it, or call a function.
    # With -cl-mad-enable all compilers fuse the multiplication and the addition.
    macros = {"WIDTH": variant.width, "CHAINS": variant.chains, "FMA": 0}
    kernel, items = _kernel(device, "peak", macros), _items(device)
    out = cl.Buffer(device.context, cl.mem_flags.WRITE_ONLY, 4 * items[0])
    # Some runtimes compile at the first launch, so ignore its time.
    for steps in (1, *(2**power for power in range(8, 27))):
        kernel.set_args(np.int32(steps), np.float32(FACTOR), np.float32(TERM), out)
        if _seconds(device.queue, kernel, items) >= LONG_S and steps > 1:
            break
    best_s = min(_seconds(device.queue, kernel, items) for _ in range(TRIES))
    return float(2 * steps * variant.chains * variant.width * items[0] / best_s / 1e9)


def _bandwidth_gbps(device: Device, width: int) -> float:
    kernel, items = _kernel(device, "stream", {"WIDTH": width, "CHAINS": 4}), _items(device)
    d = device.cl_device
    wanted = max(STREAM_BYTES, CACHED * d.global_mem_cache_size)
    size_bytes = min(wanted, d.max_mem_alloc_size, d.global_mem_size // 4)
    count = size_bytes // (4 * width * items[0]) // 4 * 4
    x = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, 4 * width * items[0] * count)
    out = cl.Buffer(device.context, cl.mem_flags.WRITE_ONLY, 4 * items[0])
    cl.enqueue_fill_buffer(device.queue, x, np.ones(1, np.float32), 0, x.size)
    stretches = (count, 1) if device.kind == "CPU" else (1, items[0])
    kernel.set_args(np.int32(count), *(np.int64(step) for step in stretches), x, out)
    best_s = min(_seconds(device.queue, kernel, items) for _ in range(TRIES + 1))
    total = np.empty(items[0], np.float32)
    cl.enqueue_copy(device.queue, total, out)
    # The sum of a work-item's ones is small enough to be exact in float32.
    if not (total == width * count).all():
        raise RuntimeError(f"stream.cl adds {width * count} ones to {total.min()}")
    return float(x.size / best_s / 1e9)
