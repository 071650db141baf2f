"""OpenCL runtimes: the registration of those that pip installed, their start, and what PoCL needs.

An OpenCL loader finds a runtime through a file ``*.icd`` that names the runtime's library. It reads
these files once, when a process first lists its platforms. Wheels cannot put files where loaders
look, so `register` does it when pyopencl is imported.

`start_drivers` starts the drivers beside the imports that a product on a device takes. pyopencl
keeps the interpreter's lock while drivers start. So a thread calls OpenCL itself, through the
loader that pyopencl uses.

PoCL needs disk space to compile in, and threads that are as many as processors.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import errno
import functools
import hashlib
import importlib.util
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clgemm.core.cache import (
    is_private,
    is_writable,
    kept_folder,
    nearest,
    replace,
    temporary_folder,
    warn_once,
)
from clgemm.core.host import usable_processors

if TYPE_CHECKING:
    import pyopencl as cl

VENDORS, FILE_NAMES, HOME = "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "PYOPENCL_HOME"
# The loader in pyopencl's Linux wheel always reads $PYOPENCL_HOME/.libs/*.icd.
ICD_FOLDER = ".libs"
SYSTEM_FOLDERS = ("OPENCL_VENDOR_PATH", "/etc/OpenCL/vendors")  # a variable and its default
# The runtime's library in each package. Intel's wheel has an FPGA emulator too, which is not used.
LIBRARIES = {
    "pocl-binary-distribution": re.compile(r"libpocl[-.\w]*\.so"),
    "intel-opencl-rt": re.compile(r"libintelocl\.so|intelocl64\.dll"),
}


class Runtime(NamedTuple):
    """An OpenCL runtime that pip installed in this environment."""

    package: str  # its name on PyPI
    version: str
    library: Path  # what an OpenCL loader opens


@functools.cache
def installed() -> tuple[Runtime, ...]:
    """Return the runtimes that pip installed in this environment."""
    from importlib import metadata  # it takes long to import

    found = []
    for package, pattern in LIBRARIES.items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            distribution = metadata.distribution(package)
            for file in distribution.files or ():
                library = Path(str(distribution.locate_file(file))).resolve()
                # Match the name of a symbolic link: its target may carry a version.
                if pattern.fullmatch(file.name) and library.exists():
                    found.append(Runtime(package, distribution.version, library))
                    break
    return tuple(found)


class Registration(NamedTuple):
    """The result of `register`."""

    runtimes: tuple[Runtime, ...]  # those that the loader does not find by itself
    how: str  # how they are registered, or why none is


_pyopencl = importlib.util.find_spec("pyopencl")
assert _pyopencl is not None
assert _pyopencl.origin is not None
_own_home = str(Path(_pyopencl.origin).absolute().parent)  # pyopencl sets PYOPENCL_HOME to this
_given_names = os.environ.get(FILE_NAMES, "")
_registered = Registration((), "not yet")


def registration() -> Registration:
    """Return the result of the last call of `register`."""
    return _registered


def register() -> None:
    """Register the runtimes that pip installed with pyopencl's OpenCL loader.

    This sets environment variables of the process, which the loader reads when it first lists
    platforms. Nothing is registered if the user has set OCL_ICD_VENDORS, or PYOPENCL_HOME to
    another folder than pyopencl's own. To OCL_ICD_FILENAMES the runtimes are added.
    """
    global _registered
    _withdraw()
    try:
        _registered = _register()
    except OSError as error:  # no folder can be written, not even a temporary one
        _registered = Registration((), f"failed: {error}")


def _register() -> Registration:
    if vendors := os.environ.get(VENDORS):
        return Registration((), f"left to {VENDORS}={vendors}")
    if os.environ.get(HOME, _own_home) != _own_home:
        return Registration((), f"left to {HOME}={os.environ[HOME]}")
    if not (missing := _missing()):
        return Registration((), "nothing to do")
    if _reads_home():
        folder = _icd_home(missing)
        os.environ[HOME] = str(folder)
        return Registration(missing, f"by {HOME}={folder}")
    names = [_given_names, *(str(runtime.library) for runtime in missing)]
    os.environ[FILE_NAMES] = os.pathsep.join(filter(None, names))
    if sys.platform == "win32":  # Windows searches PATH for the libraries that a library needs
        folders = {str(runtime.library.parent) for runtime in missing}
        path = [p for p in os.environ.get("PATH", "").split(os.pathsep) if p not in folders]
        os.environ["PATH"] = os.pathsep.join([*folders, *path])
    return Registration(missing, f"by {FILE_NAMES}={os.environ[FILE_NAMES]}")


def _withdraw() -> None:
    """Restore the variables from before the last call, unless they have changed since."""
    for variable, before in ((HOME, _own_home), (FILE_NAMES, _given_names)):
        if _registered.runtimes and _registered.how == f"by {variable}={os.environ.get(variable)}":
            if before:
                os.environ[variable] = before
            else:
                del os.environ[variable]


def _reads_home() -> bool:
    """Return whether the loader is the one in pyopencl's Linux wheel, which reads PYOPENCL_HOME."""
    return sys.platform == "linux" and any(_wheel_folder().glob("libOpenCL*"))


