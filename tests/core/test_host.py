"""The threads of NumPy's BLAS in this process, and its kernels."""

from __future__ import annotations

import os

import pytest

from clgemm.core import host
from clgemm.core.host import blas_threads

USABLE = len(getattr(os, "sched_getaffinity", lambda _: ())(0)) or os.cpu_count() or 1


@pytest.fixture
def without_threadpoolctl(monkeypatch):
    """As if threadpoolctl were not installed, NumPy's BLAS were OpenBLAS, and no variable set."""
    monkeypatch.setattr(host, "_pools", lambda: ())
    monkeypatch.setattr(host, "_blas_name", lambda: "scipy-openblas")
    for variable in {v for known in host.VARIABLES.values() for v in known}:
        monkeypatch.delenv(variable, raising=False)


def test_threadpoolctl_knows_how_many_there_are_now():
    """A limit holds at once, and ends at once."""
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="it is part of extras")
    if not threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers:
        pytest.skip("threadpoolctl does not know NumPy's BLAS")
    before = blas_threads()
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert blas_threads() == 1
    assert blas_threads() == before


def test_without_threadpoolctl_the_environment_tells(without_threadpoolctl, monkeypatch):
    """The variables of NumPy's BLAS, the strongest first; else the cores."""
    assert blas_threads() == USABLE
    monkeypatch.setenv("MKL_NUM_THREADS", "1")  # not this BLAS's
    assert blas_threads() == USABLE
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert blas_threads() == 1
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", str(USABLE))
    assert blas_threads() == USABLE
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", str(USABLE + 100))
    assert blas_threads() == USABLE


@pytest.mark.parametrize("nonsense", ["", "many", "0", "-1", "1.5"])
def test_nonsense_in_the_environment_is_passed_over(nonsense, without_threadpoolctl, monkeypatch):
    """As a BLAS does."""
    monkeypatch.setenv("OMP_NUM_THREADS", nonsense)
    assert blas_threads() == USABLE


def test_an_unknown_blas_reads_the_variable_of_openmp(without_threadpoolctl, monkeypatch):
    """Whatever its name is."""
    monkeypatch.setattr(host, "_blas_name", lambda: "unheard-of")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert blas_threads() == 1


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n", "fpu avx2"),
        ("Features\t: fp asimd\n", None),
        (None, None),
    ],
)
def test_linux_tells_of_the_first_processor(text, flags, tmp_path, monkeypatch):
    """By name. Without such a file, nothing is known."""
    file = tmp_path / "cpuinfo"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(host, "CPUINFO", file)
    host.processor_facts.cache_clear()
    assert host.processor_facts().get("flags") == flags
    host.processor_facts.cache_clear()
