"""Fixtures for the tests of OpenCL runtimes."""

from __future__ import annotations

import pytest

from clgemm.hardware import runtimes
from clgemm.hardware.runtimes import Runtime


@pytest.fixture
def place(monkeypatch, tmp_path):
    """Set up a system folder without runtimes, a cache folder, and one runtime from pip."""
    library = tmp_path / "lib" / "libintelocl.so"
    library.parent.mkdir()
    library.touch()
    (tmp_path / "vendors").mkdir()
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENCL_VENDOR_PATH", str(tmp_path / "vendors"))
    for variable in (runtimes.VENDORS, runtimes.FILE_NAMES):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(runtimes.HOME, runtimes._own_home)
    monkeypatch.setattr(runtimes, "_registered", runtimes.Registration((), "not yet"))
    found = (Runtime("intel-opencl-rt", "1", library),)
    monkeypatch.setattr(runtimes, "installed", lambda: found)
    monkeypatch.setattr(runtimes, "_reads_home", lambda: True)
    return tmp_path