def _wheel_folder() -> Path:
    return Path(_own_home) / ICD_FOLDER


def _missing() -> tuple[Runtime, ...]:
    """Return the installed runtimes that the loader does not find by itself."""
    if not installed():
        return ()
    try:
        known = {library for _, library in icd_files()}
    except OSError:  # the loader cannot read it either
        known = set()
    return tuple(
        runtime
        for runtime in installed()
        if not known & {str(runtime.library), runtime.library.name}
    )


def icd_files() -> list[tuple[Path, str]]:
    """Return the ICD files that a loader on Linux reads, each with the library that it names.

    Raises
    ------
    OSError
        If a folder or file cannot be read.
    """
    variable, default = SYSTEM_FOLDERS
    vendors = os.environ.get(VENDORS)
    system = Path(vendors or os.environ.get(variable) or default)
    if system.is_dir():
        found = _read_folder(system)
    elif vendors:  # one ICD file, or one library
        found = [(system, _library_in(system) if system.suffix == ".icd" else vendors)]
    else:
        found = []
    return found + _read_folder(Path(os.environ.get(HOME, _own_home)) / ICD_FOLDER)


def _read_folder(folder: Path) -> list[tuple[Path, str]]:
    return [(file, _library_in(file)) for file in sorted(folder.glob("*.icd"))]


def _library_in(file: Path) -> str:
    """Return the library that an ICD file names, as an absolute path if it is beside the file."""
    name = file.read_text(encoding="utf-8", errors="replace").strip()
    beside = file.parent / name
    return str(beside.resolve() if name and beside.is_file() else name)


def _icd_home(missing: tuple[Runtime, ...]) -> Path:
    """Return a folder for PYOPENCL_HOME that registers these runtimes and pyopencl's own.

    Its name is a hash of its contents, so that the processes of an environment share a folder and
    different environments do not.
    """
    own = [library for _, library in _read_folder(_wheel_folder())]
    files = {
        f"{i:02}.icd": library
        for i, library in enumerate([*own, *(str(runtime.library) for runtime in missing)])
    }
    digest = hashlib.sha256(repr(files).encode()).hexdigest()[:16]
    folder = kept_folder() / "runtimes" / digest
    try:
        _fill(folder, files)
    except OSError:  # such as a full disk
        folder = _temporary_folder(digest)
        _fill(folder, files)
    return folder


