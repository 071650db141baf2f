"""Programs and kernels: each program is built once for a device and config.

Its binary is kept on disk, and later processes load it. A file is written atomically, and its name
is a hash of everything that determines the program. So no lock is needed, and a process that dies
leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import sqlite3
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import platformdirs
import pyopencl as cl
from pyopencl.characterize import has_src_build_cache

from clgemm.core.cache import is_writable, make_room, program_cache_folder, replace, warn_once
from clgemm.core.config import KernelConfig
from clgemm.core.threads import non_reentrant
from clgemm.hardware.device import Device
from clgemm.hardware.runtimes import compiling
from clgemm.kernels.sources import OPTIONS, text_of

log = logging.getLogger(__name__)

SUFFIX = ".clbin"
# Limits of the folder. The least recently used files are removed.
MOST_FILES = 2000
MOST_BYTES = 2**28

_build_lock = threading.RLock()  # reentrant: a nested call would wait for itself
# By config, and by whether the launch is conditional.
_Variants: TypeAlias = dict[tuple[KernelConfig, bool], cl.Program]
_programs: WeakKeyDictionary[Device, _Variants] = WeakKeyDictionary()


@non_reentrant
def kernel(device: Device, config: KernelConfig, conditional: bool = False) -> cl.Kernel:
    """Return a new kernel for a config on a device; the first call builds the program.

    A kernel holds its arguments, so each user needs a kernel of its own.

    Parameters
    ----------
    conditional : bool, optional
        As in `clgemm.core.plan.Step`.

    Raises
    ------
    ValueError
        If the config breaks a constraint of its family or a limit of the device.
    pyopencl.RuntimeError
        If the device's compiler reports an error; the message includes its log.
    NestedCallError
        If this thread is already in such a call.
    """
    program = _program(device, config, conditional)
    _require_pyopencls_cache()
    try:
        _keep_invokers()
        return cl.Kernel(program, config.entry)
    except (OSError, sqlite3.Error) as error:
        _without_pyopencls_cache(str(error))
        _keep_invokers()
        return cl.Kernel(program, config.entry)


@functools.cache
def _require_pyopencls_cache() -> None:
    """See to it that pyopencl makes kernels, also where its cache on disk cannot be written."""
    folder = Path(platformdirs.user_cache_dir("pytools", "pytools"))
    if not is_writable(folder):
        _without_pyopencls_cache(f"{folder} cannot be written")


@functools.cache
def _keep_invokers() -> None:
    """Have pyopencl keep in memory what it makes for a kernel's name and number of arguments.

    It reads that from its cache on disk for each new kernel, a quarter of what a new shape takes.
    """
    from pyopencl import invoker  # which opens that cache

    original: Any = invoker.generate_enqueue_and_set_args
    kept: dict[tuple[Any, ...], Any] = {}

    def generate(*arguments: Any, **keywords: Any) -> Any:
        if len(arguments) != 4 or arguments[3] is not None:  # the types of a user's arguments
            return original(*arguments, **keywords)
        key = (*arguments, *sorted((n, x) for n, x in keywords.items() if n != "devs"))
        if key not in kept:
            kept[key] = original(*arguments, **keywords)
        return kept[key]

    invoker.generate_enqueue_and_set_args = generate


def _without_pyopencls_cache(reason: str) -> None:
    warn_once(f"pyopencl's cache on disk cannot be used ({reason}): new kernels take longer")
    cl._PYOPENCL_NO_CACHE = True  # as the variable PYOPENCL_NO_CACHE when pyopencl is imported


def _program(device: Device, config: KernelConfig, conditional: bool) -> cl.Program:
    with _build_lock:
        programs = _programs.setdefault(device, {})
        if (config, conditional) not in programs:
            config.require(device.limits)
            log.debug("building %s on %s", config, device.name)
            macros = (*config.macros(), ("GATED", 1)) if conditional else config.macros()
            source = text_of(type(config))
            options = *config.build_options, *device.limits.build_options
            programs[config, conditional] = build(device, source, macros, config.standard, options)
        return programs[config, conditional]


def build(
    device: Device,
    source: str,
    macros: Sequence[tuple[str, int]],
    standard: str = "CL1.2",
    extra: Sequence[str] = (),
) -> cl.Program:
    """Return a program for a device: from the cache on disk, or built and then cached.

    Parameters
    ----------
    standard : str
        The version of OpenCL C, such as ``"CL1.2"``.
    extra : sequence of str, optional
        Options that only this device's compiler knows.

    Raises
    ------
    pyopencl.RuntimeError
        If the device's compiler reports an error; the message includes its log.
    OSError
        If the disk where PoCL compiles is full.
    """
    options = [f"-cl-std={standard}", *OPTIONS]
    options += [f"-D{name}={value}" for name, value in macros] + list(extra)
    if not _are_cached(device.cl_device):
        return _built(cl.Program(device.context, source), device, options)
    key = key_of(device.cl_device, source, options)
    if (binary := _load(key)) is not None:
        try:
            program = cl.Program(device.context, [device.cl_device], [binary])
            return _built(program, device, options)
        except cl.Error as error:
            log.debug("the driver refuses a cached binary: %s", error)
    program = cl.Program(device.context, source)
    program = _built(program, device, options)
    if binary := _binary(program, device):
        _store(key, binary)
    return program


def _built(program: cl.Program, device: Device, options: list[str]) -> cl.Program:
    with compiling(device.platform), warnings.catch_warnings():
        # Some compilers write a log on success too, and pyopencl warns about it. Reading the
        # address keeps the program out of pyopencl's cache, whose lock outlives a dead process.
        # pyopencl warns about that too.
        warnings.simplefilter("ignore")
        _ = program.int_ptr
        program.build(options, devices=[device.cl_device])
    return program


def _binary(program: cl.Program, device: Device) -> bytes | None:
    """Return a built program's binary for a device; None if the driver has none."""
    try:
        made: Any = zip(program.devices, program.binaries, strict=True)
        return next((binary for d, binary in made if d == device.cl_device), None)
    except cl.Error as error:
        log.debug("no binary: %s", error)
        return None


