"""Reasons why an OpenCL device is missing, and what the user can do about it."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path

from clgemm.hardware import runtimes
from clgemm.hardware.device import Device, present

EXTRA = "pip install 'clgemm[cpu]'"
X86 = ("x86_64", "AMD64")


def remedy(broken: Device | None = None) -> str:
    """Return what a user can do on this machine to get an OpenCL device that works.

    Parameters
    ----------
    broken : Device, optional
        The device that does not work.
    """
    if broken is not None and broken.kind != "CPU":
        return "update the driver of this device"
    if sys.platform in ("linux", "win32") and platform.machine() in X86:
        has_all = {"intel-opencl-rt"} <= {runtime.package for runtime in runtimes.installed()}
        if not has_all:
            return f"{EXTRA} installs a runtime for this processor; a GPU's comes with its driver"
        if sys.platform == "win32":
            return "update intel-opencl-rt"
    if sys.platform == "linux":
        return (
            "install PoCL from the distribution (apt-get install pocl-opencl-icd) or from "
            "conda-forge (pocl); a GPU's runtime comes with its driver"
        )
    if sys.platform == "darwin":
        return "install pyopencl, pocl and ocl_icd_wrapper_apple from conda-forge"
    return "install the device maker's OpenCL driver; PyPI has no OpenCL runtime for this system"


def findings() -> list[str]:
    """Return the problems that keep OpenCL devices from being listed, one a line."""
    lines = []
    vendors = os.environ.get(runtimes.VENDORS)
    if vendors and not Path(vendors).exists():
        return [f"{runtimes.VENDORS}={vendors}: no such file or folder"]
    lines += [f"the platform {name!r} has no device" for name in present().empty]
    try:
        files = runtimes.icd_files() if sys.platform == "linux" else []
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return [*lines, f"{error.filename}: {error.strerror}"]
    loaded = {_without_version(line.split()[-1]) for line in maps.splitlines() if "/" in line}
    for file, library in files:
        if _without_version(library) in loaded:
            continue
        lines.append(f"{file}: {_why_not_loaded(library)}")
    return lines


def _without_version(library: str) -> str:
    """Return a library's file name up to ``.so``, since an ICD file may name a link to it."""
    return Path(library).name.partition(".so")[0]


@functools.cache  # if no device works, each large product calls this
def _why_not_loaded(library: str) -> str:
    """Return the system loader's message about a library, which a child process loads."""
    command = [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", library]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if child.returncode:
        said = child.stderr.strip().splitlines()
        return said[-1] if said else f"loading {library} ended with status {child.returncode}"
    return (
        "not in use: pyopencl listed its platforms before clgemm was imported, or this library is "
        "not an OpenCL runtime"
    )
