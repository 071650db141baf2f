"""The host's BLAS libraries besides NumPy's own: MKL, BLIS, oneDNN, PyTorch and another OpenBLAS.

MKL, BLIS and oneDNN are called through ctypes, row by row, transposed operands by flags. No operand
is copied. A product that a library cannot read where it lies raises `NotImplementedError`.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib
import platform
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clgemm.core.host_blas import has_avx512

__all__ = ["HOST_PEERS", "OTHER_OPENBLAS", "VARIABLES", "about", "product"]

OTHER_OPENBLAS = "OpenBLAS (SkylakeX)"
HOST_PEERS = (OTHER_OPENBLAS, "MKL", "BLIS", "oneDNN", "PyTorch")
# Variables of a contender's process. OpenBLAS takes some AMD processors with AVX-512 for Haswell.
VARIABLES = {OTHER_OPENBLAS: {"OPENBLAS_CORETYPE": "SkylakeX"}}

Matrix = npt.NDArray[np.float32]
CBLAS_ROWS, CBLAS_TRANS = 101, {False: 111, True: 112}
DNNL_TRANS = {False: b"N", True: b"T"}
# The kinds of kernels among MKL's libraries, of which MKL loads one at its first product.
MKL_KERNELS = re.compile(r"libmkl_(def|mc3?|avx\w*)\.so")
# oneDNN's names of instruction sets: dnnl_cpu_isa_t of dnnl_types.h
DNNL_ISAS = {0x1: "SSE4.1", 0x3: "AVX", 0x7: "AVX2", 0x27: "AVX-512", 0x67: "AVX-512 VNNI"}
FIRST = 64  # the size of the product by which a library chooses its kernels


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
    """Return a library's version, and the kernels and the threads that it uses.

    Raises
    ------
    RuntimeError
        If it cannot compete here; the message says why.
    """
    if name == OTHER_OPENBLAS:
        return _about_other_openblas()
    if name == "PyTorch":
        return _about_torch()
    a = np.ones((FIRST, FIRST), np.float32)
    c = np.zeros_like(a)
    product(name, a, a, c)()
    if not (c == FIRST).all():
        raise RuntimeError(f"{name} multiplies wrongly: {FIRST} ones add up to {c.min()}")
    return {"MKL": _about_mkl, "BLIS": _about_blis, "oneDNN": _about_dnnl}[name](_library(name))


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
    if name == OTHER_OPENBLAS:
        return functools.partial(np.matmul, a, b, out=c)
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


def _about_mkl(library: Any) -> str:
    text = ctypes.create_string_buffer(300)
    library.mkl_get_version_string(text, len(text))
    found = re.search(r"Version ([\w.]+)", text.value.decode())
    version = found[1] if found else text.value.decode().strip()
    kernels = ", ".join(sorted(set(MKL_KERNELS.findall(_mapped()))))
    return _described(version, kernels, library.mkl_get_max_threads())


def _about_blis(library: Any) -> str:
    if (bits := library.bli_info_get_blas_int_type_size()) != 32:
        raise RuntimeError(f"this BLIS has a CBLAS with integers of {bits} bits; 32 are needed")
    library.bli_info_get_version_str.restype = ctypes.c_char_p
    library.bli_arch_string.restype = ctypes.c_char_p
    library.bli_thread_get_num_threads.restype = ctypes.c_long
    version = library.bli_info_get_version_str().decode()
    kernels = library.bli_arch_string(library.bli_arch_query_id()).decode()
    return _described(version, kernels, library.bli_thread_get_num_threads())


class _DnnlVersion(ctypes.Structure):
    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


def _about_dnnl(library: Any) -> str:
    library.dnnl_version.restype = ctypes.POINTER(_DnnlVersion)
    version = library.dnnl_version().contents
    isa = library.dnnl_get_effective_cpu_isa()
    # Later instruction sets contain AVX-512 and more.
    known = max((bits for bits in DNNL_ISAS if isa & bits == bits), default=0)
    text = f"{version.major}.{version.minor}.{version.patch}"
    return _described(text, DNNL_ISAS.get(known, hex(isa)), 0)


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
    return _described(f"{torch.__version__} on {name or 'unknown'}", "", torch.get_num_threads())


def _about_other_openblas() -> str:
    built: Any = np.show_config("dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    if "openblas" not in str(blas.get("name", "")).lower():
        raise RuntimeError(f"NumPy's BLAS is {blas.get('name', 'unknown')}, not OpenBLAS")
    if not has_avx512():
        raise RuntimeError(f"{platform.machine()} without AVX-512, or none that Linux reports")
    return f"by NumPy {np.__version__}"


def _mapped() -> str:
    """Return the files in this process's memory, as far as the system tells."""
    try:
        return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _described(version: str, kernels: str, threads: int) -> str:
    details = [f"{kernels} kernels"] * bool(kernels) + [f"{threads} threads"] * bool(threads)
    return f"{version} ({', '.join(details)})" if details else version
