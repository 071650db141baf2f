"""The contenders: clgemm and its peers, each as a call to be timed.

MKL, BLIS and oneDNN are called through ctypes, row by row, transposed operands by flags. No operand
is copied. A product that a library cannot read where it lies raises `NotImplementedError`.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import clgemm
from clgemm.bench.cases import COLUMNS_IN_FRONT, Case, operands, stored, viewed

# The operands are NumPy arrays, and the time includes transfers; or they are device arrays, and the
# time is from the call to the end of the kernel.
HOST, DEVICE = "host", "device"
HOST_PEERS = ("MKL", "BLIS", "oneDNN", "PyTorch")  # besides NumPy's own BLAS
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
        return library_about(contender)
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
    if mode == DEVICE:
        on_device = {"clgemm": _clgemm, "CLBlast": _clblast, "cuBLAS": _cublas}
        return on_device[contender](case, device)
    (a, b), c = operands(case), _nans(case)
    if contender in HOST_PEERS:
        return Call(library_call(contender, a, b, c), lambda: c)
    matmul = clgemm.matmul if is_ours(contender) else np.matmul
    return Call(lambda: matmul(a, b, out=c), lambda: c)


def _nans(case: Case) -> npt.NDArray[np.float32]:
    """Return C before the first call."""
    shape = (case.batch,) * (case.batch > 1) + (case.m, case.n)
    return np.full(shape, np.nan, np.float32)


def _on_device(case: Case, queue: Any) -> tuple[Any, Any, Any]:
    """Return the stored operands and a C full of NaN as pyopencl arrays."""
    import pyopencl.array as cl_array

    a, b = (cl_array.to_device(queue, x) for x in stored(case, np.random.default_rng(0)))
    return a, b, cl_array.to_device(queue, _nans(case))


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
    c = cuda.to_device(_nans(case))

    def once() -> None:
        cuda.matmul(a, b, c)
        cuda.synchronize()

    return Call(once, lambda: cuda.to_host(c))


def _strided(array: Any, layout: str) -> Any:
    return array.swapaxes(-1, -2) if layout == "T" else viewed(array, layout)


CBLAS_ROWS, CBLAS_TRANS = 101, {False: 111, True: 112}
DNNL_TRANS = {False: b"N", True: b"T"}
FIRST = 64  # the size of the product by which a library is tried


class Library(NamedTuple):
    """Where a library may be.

    Attributes
    ----------
    packages : tuple of str
        PyPI's packages that contain it.
    file : str
        A regular expression for its file's name there.
    names : tuple of str
        Its names for the system's loader.
    help : str
        How to install it.
    """

    packages: tuple[str, ...]
    file: str
    names: tuple[str, ...]
    help: str


LIBRARIES = {
    "MKL": Library(
        ("mkl",),
        r"(lib)?mkl_rt(\.so\.\d+|\.\d+\.dll|\.dylib)",
        ("libmkl_rt.so.3", "libmkl_rt.so.2", "mkl_rt"),
        "pip install mkl",
    ),
    "BLIS": Library(
        (),
        "",
        ("libblis.so.4", "libblis-mt.so", "blis"),
        "install your distribution's libblis (Debian: libblis4-pthread)",
    ),
    "oneDNN": Library(
        ("onednn-cpu-gomp", "onednn"),
        r"(lib)?dnnl(\.so\.\d+|\.dll|\.dylib)",
        ("libdnnl.so.3", "dnnl"),
        "pip install onednn-cpu-gomp",
    ),
}


def library_about(name: str) -> str:
    """Return a library's version, and its kernels and threads where threadpoolctl tells them.

    Raises
    ------
    RuntimeError
        If it cannot compete here; the message says why.
    """
    if name == "PyTorch":
        return _about_torch()
    a = np.ones((FIRST, FIRST), np.float32)
    c = np.zeros_like(a)
    library_call(name, a, a, c)()
    if not (c == FIRST).all():
        raise RuntimeError(f"{name} multiplies wrongly: {FIRST} ones add up to {c.min()}")
    return _dnnl_version() if name == "oneDNN" else _pool(name)


def library_call(
    name: str, a: npt.NDArray[Any], b: npt.NDArray[Any], c: npt.NDArray[Any]
) -> Callable[[], object]:
    """Return a library's call that computes c = a b.

    Parameters
    ----------
    a, b : float32 array, shapes (m, k) and (k, n), or (batch, m, k) and (batch, k, n) or (k, n)
    c : float32 array, shape (m, n) or (batch, m, n)
        C-contiguous.

    Raises
    ------
    NotImplementedError
        If the library has no such product; the message says what is missing.
    RuntimeError
        If the library is not installed.
    """
    if name == "PyTorch":
        torch = importlib.import_module("torch")
        x, y, z = (torch.from_numpy(array) for array in (a, b, c))
        return functools.partial(torch.matmul, x, y, out=z)
    library = _library(name)
    if c.ndim > 2 and name != "MKL":
        raise NotImplementedError("it has no product of a batch of matrices")
    blas = [_operand(x) for x in (a, b, c)]
    transposed = [x.is_transposed for x in blas[:2]]
    integer: Any
    flags: list[Any]
    if name == "oneDNN":
        function, integer = library.dnnl_sgemm, ctypes.c_int64
        flags = [ctypes.c_char(DNNL_TRANS[x]) for x in transposed]
    else:
        function, integer = library.cblas_sgemm, ctypes.c_int
        flags = [integer(x) for x in (CBLAS_ROWS, *(CBLAS_TRANS[x] for x in transposed))]
    matrices = [[x.pointer, integer(x.leading)] for x in blas]
    batch = []
    if c.ndim > 2:
        function, batch = library.cblas_sgemm_batch_strided, [integer(c.shape[0])]
        for matrix, x in zip(matrices, (a, b, c), strict=True):
            # A B that the batch shares has a stride of 0.
            matrix.append(integer(x.strides[0] // x.itemsize if x.ndim > 2 else 0))
    return functools.partial(
        function,
        *flags,
        *map(integer, (a.shape[-2], b.shape[-1], a.shape[-1])),
        *(ctypes.c_float(1), *matrices[0], *matrices[1]),
        *(ctypes.c_float(0), *matrices[2], *batch),
    )


class Operand(NamedTuple):
    """A matrix as BLAS takes it, row by row: its storage is transposed or not.

    Attributes
    ----------
    pointer : ctypes.c_void_p
        It keeps the array alive.
    """

    pointer: Any
    is_transposed: bool
    leading: int


def _operand(x: npt.NDArray[Any]) -> Operand:
    """Return a matrix of row-major storage, or of the transpose of such storage."""
    rows, columns = x.shape[-2:]
    row, column = (stride // x.itemsize for stride in x.strides[-2:])
    pointer = x.ctypes.data_as(ctypes.c_void_p)
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return Operand(pointer, False, max(row, columns))
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return Operand(pointer, True, max(column, rows))
    raise NotImplementedError("it needs operands with a unit stride")


@functools.cache
def _library(name: str) -> Any:
    """Load a library, or raise RuntimeError with each file that was tried."""
    wanted = LIBRARIES[name]
    problems: list[str] = []
    for path in _paths(wanted):
        try:
            return ctypes.CDLL(path)
        except OSError as error:  # noqa: PERF203 - there are few paths
            problems.append(str(error))
    raise RuntimeError(f"no {name} ({wanted.help}): {'; '.join(problems) or 'nothing is found'}")


def _paths(wanted: Library) -> Iterator[str]:
    for package in wanted.packages:
        try:
            inside = files(package) or []
        except PackageNotFoundError:
            continue
        yield from (str(each.locate()) for each in inside if re.fullmatch(wanted.file, each.name))
    for name in wanted.names:
        if found := name if ".so" in name else ctypes.util.find_library(name):
            yield found
    folder = Path(sys.prefix) / "lib"  # conda's libraries are here
    yield from (str(folder / name) for name in wanted.names if (folder / name).exists())


def _dnnl_version() -> str:
    library = _library("oneDNN")
    library.dnnl_version.restype = ctypes.POINTER(ctypes.c_int * 3)  # major, minor and patch
    return ".".join(map(str, library.dnnl_version().contents))


def _pool(name: str) -> str:
    """Return what threadpoolctl tells of MKL or BLIS, which this process has loaded."""
    try:
        pools = importlib.import_module("threadpoolctl").threadpool_info()
    except ImportError:
        return "(unknown version: threadpoolctl is not installed)"
    pool: dict[str, Any] = next(
        (pool for pool in pools if pool["internal_api"] == name.lower()), {}
    )
    kernels = f"{pool['architecture']} kernels, " if pool.get("architecture") else ""
    return f"{pool.get('version')} ({kernels}{pool.get('num_threads')} threads)"


def _about_torch() -> str:
    """Return PyTorch's version and the BLAS of its products on the host."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise RuntimeError(f"PyTorch cannot be imported: {error}") from None
    configured = torch.__config__.show()
    blas = re.search(r"BLAS_INFO=(\w+)", configured)
    mkl = re.search(r"Math Kernel Library Version ([\w.]+)", configured)
    name = " ".join(found[1] for found in (blas, mkl) if found)
    return f"{torch.__version__} on {name or 'unknown'} ({torch.get_num_threads()} threads)"