def _are_cached(device: cl.Device) -> bool:
    """Return whether clgemm caches a device's binaries: some drivers have a cache of their own."""
    switched_off = getattr(cl, "_PYOPENCL_NO_CACHE", False)  # set by the environment
    return not switched_off and not has_src_build_cache(device)


def key_of(device: cl.Device, source: str, options: Sequence[str]) -> str:
    """Return the name of a program's binary: a hash of its source, options, compiler and device."""
    platform = device.platform
    parts = (
        *(cl.VERSION_TEXT, platform.name, platform.vendor, platform.version),
        *(device.vendor, device.name, device.version, device.driver_version, device.extensions),
        *(os.environ.get("PYOPENCL_BUILD_OPTIONS", ""), *options, source),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _load(key: str) -> bytes | None:
    """Return a cached binary; None if there is none, or if its file was damaged."""
    path = _path(key)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    seal, binary = content[: len(_seal(key, b""))], content[len(_seal(key, b"")) :]
    if not binary or seal != _seal(key, binary):
        log.debug("%s is damaged", path)
        return None
    with contextlib.suppress(OSError):  # the folder may be read-only
        os.utime(path)
    return binary


def _store(key: str, binary: bytes) -> None:
    """Store a binary; log one warning if it cannot be written."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = _seal(key, binary) + binary
        make_room(path.parent, SUFFIX, MOST_FILES, MOST_BYTES, len(content))
        replace(path, content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        warn_once(f"compiled programs are not kept: {reason} in {path.parent}")


def _path(key: str) -> Path:
    return program_cache_folder() / (key + SUFFIX)


def _seal(key: str, binary: bytes) -> bytes:
    """Return the checksum at the start of a file; a driver may crash on a damaged binary."""
    return hashlib.sha256(key.encode() + binary).digest()
