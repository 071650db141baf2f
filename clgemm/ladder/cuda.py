"""Runs rungs through the CUDA toolchain by CuPy (extra ``cuda``)."""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import Any

import numpy as np

from clgemm.ladder.measure import Matrix, Problem, Result, examine
from clgemm.ladder.rung import Rung, Shape, Target
from clgemm.ladder.story import kernel_text, source

WARP = 32
NS_PER_MS = 1_000_000


def why_not() -> str:
    """Return why the CUDA toolchain cannot run on this machine, or ""."""
    try:
        cupy = _cupy()
    except ImportError:
        return "CuPy is not installed: 'pip install clgemm[cuda]'"
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy finds no device: {error}"
    return ""


def _cupy() -> Any:
    return importlib.import_module("cupy")


def target() -> Target:
    """Return the properties of the current CUDA device that the rungs need."""
    cupy = _cupy()
    attributes = cupy.cuda.Device().attributes
    return Target(
        local_memory_bytes=attributes["MaxSharedMemoryPerBlock"],
        work_group_size=attributes["MaxThreadsPerBlock"],
        allocation_bytes=cupy.cuda.Device().mem_info[1],
        lanes=(WARP,),
        is_nvidia=True,
        is_cuda=True,
    )


class Product:
    """A rung that NVRTC compiled for the current CUDA device, with the memory of one product.

    Parameters
    ----------
    guard : int
        Extra elements at the end of each buffer, where tests detect writes.
    """

    def __init__(self, rung: Rung, shape: Shape, guard: int = 0) -> None:
        self._cupy = _cupy()
        self.buffers = {
            name: self._cupy.empty(size + guard, rung.dtype)
            for name, size in rung.buffers(shape).items()
        }
        module = self._cupy.RawModule(
            # The header lets NVRTC compile the rungs' OpenCL C as CUDA C++.
            code="\n".join((kernel_text("opencl_to_cuda.h"), source(rung))),
            options=tuple(f"-D{name}={value}" for name, value in rung.macros(target()).items()),
        )
        self._launches = []
        for launch in rung.launches(shape):
            arguments = (
                *(np.int32(size) for size in launch.sizes),
                *(self.buffers[name] for name in launch.buffers),
            )
            kernel = module.get_function(launch.kernel)
            self._launches.append((kernel, launch.groups, launch.items, arguments))

    def run(self) -> list[int]:
        """Compute the product, wait for it, and return the nanoseconds of each kernel."""
        marks = [self._cupy.cuda.Event() for _ in range(len(self._launches) + 1)]
        marks[0].record()
        for (kernel, groups, items, arguments), mark in zip(self._launches, marks[1:], strict=True):
            kernel(groups, items, arguments)
            mark.record()
        marks[-1].synchronize()
        return [
            round(NS_PER_MS * self._cupy.cuda.get_elapsed_time(begin, end))
            for begin, end in pairwise(marks)
        ]

    def write(self, name: str, values: Matrix) -> None:
        """Copy a matrix to a buffer in column-major order."""
        self.buffers[name][: values.size] = self._cupy.asarray(values.ravel(order="F"))

    def read(self, name: str, rows: int, columns: int) -> Matrix:
        """Return the matrix in a buffer."""
        values: Matrix = self._cupy.asnumpy(self.buffers[name][: rows * columns])
        return values.reshape(columns, rows).T


def run(rung: Rung, problem: Problem, repeat: int | None = None) -> Result:
    """Check and time a rung on the current CUDA device."""
    product = Product(rung, problem.shape)
    return examine(product, rung, problem, "CUDA", rung.note(target()), repeat)
