"""The host's BLAS libraries besides NumPy's own: MKL, BLIS, oneDNN and PyTorch.

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
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

HOST_PEERS = ("MKL", "BLIS", "oneDNN", "PyTorch")

Matrix = npt.NDArray[np.float32]
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


def about(name: str) -> str:
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
    product(name, a, a, c)()
    if not (c == FIRST).all():
        raise RuntimeError(f"{name} multiplies wrongly: {FIRST} ones add up to {c.min()}")
    return _dnnl_version() if name == "oneDNN" else _pool(name)


def product(
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
    if c.ndim > 2:
        if name != "MKL":
            raise NotImplementedError("it has no product of a batch of matrices")
        return _mkl_batch(library, a, b, c)
    sizes, (x, y) = _sizes(a, b), (_operand(a), _operand(b))
    if name == "oneDNN":
        return _dnnl_call(library, sizes, x, y, c)
    return _cblas_call(library, sizes, x, y, c)


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


def _sizes(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> tuple[int, int, int]:
    return a.shape[-2], b.shape[-1], a.shape[-1]


def _cblas_call(
    library: Any, sizes: tuple[int, int, int], a: Operand, b: Operand, c: npt.NDArray[Any]
) -> Callable[[], object]:
    integers = map(ctypes.c_int, sizes)
    return functools.partial(
        library.cblas_sgemm,
        *map(ctypes.c_int, (CBLAS_ROWS, *(CBLAS_TRANS[x.is_transposed] for x in (a, b)))),
        *(*integers, ctypes.c_float(1)),
        *(a.pointer, ctypes.c_int(a.leading), b.pointer, ctypes.c_int(b.leading)),
        *(ctypes.c_float(0), c.ctypes.data_as(ctypes.c_void_p), ctypes.c_int(c.shape[-1])),
    )


def _mkl_batch(
    library: Any, a: npt.NDArray[Any], b: npt.NDArray[Any], c: npt.NDArray[Any]
) -> Callable[[], object]:
    x, y = _operand(a), _operand(b)
    # A B that the batch shares has a stride of 0.
    steps = [z.strides[0] // z.itemsize if z.ndim > 2 else 0 for z in (a, b, c)]
    matrices = [
        (pointer, ctypes.c_int(leading), ctypes.c_int(step))
        for pointer, leading, step in zip(
            (x.pointer, y.pointer, c.ctypes.data_as(ctypes.c_void_p)),
            (x.leading, y.leading, c.shape[-1]),
            steps,
            strict=True,
        )
    ]
    return functools.partial(
        library.cblas_sgemm_batch_strided,
        *map(ctypes.c_int, (CBLAS_ROWS, *(CBLAS_TRANS[z.is_transposed] for z in (x, y)))),
        *map(ctypes.c_int, _sizes(a, b)),
        *(ctypes.c_float(1), *matrices[0], *matrices[1]),
        *(ctypes.c_float(0), *matrices[2], ctypes.c_int(c.shape[0])),
    )


def _dnnl_call(
    library: Any, sizes: tuple[int, int, int], a: Operand, b: Operand, c: npt.NDArray[Any]
) -> Callable[[], object]:
    return functools.partial(
        library.dnnl_sgemm,
        *(ctypes.c_char(DNNL_TRANS[x.is_transposed]) for x in (a, b)),
        *(*map(ctypes.c_int64, sizes), ctypes.c_float(1)),
        *(a.pointer, ctypes.c_int64(a.leading), b.pointer, ctypes.c_int64(b.leading)),
        *(ctypes.c_float(0), c.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(c.shape[-1])),
    )


@functools.cache
def _library(name: str) -> Any:
    """Load a library, or raise RuntimeError with each file that was tried."""
    wanted = LIBRARIES[name]
    problems: list[str] = []
    for path in _paths(wanted):
        if (library := _opened(path, problems)) is not None:
            return library
    raise RuntimeError(f"no {name} ({wanted.help}): {'; '.join(problems) or 'nothing is found'}")


def _opened(path: str, problems: list[str]) -> Any:
    """Return a library's functions; None, and the reason among `problems`, if it does not open."""
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        problems.append(str(error))
        return None


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


class _DnnlVersion(ctypes.Structure):
    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


def _dnnl_version() -> str:
    library = _library("oneDNN")
    library.dnnl_version.restype = ctypes.POINTER(_DnnlVersion)
    version = library.dnnl_version().contents
    return f"{version.major}.{version.minor}.{version.patch}"


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
