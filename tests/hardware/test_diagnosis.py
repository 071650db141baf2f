"""Tests of the reasons why a device is missing, and of the remedies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from clgemm.hardware import diagnosis, runtimes
from clgemm.hardware.runtimes import Runtime

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems' loaders differ")


@ON_LINUX
def test_findings_name_what_the_loader_could_not_open(place, monkeypatch):
    """findings() names an ICD file whose library is missing and a variable that names no folder."""
    monkeypatch.setattr(runtimes, "_own_home", str(place))
    monkeypatch.setenv(runtimes.HOME, str(place))
    (place / "vendors" / "gone.icd").write_text("/nowhere/libgone.so")
    (line,) = [x for x in diagnosis.findings() if "has no device" not in x]
    assert line.startswith(f"{place}/vendors/gone.icd: ")
    assert "/nowhere/libgone.so: cannot open shared object file" in line
    monkeypatch.setenv(runtimes.VENDORS, "/nowhere")
    lines = diagnosis.findings()
    assert "OCL_ICD_VENDORS=/nowhere: no such file or folder" in lines


@pytest.mark.parametrize(
    ("system", "machine", "packages", "said"),
    [
        ("linux", "x86_64", (), "pip install 'clgemm[cpu]'"),
        ("linux", "x86_64", ("intel-opencl-rt",), "apt-get install pocl-opencl-icd"),
        ("linux", "aarch64", (), "apt-get install pocl-opencl-icd"),
        ("win32", "AMD64", (), "pip install 'clgemm[cpu]'"),
        ("win32", "ARM64", (), "driver"),
        ("darwin", "arm64", (), "ocl_icd_wrapper_apple"),
    ],
)
def test_the_remedy_is_one_that_exists_for_the_system(system, machine, packages, said, monkeypatch):
    """The remedy is available for the system: PyPI has runtimes for x86-64 only."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(diagnosis.platform, "machine", lambda: machine)
    found = tuple(Runtime(name, "1", Path(name)) for name in packages)
    monkeypatch.setattr(runtimes, "installed", lambda: found)
    assert said in diagnosis.remedy()
    assert ("clgemm[cpu]" in diagnosis.remedy()) == ("clgemm[cpu]" in said)


@ON_LINUX
def test_a_library_in_use_is_no_finding(monkeypatch):
    """A library in use is no finding, even if its name in memory has another version."""
    (name,) = {
        Path(line.split()[-1]).name.partition(".so")[0]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "/libc.so" in line or "/libc-" in line
    }
    files = [(Path("one.icd"), f"{name}.so.99"), (Path("two.icd"), "/nowhere/libgone.so.1")]
    monkeypatch.setattr(runtimes, "icd_files", lambda: files)
    (line,) = [x for x in diagnosis.findings() if ".icd: " in x]
    assert line.startswith("two.icd: ")
