"""How a product is run, checked and timed: rungs through OpenCL or CUDA, and libraries beside them.

CUDA's toolchain is NVRTC, by CuPy (extra ``cuda``).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array

from clgemm import sgemm
from clgemm.hardware.device import Device
from clgemm.ladder.rung import FLOAT_BYTES, Rung, Shape, Target
from clgemm.runtime import programs

REPEAT = 10
PATIENCE_NS = 2_000_000_000  # after this time the repetitions end, but not before the third
NS_PER_MS = 1_000_000
LANES = 32  # of NVIDIA's sub-groups
# The device's clock does not run if its times are this many times shorter than the host's.
STOPPED_CLOCK = 1000
SHUFFLES = {"cl_khr_subgroup_shuffle", "cl_intel_subgroups"}
SUB_GROUP_SIZES = (8, 16)  # sizes to ask for by intel_reqd_sub_group_size
KERNELS = resources.files("clgemm").joinpath("kernels", "ladder")

Matrix = npt.NDArray[Any]


@dataclass(frozen=True)
class Result:
    """The figures of one rung.

    Attributes
    ----------
    rung : Rung
        The rung with its parameters.
    shape : Shape
        The product's sizes.
    toolchain : str
        ``"OpenCL"`` or ``"CUDA"``.
    time_ns : int
        The kernels' time by the device's clock, as the median of all runs but the first.
    relative_error : float
        The largest |C - C_ref| / (|A| |B|), where C_ref is computed in float64. For integers, the
        largest difference from NumPy's product.
    error_bound : float
        The bound on `relative_error` that the rung promises.
    support_share : float
        The fraction of the time in kernels other than ``multiply``.
    note : str
        The features that the rung uses on this device, and those that the device lacks.
    """

    rung: Rung
    shape: Shape
    toolchain: str
    time_ns: int
    relative_error: float
    error_bound: float
    support_share: float
    note: str

    @property
    def gflops(self) -> float:
        """Billions of operations per second, without those of padding."""
        return self.rung.flops(self.shape) / self.time_ns

    @property
    def correct(self) -> bool:
        """Whether the error is within the bound."""
        return self.relative_error <= self.error_bound


class Problem:
    """Random operands of a product, and its result in twice the precision.

    Attributes
    ----------
    a, b : arrays of `dtype`, shapes (m, k) and (k, n), Fortran-ordered
        Uniform between -1 and 1, also their imaginary parts; integers in the dtype's whole range.
    """

    def __init__(self, shape: Shape, dtype: np.dtype[Any] = Rung.dtype) -> None:
        rng = np.random.default_rng(0)
        self.shape, self.dtype = shape, dtype
        self.a = _random(rng, shape.k, shape.m, dtype).T
        self.b = _random(rng, shape.n, shape.k, dtype).T

    @cached_property
    def _expected(self) -> Matrix:
        if self.dtype.kind == "i":
            return integer_product(self.a, self.b)
        wide = np.result_type(self.dtype, np.float64)
        expected: Matrix = self.a.astype(wide) @ self.b.astype(wide)
        return expected

    @cached_property
    def _magnitude(self) -> npt.NDArray[np.float64]:
        return np.abs(self.a).astype(np.float64) @ np.abs(self.b).astype(np.float64)

    def relative_error(self, c: Matrix) -> float:
        """Return the largest error of an element, relative to |A| |B|; NaN if any is NaN.

        That of an integer is its difference from NumPy's result.
        """
        if self.dtype.kind == "i":
            return float(np.max(np.abs(c.astype(np.int64) - self._expected)))
        return float(np.max(np.abs(c - self._expected) / self._magnitude))


def _random(rng: np.random.Generator, rows: int, columns: int, dtype: np.dtype[Any]) -> Matrix:
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        size = rows, columns
        whole: Matrix = rng.integers(limits.min, limits.max, size, dtype, endpoint=True)
        return whole
    parts = dtype.itemsize // FLOAT_BYTES  # a complex number has two
    return (2 * rng.random((rows, parts * columns), np.float32) - 1).view(dtype)


def integer_product(a: Matrix, b: Matrix) -> Matrix:
    """Return ``a @ b`` of int32, which NumPy would compute without its BLAS, from float64.

    The numbers are split after 16 bits. Sums of 2**21 products of such halves are exact in float64.
    """
    low_a, low_b = (np.bitwise_and(x, 0xFFFF).astype(np.float64) for x in (a, b))
    high_a, high_b = (np.right_shift(x, 16).astype(np.float64) for x in (a, b))
    low = (low_a @ low_b).astype(np.int64)
    middle = (low_a @ high_b).astype(np.int64) + (high_a @ low_b).astype(np.int64)
    return (low + (middle << 16)).astype(np.int32)


def source(rung: Rung) -> str:
    """Return the OpenCL C of a rung, including its supporting kernels."""
    supporting = ["transpose.cl"] if hasattr(rung, "transpose") else []
    return "\n".join(map(kernel_text, [*supporting, rung.file]))


def kernel_text(name: str) -> str:
    """Return a file of the ladder's folder of kernels, such as ``wgsl/01_naive.wgsl``."""
    return KERNELS.joinpath(*name.split("/")).read_text(encoding="utf-8")


