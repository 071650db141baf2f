"""Tests of the contenders: each computes the case, or says what it lacks.

The host's BLAS libraries take operands where they lie.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from clgemm.bench import cases, contenders
from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST, HOST_PEERS, LIBRARIES, ROUTED
from clgemm.bench.rounds import environment, worker_of

LYING = [Case("", 9, 10, 11, a, b) for a, b in ("NN", "NT", "TN", "TT", "SN", "NS", "SS", "DD")]
STACKS = [Case("", 9, 10, 11, batch=3), Case("", 9, 10, 11, "T", "S", batch=3, shared_b=True)]
NVIDIA = SimpleNamespace(is_nvidia=True)


@pytest.mark.parametrize("case", LYING + STACKS, ids=lambda case: case.label)
@pytest.mark.parametrize(
    ("name", "mode"), [("clgemm", HOST), ("clgemm", DEVICE), ("NumPy", HOST), ("CLBlast", DEVICE)]
)
def test_contenders_compute_the_case(device, name, mode, case):
    """Each contender's C is full of NaN before the first call and right after it."""
    try:
        contenders.available(name, device)
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        call = contenders.prepare(name, case, mode, device)
    except NotImplementedError as error:
        assert name == "CLBlast"
        assert "D" in case.layout_a  # no BLAS takes this layout
        pytest.skip(str(error))
    assert np.isnan(call.fetch()).all()
    call.once()
    assert cases.judge(case, call.fetch(), cases.reference(case))[1] <= 1


class OnHost(ModuleType):
    """A stand-in for CuPy that computes on the host and lists one GPU."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asarray, self.matmul, self.asnumpy = np.asarray, np.matmul, np.array
        self.__version__ = "0"
        device = SimpleNamespace(use=list, synchronize=list)
        runtime = SimpleNamespace(
            getDeviceCount=lambda: 1,
            getDeviceProperties=lambda _: {"name": b"NVIDIA H"},
            runtimeGetVersion=lambda: 13000,
            CUDARuntimeError=OSError,
        )
        self.cuda = SimpleNamespace(runtime=runtime, Device=lambda *_: device)


@pytest.mark.parametrize("case", LYING + STACKS, ids=lambda case: case.label)
def test_cublas_computes_the_case(case, monkeypatch):
    """cuBLAS by CuPy computes each case, and refuses a GPU that CuPy does not list."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", OnHost("cupy"))
    device = SimpleNamespace(name="NVIDIA H", traits=NVIDIA)
    assert contenders.available("cuBLAS", device) == "cupy 0, CUDA 13000"
    call = contenders.prepare("cuBLAS", case, DEVICE, device)
    call.once()
    assert cases.judge(case, call.fetch(), cases.reference(case))[1] <= 1
    device.name = "NVIDIA X"
    with pytest.raises(RuntimeError, match="CuPy: it does not list NVIDIA X; its devices are"):
        contenders.available("cuBLAS", device)


def test_missing_peers_say_why(device):
    """The error for a missing peer says that it is not installed or not for this device."""
    with pytest.raises(RuntimeError, match="cuBLAS runs on NVIDIA's GPUs only; this is a toaster"):
        contenders.available(
            "cuBLAS", SimpleNamespace(name="a toaster", traits=SimpleNamespace(is_nvidia=False))
        )
    with pytest.MonkeyPatch.context() as patch:
        for library in ("pyclblast", "torch", "cupy"):
            patch.setitem(sys.modules, library, None)  # as if it were not installed
        with pytest.raises(RuntimeError, match="pyclblast cannot be imported"):
            contenders.available("CLBlast", device)
        with pytest.raises(RuntimeError, match=r"PyTorch: .*torch.*; CuPy: .*cupy"):
            contenders.available("cuBLAS", SimpleNamespace(name="H", traits=NVIDIA))


def test_pytorch_names_its_blas(monkeypatch):
    """PyTorch is named with the BLAS that it was built with."""
    torch = ModuleType("torch")
    torch.__version__ = "9"
    text = "  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product\n BLAS_INFO=mkl, x"
    torch.__config__ = SimpleNamespace(show=lambda: text)
    torch.get_num_threads = lambda: 2
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert contenders.available("PyTorch", None) == "9 on mkl 2024.2 (2 threads)"


def test_the_contender_of_the_regret_chooses_its_side(monkeypatch):
    """clgemm's own process is always on the device; the side of matmul's is as the user set it."""
    monkeypatch.delenv("CLGEMM_THRESHOLD", raising=False)

    def variables(name):
        with worker_of(name, [], environment(2)) as child:  # starts no process before a request
            return child.variables

    assert variables("clgemm")["CLGEMM_THRESHOLD"] == "0"
    assert "CLGEMM_THRESHOLD" not in variables(ROUTED)
    monkeypatch.setenv("CLGEMM_THRESHOLD", "1e9")
    assert variables("clgemm")["CLGEMM_THRESHOLD"] == "0"
    assert variables(ROUTED)["CLGEMM_THRESHOLD"] == "1e9"
    assert variables("NumPy")["OPENBLAS_NUM_THREADS"] == "2"


