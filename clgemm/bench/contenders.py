"""The contenders: clgemm and its peers, each as a call to be timed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

import clgemm
from clgemm.bench import host_blas_peers
from clgemm.bench.cases import COLUMNS_IN_FRONT, Case, operands, stored, viewed
from clgemm.bench.host_blas_peers import HOST_PEERS

# The operands are NumPy arrays, and the time includes transfers; or they are device arrays, and the
# time is from the call to the end of the kernel.
HOST, DEVICE = "host", "device"
# Each peer and the place of its operands.
PEERS = {"NumPy": HOST, **dict.fromkeys(HOST_PEERS, HOST), "CLBlast": DEVICE, "cuBLAS": DEVICE}
ROUTED = "clgemm.matmul"  # chooses the side, host or device; "clgemm" is always the device
CONTROL = "NumPy again"  # in another process, which never takes the same time


class Call(NamedTuple):
    """A product that is ready to be timed.

    Attributes
    ----------
    once : callable
        Computes C and waits for it.
    fetch : callable
        Returns C of the last call as a NumPy array. Before the first call, C is full of NaN.
    """

    once: Callable[[], object]
    fetch: Callable[[], Any]


def is_ours(contender: str) -> bool:
    """Tell whether a contender is clgemm."""
    return contender in ("clgemm", ROUTED)


def against(peers: Iterable[str]) -> dict[str, list[str]]:
    """Return who competes with operands on the host and on the device: clgemm, and some peers."""
    return {
        mode: ["clgemm", *(peer for peer in peers if PEERS[peer] == mode)]
        for mode in (HOST, DEVICE)
    }


def available(contender: str, device: Any) -> str:
    """Return the version of a contender and of its library.

    Raises
    ------
    RuntimeError
        If it cannot compete on this device; the message says why.
    """
    if is_ours(contender):
        return clgemm.__version__
    if contender in ("NumPy", CONTROL):
        return np.__version__
    if contender in HOST_PEERS:
        return host_blas_peers.about(contender)
    if contender == "CLBlast":
        try:
            importlib.import_module("pyclblast")
        except ImportError as error:
            raise RuntimeError(f"pyclblast cannot be imported: {error}") from None
        return f"pyclblast {version('pyclblast')}"
    if not device.traits.is_nvidia:
        raise RuntimeError(f"cuBLAS runs on NVIDIA's GPUs only; this is {device.name}")
    return _cuda_arrays(device).about


def prepare(contender: str, case: Case, mode: str, device: Any) -> Call:
    """Return a contender's call for a case, with its operands on the host or on the device.

    Raises
    ------
    NotImplementedError
        If the library has no such product; the message says what is missing.
    """
    if contender in ("NumPy", CONTROL):
        return _on_host(np.matmul, case)
    if contender in HOST_PEERS:
        a, b = operands(case)
        c = np.full(_shape(case), np.nan, np.float32)
        return Call(host_blas_peers.product(contender, a, b, c), lambda: c)
    if is_ours(contender):
        return _on_host(clgemm.matmul, case) if mode == HOST else _clgemm(case, device)
    return _clblast(case, device) if contender == "CLBlast" else _cublas(case, device)


def _shape(case: Case) -> tuple[int, ...]:
    return (case.batch,) * (case.batch > 1) + (case.m, case.n)


def _on_host(matmul: Callable[..., object], case: Case) -> Call:
    a, b = operands(case)
    c = np.full(_shape(case), np.nan, np.float32)
    return Call(lambda: matmul(a, b, out=c), lambda: c)


def _on_device(case: Case, queue: Any) -> tuple[Any, Any, Any]:
    """Return the stored operands and a C full of NaN as pyopencl arrays."""
    import pyopencl.array as cl_array

    a, b = (cl_array.to_device(queue, x) for x in stored(case, np.random.default_rng(0)))
    return a, b, cl_array.to_device(queue, np.full(_shape(case), np.nan, np.float32))


def _clgemm(case: Case, device: Any) -> Call:
    queue = device.queue
    a, b, c = _on_device(case, queue)
    a, b = viewed(a, case.layout_a), viewed(b, case.layout_b)

    def once() -> None:
        clgemm.matmul(a, b, out=c)
        queue.finish()

    return Call(once, c.get)


def _leading(layout: str, rows: int, columns: int) -> tuple[int, int]:
    """Return an operand's leading dimension and offset in row-major storage."""
    leading = {"N": columns, "T": rows, "S": 2 * (columns + COLUMNS_IN_FRONT)}
    if layout not in leading:
        raise NotImplementedError("it needs operands with a unit stride")
    return leading[layout], COLUMNS_IN_FRONT if layout == "S" else 0