def opencl_target(device: Device) -> Target:
    """Return the properties of an OpenCL device that the rungs need."""
    is_nvidia = device.kind == "GPU" and device.traits.is_nvidia
    # Without cl_intel_required_subgroup_size, a kernel cannot choose its sub-group size.
    extensions = set(device.cl_device.extensions.split())
    chooses = SHUFFLES & extensions and "cl_intel_required_subgroup_size" in extensions
    return Target(
        local_memory_bytes=device.limits.local_memory_bytes,
        work_group_size=device.limits.work_group_size,
        allocation_bytes=device.limits.allocation_bytes,
        lanes=(LANES,) if is_nvidia else SUB_GROUP_SIZES if chooses else (),
        is_nvidia=is_nvidia,
        capability=device.traits.capability if is_nvidia else (0, 0),
    )


def standard(device: Device, rung: Rung) -> str:
    """Return the OpenCL C that a rung needs, such as ``"CL1.2"``."""
    macros = rung.macros(opencl_target(device))
    if macros.get("SHUFFLE") and not macros["PTX"]:  # OpenCL 1.2 has no sub-groups
        return "CL3.0" if device.cl_device.version >= "OpenCL 3" else "CL2.0"
    return "CL1.2"


class OpenclProduct:
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
        macros = list(rung.macros(opencl_target(device)).items())
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


def cuda_problem() -> str:
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


def cuda_target() -> Target:
    """Return the properties of the current CUDA device that the rungs need."""
    cupy = _cupy()
    attributes = cupy.cuda.Device().attributes
    return Target(
        local_memory_bytes=attributes["MaxSharedMemoryPerBlock"],
        work_group_size=attributes["MaxThreadsPerBlock"],
        allocation_bytes=cupy.cuda.Device().mem_info[1],
        lanes=(LANES,),
        is_nvidia=True,
        is_cuda=True,
    )


class CudaProduct:
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
        macros = rung.macros(cuda_target()).items()
        module = self._cupy.RawModule(
            # The header lets NVRTC compile the rungs' OpenCL C as CUDA C++.
            code="\n".join((kernel_text("opencl_to_cuda.h"), source(rung))),
            options=tuple(f"-D{name}={value}" for name, value in macros),
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


def run(device: Device | None, rung: Rung, problem: Problem, repeat: int | None = None) -> Result:
    """Check and time a rung.

    Parameters
    ----------
    device : Device or None
        The OpenCL device; None for the current CUDA device, through the CUDA toolchain.
    repeat : int, optional
        The number of timed runs, after a first run that is not timed. The default is ten, or fewer
        but at least three if they take long.
    """
    shape = problem.shape
    product: OpenclProduct | CudaProduct
    if device is None:
        target, product = cuda_target(), CudaProduct(rung, shape)
    else:
        target, product = opencl_target(device), OpenclProduct(device, rung, shape)
    product.write("a", problem.a)
    product.write("b", problem.b)
    runs: list[list[int]] = []

    def once() -> int:
        runs.append(product.run())
        return sum(runs[-1])

    time_ns = median_ns(once, repeat)
    kernels = [launch.kernel for launch in rung.launches(shape)]
    support_ns = sum(
        time
        for run in runs[1:]
        for kernel, time in zip(kernels, run, strict=True)
        if kernel != "multiply"
    )
    return Result(
        rung=rung,
        shape=shape,
        toolchain="CUDA" if target.is_cuda else "OpenCL",
        time_ns=time_ns,
        relative_error=problem.relative_error(product.read("c", shape.m, shape.n)),
        error_bound=rung.error_bound(shape),
        support_share=support_ns / max(1, sum(map(sum, runs[1:]))),
        note=rung.note(target),
    )


def expected_seconds(kind: str, n: int, rungs: int, repeat: int | None) -> float:
    """Return about how long rungs take: one second each for the compiler, and the timed runs.

    Parameters
    ----------
    kind : str
        Of the device. The speed of plain kernels is taken to be that of a GPU of the last ten
        years, or of few cores.
    """
    once = 2 * n**3 / (1e12 if kind == "GPU" else 2e9)
    patience = PATIENCE_NS / 1e9
    runs = (repeat or max(3.0, min(REPEAT, patience / once))) + 1
    return rungs * (1 + once * runs)


def median_ns(once: Callable[[], int], repeat: int | None) -> int:
    """Return the median of the nanoseconds that calls of `once` return, without the first call."""
    once()  # the first run compiles and allocates
    times: list[int] = []
    while len(times) < (repeat or REPEAT):
        times.append(once())
        if not repeat and len(times) >= 3 and sum(times) > PATIENCE_NS:
            break
    return max(1, round(median(times)))


@dataclass(frozen=True)
class Peer:
    """The figures of a library's product of float32.

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
    """Yield the figures of `clgemm.sgemm`, cuBLAS if CuPy is installed, and NumPy, for float32."""

    def timed(name: str, product: Callable[[], Any], fetch: Callable[[Any], Any]) -> Peer:
        def once() -> int:
            begin = time.perf_counter_ns()
            product()
            return time.perf_counter_ns() - begin

        time_ns = median_ns(once, repeat)
        return Peer(name, problem.shape, time_ns, problem.relative_error(fetch(product())))

    a, b = (cl_array.to_device(device.queue, matrix) for matrix in (problem.a, problem.b))

    def ours() -> Any:
        c = sgemm(1.0, a, b, queue=device.queue)
        device.queue.finish()
        return c

    yield timed("clgemm.sgemm", ours, lambda c: c.get())
    if not cuda_problem():
        cupy = _cupy()
        x, y = cupy.asarray(problem.a), cupy.asarray(problem.b)

        def cublas() -> Any:
            c = x @ y
            cupy.cuda.Device().synchronize()
            return c

        yield timed("cuBLAS", cublas, cupy.asnumpy)
    yield timed("NumPy on the host", lambda: problem.a @ problem.b, np.asarray)
