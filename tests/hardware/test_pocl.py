"""Tests of PoCL's disk space, of the number of its threads and of their pinning."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

import clgemm
from clgemm.hardware import pocl
from clgemm.hardware.pocl import pinned_threads
from clgemm.hardware.traits import POCL
from clgemm.runtime import programs


@pytest.fixture
def full(device, monkeypatch):
    """Return a PoCL device in a context of its own, on a disk that is full."""
    if not device.platform.startswith(POCL):
        pytest.skip("only PoCL compiles on disk")
    monkeypatch.setenv("POCL_CACHE_DIR", "/full/folder")
    monkeypatch.setattr(pocl.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    return clgemm.Device(device.cl_device)


def test_a_full_disk_is_named(full, monkeypatch):
    """If PoCL's disk is full, the error names folder, reason and remedy in short."""
    said = r"no space left in /full/folder, where PoCL compiles: .*POCL_CACHE_DIR"
    with clgemm.device(full), pytest.raises(OSError, match=said) as caught:
        clgemm.sgemm(1.0, [[2.0]], [[3.0]])
    assert caught.value.errno == errno.ENOSPC
    assert "-D" not in str(caught.value)
    free = [2**30, 0]  # it fills up amid the build
    monkeypatch.setattr(pocl.shutil, "disk_usage", lambda _: SimpleNamespace(free=free.pop(0)))
    with pytest.raises(OSError, match=said) as caught:
        programs.build(full, "__kernel void broken( { }", ())
    assert isinstance(caught.value.__cause__, cl.RuntimeError)  # with the log


def test_a_full_disk_is_numpys_business_when_accelerated(full, caplog):
    """If PoCL's disk is full, accelerated NumPy multiplies, with one warning of one line."""
    a = np.ones((40, 40), np.float32)
    with caplog.at_level(logging.WARNING, "clgemm"), clgemm.accel.enabled(0, full):
        assert ((a @ a) == 40).all()
    (record,) = caplog.records
    assert "no space left in /full/folder" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.skipif(os.name != "posix", reason="PoCL's folder is not known there")
def test_pocl_gets_another_folder_where_its_own_cannot_be_written(monkeypatch, tmp_path, caplog):
    """In the cache folder, else in a temporary one; a folder that the user named is left alone."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(pocl, "_replaced", "")
    monkeypatch.setenv("POCL_CACHE_DIR", "")  # so that it is restored
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "cache"))
    pocl.find_space()
    assert os.environ["POCL_CACHE_DIR"] == str(tmp_path / "cache" / "pocl")
    for _ in range(2):
        with caplog.at_level(logging.WARNING), pocl.compiling(POCL):
            pass
    (record,) = caplog.records
    assert str(tmp_path / "cache" / "pocl") in record.getMessage()
    # A temporary folder that others may write to is not used.
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / f"clgemm-{os.getuid()}").mkdir()
    for allowed in (0o777, 0o700):
        (tmp_path / f"clgemm-{os.getuid()}").chmod(allowed)
        monkeypatch.setenv("POCL_CACHE_DIR", "")
        pocl.find_space()
        is_used = str(tmp_path) in os.environ["POCL_CACHE_DIR"]
        assert is_used == (allowed == 0o700)
    monkeypatch.setenv("POCL_CACHE_DIR", "/the/users/own")
    pocl.find_space()
    assert os.environ["POCL_CACHE_DIR"] == "/the/users/own"
    monkeypatch.setenv("POCL_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "free"))
    pocl.find_space()
    assert os.environ["POCL_CACHE_DIR"] == ""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root mounts")
def test_pocl_on_a_full_disk_is_one_clear_error(device, tmp_path):
    """On a really full disk, PoCL gives one clear error and does not end the process."""
    if not device.platform.startswith(POCL):
        pytest.skip("only PoCL compiles on disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    program = """
import clgemm
from clgemm.kernels.direct.family import DirectConfig
try: clgemm.sgemm(1.0, [[2.0]], [[3.0]])
except (OSError, RuntimeError) as error: print(error)
"""
    folders = {"POCL_CACHE_DIR": f"{tmp_path}/pocl", "CLGEMM_CACHE_DIR": f"{tmp_path}/clgemm"}
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | folders | paths | {"CLGEMM_DEVICE": POCL},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    finally:
        deadline = time.monotonic() + 20  # the processes of trials end after the program
        while subprocess.run(["umount", str(tmp_path)], capture_output=True).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert f"no space left in {tmp_path}/pocl" in done.stdout, done.stderr
    assert done.returncode == 0


NAMES = "POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system pins no threads")
@pytest.mark.parametrize(
    ("settings", "usable", "cores", "quota", "seen"),
    [
        ((None, None), 2, 2, None, ("1", None)),
        (("0", None), 2, 2, None, ("0", None)),
        ((None, None), 1, 2, None, (None, "1")),
        ((None, None), 64, 64, None, (None, None)),
        ((None, None), 64, 64, "max 100000", (None, None)),
        ((None, None), 64, 64, "250000 100000", (None, "3")),
        ((None, None), 2, 64, "900000 100000", (None, "2")),
        ((None, None), 2, 2, "nonsense", ("1", None)),
        (("1", "7"), 2, 64, None, ("1", "7")),
    ],
)
def test_threads_are_as_many_as_processors_may_be_used(
    settings, usable, cores, quota, seen, monkeypatch, tmp_path
):
    """By affinity and by a container's quota; pinned on few cores; the user's settings stay."""
    for name, value in zip(NAMES, settings, strict=True):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(usable)))
    file = tmp_path / "cpu.max"
    monkeypatch.setattr(pocl, "QUOTA", str(file))
    if quota is not None:
        file.write_text(quota + "\n")
    with pinned_threads():
        assert tuple(map(os.environ.get, NAMES)) == seen
    assert tuple(map(os.environ.get, NAMES)) == settings
