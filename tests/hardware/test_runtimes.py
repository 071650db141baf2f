"""Tests of the registration of OpenCL runtimes, and of PoCL's disk space and threads."""

from __future__ import annotations

import ast
import contextlib
import errno
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import platformdirs
import pyopencl as cl
import pytest

import clgemm
from clgemm.core import cache
from clgemm.hardware import runtimes
from clgemm.hardware.device import present
from clgemm.hardware.traits import POCL
from clgemm.runtime import programs

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems' loaders differ")


def registered(place):
    """Return the libraries that the loader of pyopencl's wheel would read."""
    folder = Path(os.environ[runtimes.HOME]) / runtimes.ICD_FOLDER
    return [file.read_text() for file in sorted(folder.glob("*.icd"))]


def test_a_runtime_from_pip_is_named_in_a_folder_of_the_cache(place):
    """A runtime from pip is registered in the cache folder, beside pyopencl's own runtimes."""
    own = [library for _, library in runtimes._read_folder(runtimes._wheel_folder())]
    runtimes.register()
    assert registered(place) == [*own, str(place / "lib" / "libintelocl.so")]
    assert os.environ[runtimes.HOME].startswith(str(place / "cache"))
    assert runtimes.registration().how == f"by PYOPENCL_HOME={os.environ[runtimes.HOME]}"
    before = {path: path.stat().st_mtime_ns for path in (place / "cache").rglob("*")}
    runtimes.register()  # writes nothing anew
    assert {path: path.stat().st_mtime_ns for path in (place / "cache").rglob("*")} == before


@pytest.mark.parametrize("where", ["vendors", "wheel"])
def test_what_the_loader_finds_by_itself_is_not_registered(where, place, monkeypatch):
    """A runtime in the system's folder or in pyopencl's own is not registered again."""
    library = place / "lib" / "libintelocl.so"
    if where == "vendors":
        (place / "vendors" / "intel.icd").write_text(f"{library}\n")
    else:
        (place / runtimes.ICD_FOLDER).mkdir()
        (place / runtimes.ICD_FOLDER / "intel.icd").write_text(str(library))
        monkeypatch.setattr(runtimes, "_own_home", str(place))
        monkeypatch.setenv(runtimes.HOME, str(place))
    before = os.environ[runtimes.HOME]
    runtimes.register()
    assert os.environ[runtimes.HOME] == before
    assert runtimes.registration().runtimes == ()


@pytest.mark.parametrize("variable", [runtimes.VENDORS, runtimes.HOME])
def test_variables_that_the_user_set_are_left_alone(variable, place, monkeypatch):
    """Variables that the user sets are left alone, also after clgemm's import."""
    runtimes.register()
    monkeypatch.setenv(variable, "/the/users/own")
    runtimes.register()
    assert os.environ[variable] == "/the/users/own"
    assert runtimes.registration() == ((), f"left to {variable}=/the/users/own")
    if variable != runtimes.HOME:
        assert os.environ[runtimes.HOME] == runtimes._own_home


def test_other_loaders_are_told_by_file_names(place, monkeypatch):
    """For Khronos's loader, runtimes are added to OCL_ICD_FILENAMES after the user's own."""
    monkeypatch.setattr(runtimes, "_reads_home", lambda: False)
    monkeypatch.setattr(runtimes, "_given_names", "/the/users.so")
    monkeypatch.setenv(runtimes.FILE_NAMES, "/the/users.so")
    names = os.pathsep.join(["/the/users.so", str(place / "lib" / "libintelocl.so")])
    for _ in range(2):
        runtimes.register()
        assert os.environ[runtimes.FILE_NAMES] == names


def test_windows_finds_a_runtimes_own_libraries_by_path(place, monkeypatch):
    """On Windows the runtime's folder comes first in PATH, once."""
    monkeypatch.setattr(runtimes, "_reads_home", lambda: False)
    monkeypatch.setattr(sys, "platform", "win32")
    before = os.environ["PATH"]
    monkeypatch.setenv("PATH", before)
    for _ in range(2):
        runtimes.register()
        assert os.environ["PATH"] == os.pathsep.join([str(place / "lib"), before])


