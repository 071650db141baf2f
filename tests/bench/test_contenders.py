"""Tests of the contenders: each computes the case, or says what it lacks."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from clgemm.bench import cases, contenders
from clgemm.bench.cases import Case
from clgemm.bench.contenders import DEVICE, HOST, ROUTED
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
