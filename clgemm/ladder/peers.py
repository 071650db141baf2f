"""The libraries that the rungs are compared with, on the same operands in the same run."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl.array as cl_array

from clgemm.hardware.device import Device
from clgemm.ladder import cuda
from clgemm.ladder.measure import Problem, median_ns
from clgemm.ladder.rung import Shape

__all__ = ["Peer", "peers"]


@dataclass(frozen=True)
class Peer:
    """The figures of a library's product.

    Attributes
    ----------
    time_ns : int
        The time of a call by the host's clock, as the median of all calls but the first.
    relative_error : float
        As in `clgemm.ladder.Result`.
    """

    name: str
    shape: Shape
    time_ns: int
    relative_error: float

    @property
    def gflops(self) -> float:
        """Billions of operations per second."""
        return self.shape.flops / self.time_ns


def peers(device: Device, problem: Problem, repeat: int | None = None) -> Iterator[Peer]:
    """Yield the figures of `clgemm.sgemm`, CLBlast and cuBLAS if installed, and NumPy."""

    def timed(name: str, product: Callable[[], Any], fetch: Callable[[Any], Any]) -> Peer:
        def once() -> int:
            begin = time.perf_counter_ns()
            product()
            return time.perf_counter_ns() - begin

        time_ns = median_ns(once, repeat)
        error = problem.relative_error(fetch(product()))
        return Peer(name, problem.shape, time_ns, error)

    yield timed("clgemm.sgemm", *_production(device, problem))
    if (clblast := _clblast(device, problem)) is not None:
        yield timed("CLBlast", *clblast)
    if not cuda.why_not():
        yield timed("cuBLAS", *_cublas(problem))
    yield timed("NumPy on the host", lambda: problem.a @ problem.b, np.asarray)


Calls = tuple[Callable[[], Any], Callable[[Any], Any]]


def _production(device: Device, problem: Problem) -> Calls:
    from clgemm import sgemm

    a, b = (cl_array.to_device(device.queue, matrix) for matrix in (problem.a, problem.b))

    def product() -> Any:
        c = sgemm(1.0, a, b, queue=device.queue)
        device.queue.finish()
        return c

    return product, lambda c: c.get()


def _clblast(device: Device, problem: Problem) -> Calls | None:
    try:
        pyclblast = importlib.import_module("pyclblast")
    except ImportError:
        return None
    m, n, k = problem.shape
    # pyclblast is row-major.
    a, b = (
        cl_array.to_device(device.queue, np.ascontiguousarray(matrix))
        for matrix in (problem.a, problem.b)
    )
    c = cl_array.empty(device.queue, (m, n), np.float32)

    def product() -> Any:
        pyclblast.gemm(device.queue, m, n, k, a, b, c, a_ld=k, b_ld=n, c_ld=n)
        device.queue.finish()
        return c

    return product, lambda c: c.get()


def _cublas(problem: Problem) -> Calls:
    cupy = importlib.import_module("cupy")
    a, b = cupy.asarray(problem.a), cupy.asarray(problem.b)

    def product() -> Any:
        c = a @ b
        cupy.cuda.Device().synchronize()
        return c

    return product, cupy.asnumpy