def test_a_cache_folder_that_cannot_be_written_is_no_obstacle(place, monkeypatch):
    """If the cache folder cannot be written, a private temporary folder is used."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(place))
    file = place / "file"
    file.touch()
    monkeypatch.delenv("CLGEMM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda _: file / "clgemm")
    runtimes.register()
    assert str(place / "lib" / "libintelocl.so") in registered(place)
    (temporary,) = place.glob("clgemm-*")
    assert temporary.stat().st_mode & 0o077 == 0
    # A temporary folder that others may write to is not used, and none replaces a folder that the
    # user named.
    temporary.chmod(0o777)
    assert cache.kept_folder() == file / "clgemm"
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(file))
    temporary.chmod(0o700)
    assert cache.kept_folder() == file
    runtimes.register()
    assert str(place / "lib" / "libintelocl.so") in registered(place)


def test_a_damaged_folder_is_written_anew(place):
    """A damaged folder of ICD files is written again."""
    runtimes.register()
    right = registered(place)
    folder = Path(os.environ[runtimes.HOME]) / runtimes.ICD_FOLDER
    next(folder.glob("*.icd")).write_text("")
    runtimes.register()
    assert registered(place) == right
    for file in folder.glob("*.icd"):
        file.unlink()
    (folder / "99.icd").write_text("/nowhere/libgone.so")
    runtimes.register()
    assert registered(place) == right


def test_many_processes_may_register_at_once(place):
    """If many processes register at once, the folder is complete and holds nothing else."""
    files = {"00.icd": "one", "01.icd": "two"}
    folder = place / "cache" / "runtimes" / "digest"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: runtimes._fill(folder, files), range(40)))
    inside = list((folder / runtimes.ICD_FOLDER).iterdir())
    assert {file.name: file.read_text() for file in inside} == files


def run(code, **variables):
    """Run code in a process that finds this clgemm, and return what it prints."""
    paths = [str(Path(clgemm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    removed = {runtimes.HOME, runtimes.VENDORS}
    environment = {k: v for k, v in os.environ.items() if k not in removed} | variables
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), *paths]))
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


@ON_LINUX
@pytest.mark.skipif(
    not runtimes._reads_home(), reason="pyopencl is not the wheel that brings its own loader"
)
def test_a_real_runtime_is_found_by_a_distributions_record(tmp_path):
    """A wheel's library outside site-packages is found where the system has no OpenCL."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {str(Path(x.split()[-1]).resolve()) for x in maps if "/" in x}
    named = [Path(library) for _, library in runtimes.icd_files()]
    library = next(
        (x for x in loaded for n in named if Path(x).name.startswith(n.name)),
        None,
    )
    if library is None:
        pytest.skip("the runtimes here are not in memory by the names in their ICD files")
    packages = tmp_path / "lib" / "python" / "site-packages"
    information = packages / "intel_opencl_rt-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: intel-opencl-rt\nVersion: 1.0\n"
    )
    (information / "RECORD").write_text("../../libintelocl.so,,\n")
    (tmp_path / "lib" / "libintelocl.so").symlink_to(library)
    # present() lists devices without checking that they work.
    code = (
        "import clgemm; from clgemm.hardware.device import present; "
        "print([d.platform for d in present().devices])"
    )
    variables = {
        "PYTHONPATH": str(packages),
        "OPENCL_VENDOR_PATH": str(tmp_path),
        "CLGEMM_CACHE_DIR": str(tmp_path / "cache"),
    }
    platforms = ast.literal_eval(run(code, **variables))
    assert platforms
    assert set(platforms) <= {d.platform for d in present().devices}
    # A program that asks pyopencl finds the runtime, too.
    code = "import clgemm, pyopencl; print(len(pyopencl.get_platforms()))"
    assert int(run(code, **variables)) >= 1


# PoCL's disk space, the number of its threads, and their pinning.


@pytest.fixture
def full(device, monkeypatch):
    """Return a PoCL device in a context of its own, on a disk that is full."""
    if not device.platform.startswith(POCL):
        pytest.skip("only PoCL compiles on disk")
    monkeypatch.setenv("POCL_CACHE_DIR", "/full/folder")
    monkeypatch.setattr(runtimes.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    return clgemm.Device(device.cl_device)


def test_a_full_disk_is_named(full, monkeypatch):
    """If PoCL's disk is full, the error names folder, reason and remedy in short."""
    said = r"no space left in /full/folder, where PoCL compiles: .*POCL_CACHE_DIR"
    with clgemm.device(full), pytest.raises(OSError, match=said) as caught:
        clgemm.sgemm(1.0, [[2.0]], [[3.0]])
    assert caught.value.errno == errno.ENOSPC
    assert "-D" not in str(caught.value)
    free = [2**30, 0]  # it fills up amid the build
    monkeypatch.setattr(runtimes.shutil, "disk_usage", lambda _: SimpleNamespace(free=free.pop(0)))
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
    monkeypatch.setattr(runtimes, "_replaced", "")
    monkeypatch.setenv("POCL_CACHE_DIR", "")  # so that it is restored
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("CLGEMM_CACHE_DIR", str(tmp_path / "cache"))
    runtimes.find_space()
    assert os.environ["POCL_CACHE_DIR"] == str(tmp_path / "cache" / "pocl")
    for _ in range(2):
        with caplog.at_level(logging.WARNING), runtimes.compiling(POCL):
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
        runtimes.find_space()
        is_used = str(tmp_path) in os.environ["POCL_CACHE_DIR"]
        assert is_used == (allowed == 0o700)
    monkeypatch.setenv("POCL_CACHE_DIR", "/the/users/own")
    runtimes.find_space()
    assert os.environ["POCL_CACHE_DIR"] == "/the/users/own"
    monkeypatch.setenv("POCL_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "free"))
    runtimes.find_space()
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
    monkeypatch.setattr(runtimes, "QUOTA", str(file))
    if quota is not None:
        file.write_text(quota + "\n")
    with runtimes.pinned_threads():
        assert tuple(map(os.environ.get, NAMES)) == seen
    assert tuple(map(os.environ.get, NAMES)) == settings


def test_the_setting_of_threads_ends_once_the_drivers_have_started(monkeypatch):
    """Child processes of the program do not inherit it."""
    for name in (runtimes.POCL_AFFINITY, runtimes.POCL_THREADS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(runtimes, "PINNED_CORES", 2**20)
    with contextlib.ExitStack() as pinned:
        monkeypatch.setattr(runtimes, "_pinned", pinned)
        before = dict(os.environ)
        pinned.enter_context(runtimes.pinned_threads())
        runtimes.finish_start()
        assert dict(os.environ) == before