def _clblast(case: Case, device: Any) -> Call:
    pyclblast = importlib.import_module("pyclblast")
    queue = device.queue
    m, n, k = case.m, case.n, case.k
    a_ld, a_offset = _leading(case.layout_a, m, k)
    b_ld, b_offset = _leading(case.layout_b, k, n)
    a, b, c = _on_device(case, queue)
    how = {
        "a_ld": a_ld, "b_ld": b_ld, "c_ld": n, "a_offset": a_offset, "b_offset": b_offset,
        "a_transp": case.layout_a == "T", "b_transp": case.layout_b == "T",
    }  # fmt: skip
    function, sizes = pyclblast.gemm, [m, n, k]
    if case.batch > 1:
        function, sizes = pyclblast.gemmStridedBatched, [m, n, k, case.batch]
        b_stride = 0 if case.shared_b else b.size // case.batch
        how |= {"a_stride": a.size // case.batch, "b_stride": b_stride, "c_stride": m * n}
    # pyclblast takes arrays of two dimensions, for batches too.
    a, b, flat_c = (x.reshape(-1, x.shape[-1]) for x in (a, b, c))

    def once() -> None:
        function(queue, *sizes, a, b, flat_c, **how)
        queue.finish()

    return Call(once, c.get)


class _Cuda(NamedTuple):
    """The functions of PyTorch or CuPy that a product needs."""

    about: str
    to_device: Callable[[Any], Any]
    matmul: Callable[[Any, Any, Any], object]
    synchronize: Callable[[], object]
    to_host: Callable[[Any], Any]


def _cuda_arrays(device: Any) -> _Cuda:
    """Return PyTorch's functions or CuPy's, on the GPU with the same name as the OpenCL device."""
    try:
        return _torch(device.name)
    except (ImportError, RuntimeError, AttributeError) as error:
        reason = f"PyTorch: {error}"
    try:
        return _cupy(device.name)
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(f"{reason}; CuPy: {error}") from None


def _named(name: str, names: list[str]) -> int:
    if name not in names:
        raise RuntimeError(f"it does not list {name}; its devices are {names}")
    return names.index(name)


def _torch(name: str) -> _Cuda:
    torch = importlib.import_module("torch")
    cuda = torch.cuda
    index = _named(name, [cuda.get_device_name(i) for i in range(cuda.device_count())])
    torch.backends.cuda.matmul.allow_tf32 = False  # TF32 would round the operands to 11 bits
    cuda.set_device(index)
    return _Cuda(
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, TF32 off",
        lambda x: torch.from_numpy(x).to(f"cuda:{index}"),
        lambda a, b, c: torch.matmul(a, b, out=c),
        cuda.synchronize,
        lambda c: c.cpu().numpy(),
    )


def _cupy(name: str) -> _Cuda:
    cupy = importlib.import_module("cupy")
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise RuntimeError(str(error)) from None
    names = [runtime.getDeviceProperties(i)["name"].decode() for i in range(count)]
    cupy.cuda.Device(_named(name, names)).use()
    return _Cuda(
        f"cupy {cupy.__version__}, CUDA {runtime.runtimeGetVersion()}",
        cupy.asarray,
        lambda a, b, c: cupy.matmul(a, b, out=c),
        lambda: cupy.cuda.Device().synchronize(),
        cupy.asnumpy,
    )


def cupy_on(device: Any) -> Any:
    """Return CuPy, set to a GPU; None if it is not installed or has no such device."""
    try:
        _cupy(device.name)
    except (ImportError, RuntimeError):
        return None
    return importlib.import_module("cupy")


def _cublas(case: Case, device: Any) -> Call:
    cuda = _cuda_arrays(device)
    a, b = (cuda.to_device(x) for x in stored(case, np.random.default_rng(0)))
    a, b = _strided(a, case.layout_a), _strided(b, case.layout_b)
    c = cuda.to_device(np.full(_shape(case), np.nan, np.float32))

    def once() -> None:
        cuda.matmul(a, b, c)
        cuda.synchronize()

    return Call(once, lambda: cuda.to_host(c))


def _strided(array: Any, layout: str) -> Any:
    return array.swapaxes(-1, -2) if layout == "T" else viewed(array, layout)
