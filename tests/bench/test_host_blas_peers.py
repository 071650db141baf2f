"""Tests of the host's BLAS libraries as peers, and of the operands that they take."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from clgemm.bench import cases, contenders, host_blas_peers
from clgemm.bench.cases import Case
from clgemm.bench.contenders import HOST
from clgemm.bench.host_blas_peers import HOST_PEERS, LIBRARIES

LAYOUTS = ("NN", "NT", "TN", "TT", "SN", "NS", "SS", "TS", "ST", "DN", "ND", "DD")
CASES = [
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
    for case in CASES:
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.label}-{case.shared_b}")
def test_operands_reach_a_blas_where_they_lie(case, monkeypatch):
    """Flags and leading dimensions describe each operand; other layouts are refused."""
    monkeypatch.setattr(host_blas_peers, "_library", lambda _: OwnBlas)
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
    monkeypatch.setattr(host_blas_peers, "_paths", lambda _: iter(["/nowhere/lib.so"]))
    host_blas_peers._library.cache_clear()
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

    monkeypatch.setattr(host_blas_peers, "files", of_package)
    paths = list(host_blas_peers._paths(LIBRARIES["MKL"]))
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
    monkeypatch.setattr(host_blas_peers, "_library", lambda _: OwnBlas)
    assert host_blas_peers.about("MKL") == "2024.2-Product (2 threads)"
    assert host_blas_peers.about("BLIS") == "1.0 (zen3 kernels, 4 threads)"


def test_a_wrong_library_is_no_peer(monkeypatch):
    """A library that does not write its result, such as one of other integers, is refused."""
    silent = SimpleNamespace(cblas_sgemm=lambda *_: None)
    monkeypatch.setattr(host_blas_peers, "_library", lambda _: silent)
    with pytest.raises(RuntimeError, match="MKL multiplies wrongly: 64 ones add up to 0"):
        contenders.available("MKL", None)