@functools.cache
def _temporary_folder(_: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="clgemm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _fill(folder: Path, files: dict[str, str]) -> None:
    """Let a folder hold these ICD files alone; what it holds already is not written again."""
    inside = folder / ICD_FOLDER
    inside.mkdir(parents=True, exist_ok=True)
    texts = {
        file.name: file.read_text(encoding="utf-8", errors="replace")
        for file in inside.glob("*.icd")
    }
    for name in texts.keys() - files.keys():
        (inside / name).unlink(missing_ok=True)  # another process may have removed it
    for name, library in files.items():
        if texts.get(name) != library:
            replace(inside / name, library.encode())


LEAST_BYTES = 2**20  # about twice a program's source, bitcode and machine code
ENOUGH_BYTES = 2**24  # of a folder that is to hold all programs
FOLDER_VARIABLE = "POCL_CACHE_DIR"
PINNED_CORES = 4
# Variables of PoCL, which reads them when it starts.
POCL_AFFINITY, POCL_THREADS = "POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT"
QUOTA = "/sys/fs/cgroup/cpu.max"  # a container's: microseconds of each period, or "max"

_replaced = ""  # why PoCL has another folder than its own


def find_space() -> None:
    """Give PoCL another folder if its own cannot be written: without one, it has no devices.

    It must be called before platforms are listed. A folder that the user has named is left alone.
    """
    global _replaced
    folder = pocl_folder()
    if folder is None or os.environ.get(FOLDER_VARIABLE) or _is_usable(folder):
        return
    kept = kept_folder()
    for place in (kept, temporary_folder(), temporary_folder("/dev/shm")):
        if _is_usable(place) and (place is kept or is_private(place)):
            os.environ[FOLDER_VARIABLE] = str(place / "pocl")
            _replaced = f"{folder} cannot be written: PoCL compiles in {place / 'pocl'}"
            return


def _is_usable(folder: Path) -> bool:
    return is_writable(folder) and _free_bytes(folder) >= ENOUGH_BYTES


def _free_bytes(folder: Path) -> float:
    """Return the free space of the disk of a folder, which need not exist; infinity if unknown."""
    try:
        return shutil.disk_usage(nearest(folder)).free
    except (OSError, StopIteration):
        return math.inf


@contextlib.contextmanager
def compiling(platform: str) -> Iterator[None]:
    """Turn a full disk into one clear error while programs are built in a ``with`` block.

    PoCL writes to its folder in each build. If it cannot, its compiler prints "LLVM ERROR" and ends
    the process, or the build fails with an empty log.

    Parameters
    ----------
    platform : str
        The name of the device's platform.

    Raises
    ------
    OSError
        ENOSPC, with the folder, if the disk where PoCL compiles is full.
    """
    folder = pocl_folder() if platform.startswith("Portable Computing Language") else None
    if folder is None:
        yield
        return
    if _replaced:
        warn_once(_replaced)
    _require_space(folder)
    import pyopencl as cl

    try:
        yield
    except cl.Error as error:
        _require_space(folder, error)  # a full disk is the cause, whatever the log says
        raise


def pocl_folder() -> Path | None:
    """Return the folder that PoCL compiles in, or None if it is unknown."""
    if os.name != "posix":
        return None
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "pocl" / "kcache"
    home = os.environ.get("HOME")
    return Path(home, ".cache", "pocl", "kcache") if home else Path("/tmp/pocl/kcache")


def _require_space(folder: Path, cause: cl.Error | None = None) -> None:
    if (free := _free_bytes(folder)) < LEAST_BYTES:
        raise OSError(
            errno.ENOSPC,
            f"no space left in {folder}, where PoCL compiles: {free / 1024:,.0f} KiB are free and "
            f"{LEAST_BYTES // 1024:,} KiB are needed; free some, or set {FOLDER_VARIABLE} to "
            "another folder",
        ) from cause


@contextlib.contextmanager
def pinned_threads() -> Iterator[None]:
    """Set up PoCL's threads, if PoCL starts in the ``with`` block.

    Where the process may not use every core, or a container limits its time, there are as many
    threads as it may use at once: PoCL itself counts the machine's. Otherwise each thread is pinned
    to a core. Without pinning, two threads often share a core for the first milliseconds, and a
    small product takes no longer than that. Nothing is pinned on machines with many cores, where
    the system can move a thread away from a core that another program needs. What the user has set
    stays.
    """
    usable, cores = _usable(), os.cpu_count() or 1
    wanted = {}
    if usable < cores:
        wanted[POCL_THREADS] = str(usable)
    elif usable <= PINNED_CORES and hasattr(os, "sched_getaffinity"):
        wanted[POCL_AFFINITY] = "1"
    wanted = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            del os.environ[name]


def _usable() -> int:
    """Return how many processors this process may use at once."""
    usable = usable_processors()
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path(QUOTA).read_text("ascii").split()
        usable = min(usable, max(1, math.ceil(int(quota) / int(period))))
    return usable


GPU, ALL = 1 << 2, 0xFFFFFFFF  # CL_DEVICE_TYPE_*
FEW = 64  # platforms, and devices of one
START_SECONDS = 30.0

_lock = _thread.allocate_lock()  # held while the thread runs
_contexts: dict[int, int] = {}  # a context that nobody has taken, by its device's address
_pinned = contextlib.ExitStack()  # of `pinned_threads`, until the drivers have started
_has_begun = False


def start_drivers() -> None:
    """Start OpenCL's drivers, once a process, in a thread that the program does not see."""
    global _has_begun
    if _has_begun:
        return
    import pyopencl

    _has_begun = True
    # C++ aborts the process if a thread of a driver goes on while it ends.
    atexit.register(finish_start)
    from clgemm.hardware.forks import opened

    with contextlib.suppress(AttributeError, OSError, RuntimeError):
        library = ctypes.CDLL(pyopencl._cl.__file__)
        calls = library.clGetPlatformIDs, library.clGetDeviceIDs, library.clCreateContext
        opened()
        _pinned.enter_context(pinned_threads())
        _lock.acquire()
        try:
            _thread.start_new_thread(_open_devices, calls)
        except RuntimeError:
            _lock.release()
            raise


def _open_devices(platform_ids: Any, device_ids: Any, create_context: Any) -> None:
    """List all devices, and make a context of the first GPU: that takes its driver long."""
    try:
        platforms, count = (ctypes.c_void_p * FEW)(), ctypes.c_uint()
        if platform_ids(FEW, platforms, ctypes.byref(count)):
            return
        for number in range(min(count.value, FEW)):
            found, here = (ctypes.c_void_p * FEW)(), ctypes.c_uint()
            platform, kind = ctypes.c_void_p(platforms[number]), ctypes.c_ulonglong(GPU)
            device_ids(platform, ctypes.c_ulonglong(ALL), FEW, found, ctypes.byref(here))
            if _contexts or device_ids(platform, kind, FEW, found, ctypes.byref(here)):
                continue
            if here.value and found[0]:
                create_context.restype = ctypes.c_void_p
                first, error = (ctypes.c_void_p * 1)(found[0]), ctypes.c_int()
                made = create_context(None, 1, first, None, None, ctypes.byref(error))
                if made and not error.value:
                    _contexts[int(found[0])] = made
    finally:
        _lock.release()


def finish_start() -> None:
    """Wait until the drivers have started, if they are starting."""
    if _lock.acquire(timeout=START_SECONDS):  # not for ever: a driver may hang
        _lock.release()
    _pinned.close()


def context_of(cl_device: Any) -> Any:
    """Return a context of a device that is already made, or None; each is returned once."""
    if not _contexts:
        return None
    finish_start()
    import pyopencl as cl

    made = _contexts.pop(cl_device.int_ptr, None)
    return None if made is None else cl.Context.from_int_ptr(made, False)


def _before_fork() -> None:
    """Let the thread end before the process forks: the child would have its half of the work."""
    if _has_begun:
        finish_start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