LAYOUTS = ("NN", "NT", "TN", "TT", "SN", "NS", "SS", "TS", "ST", "DN", "ND", "DD")
HOST_CASES = [
    *(Case("", *sizes, *layouts) for sizes in ((9, 10, 11), (1, 7, 9)) for layouts in LAYOUTS),
    *(Case("", 7, 5, 1, *layouts) for layouts in LAYOUTS),
    Case("", 7, 1, 9, "T", "T"),
    Case("", 1, 1, 1),
    Case("", 9, 10, 11, batch=3),
    Case("", 9, 10, 11, "T", "S", batch=3, shared_b=True),
]


@pytest.mark.parametrize("name", HOST_PEERS)
def test_peers_compute_the_cases(name):
    """Each library that is installed computes each case, or says what it lacks."""
    try:
        assert contenders.available(name, None)
    except RuntimeError as error:
        pytest.skip(str(error))
    for case in HOST_CASES:
        try:
            call = contenders.prepare(name, case, HOST, None)
        except NotImplementedError:
            assert name in LIBRARIES
            assert case.batch > 1 or needs_copies(case)
            continue
        assert np.isnan(call.fetch()).all()
        call.once()
        assert cases.judge(case, call.fetch(), cases.reference(case))[1] <= 1, case.label


class OwnBlas:
    """A stand-in for a BLAS: it reads row-major storage by its leading dimensions."""

    @staticmethod
    def cblas_sgemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        assert (order.value, alpha.value, beta.value) == (101, 1, 0)
        x, y = (
            stored(pointer, leading.value, *sides)
            if trans.value == 111
            else stored(pointer, leading.value, *sides[::-1]).T
            for trans, pointer, leading, sides in (
                (trans_a, a, lda, (m.value, k.value)),
                (trans_b, b, ldb, (k.value, n.value)),
            )
        )
        stored(c, ldc.value, m.value, n.value)[:] = x @ y


def stored(pointer: ctypes.c_void_p, leading: int, rows: int, columns: int) -> np.ndarray:
    """Return a window of row-major storage as an array."""
    assert leading >= columns
    count = leading * (rows - 1) + columns
    floats = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float * count)).contents
    strides = 4 * leading, 4
    return np.lib.stride_tricks.as_strided(np.frombuffer(floats, "f"), (rows, columns), strides)


def needs_copies(case: Case) -> bool:
    """Tell whether an operand of two or more rows and columns has no unit stride."""
    sides = (case.layout_a, case.m, case.k), (case.layout_b, case.k, case.n)
    return any(layout == "D" and rows > 1 and columns > 1 for layout, rows, columns in sides)


@pytest.mark.parametrize("case", HOST_CASES, ids=lambda case: f"{case.label}-{case.shared_b}")
def test_operands_reach_a_blas_where_they_lie(case, monkeypatch):
    """Flags and leading dimensions describe each operand; other layouts are refused."""
    monkeypatch.setattr(contenders, "_library", lambda _: OwnBlas)
    missing = "a batch" if case.batch > 1 else "unit stride" if needs_copies(case) else ""
    if missing:
        with pytest.raises(NotImplementedError, match=missing):
            contenders.prepare("BLIS", case, HOST, None)
        return
    call = contenders.prepare("BLIS", case, HOST, None)
    call.once()
    assert cases.judge(case, call.fetch(), cases.reference(case))[1] <= 1


@pytest.mark.parametrize("name", LIBRARIES)
def test_missing_libraries_say_why(name, monkeypatch):
    """The error for a missing library says how to install it, and which files were tried."""
    monkeypatch.setattr(contenders, "_paths", lambda _: iter(["/nowhere/lib.so"]))
    contenders._library.cache_clear()
    with pytest.raises(RuntimeError, match=f"no {name} .*install.*nowhere"):
        contenders.available(name, None)


def test_libraries_are_found_where_packages_put_them(monkeypatch):
    """The files of PyPI's packages come first, then the names that the loader knows."""
    files = {"mkl": ["libmkl_core.so.3", "libmkl_rt.so.3", "mkl_rt.3.dll"]}

    def of_package(package: str) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(name=name, locate=lambda name=name: f"/v/lib/{name}")
            for name in files[package]
        ]

    monkeypatch.setattr(contenders, "files", of_package)
    paths = list(contenders._paths(LIBRARIES["MKL"]))
    assert paths[:4] == [
        *("/v/lib/libmkl_rt.so.3", "/v/lib/mkl_rt.3.dll"),
        *("libmkl_rt.so.3", "libmkl_rt.so.2"),
    ]


def test_a_library_has_the_version_that_threadpoolctl_tells(monkeypatch):
    """Its kernels too, where known, and its threads."""
    pytest.importorskip("threadpoolctl")
    pools = [
        {"internal_api": "mkl", "version": "2024.2-Product", "num_threads": 2},
        {"internal_api": "blis", "version": "1.0", "num_threads": 4, "architecture": "zen3"},
    ]
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: pools)
    monkeypatch.setattr(contenders, "_library", lambda _: OwnBlas)
    assert contenders.library_about("MKL") == "2024.2-Product (2 threads)"
    assert contenders.library_about("BLIS") == "1.0 (zen3 kernels, 4 threads)"


def test_a_wrong_library_is_no_peer(monkeypatch):
    """A library that does not write its result, such as one of other integers, is refused."""
    silent = SimpleNamespace(cblas_sgemm=lambda *_: None)
    monkeypatch.setattr(contenders, "_library", lambda _: silent)
    with pytest.raises(RuntimeError, match="MKL multiplies wrongly: 64 ones add up to 0"):
        contenders.available("MKL", None)
