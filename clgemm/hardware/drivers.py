"""The start of OpenCL's drivers, beside the imports that a product on a device takes.

pyopencl keeps the interpreter's lock while drivers start. So a thread calls OpenCL itself, through
the loader that pyopencl uses.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import os
from typing import Any

__all__ = ["begin", "context_of", "finish"]

GPU, ALL = 1 << 2, 0xFFFFFFFF  # CL_DEVICE_TYPE_*
FEW = 64  # platforms, and devices of one
START_SECONDS = 30.0

_lock = _thread.allocate_lock()  # held while the thread runs
_contexts: dict[int, int] = {}  # a context that nobody has taken, by its device's address
_has_begun = False


def begin() -> None:
    """Start the drivers, once a process, in a thread that the program does not see."""
    global _has_begun
    if _has_begun:
        return
    import pyopencl

    _has_begun = True
    atexit.register(finish)  # C++ aborts the process if a thread of a driver goes on while it ends
    from clgemm.hardware.forks import opened
    from clgemm.hardware.pocl_threads import pinned_threads

    with contextlib.suppress(AttributeError, OSError, RuntimeError):
        library = ctypes.CDLL(pyopencl._cl.__file__)
        calls = library.clGetPlatformIDs, library.clGetDeviceIDs, library.clCreateContext
        opened()
        pinned = pinned_threads()
        pinned.__enter__()
        _lock.acquire()
        try:
            _thread.start_new_thread(_start_drivers, calls)
        except RuntimeError:
            _lock.release()
            raise
        finally:
            _unpin.append(pinned)


_unpin: list[Any] = []


def _start_drivers(platform_ids: Any, device_ids: Any, create_context: Any) -> None:
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


def finish() -> None:
    """Wait until the drivers have started, if they are starting."""
    if _lock.acquire(timeout=START_SECONDS):  # not for ever: a driver may hang
        _lock.release()
    while _unpin:
        _unpin.pop().__exit__(None, None, None)


def context_of(cl_device: Any) -> Any:
    """Return a context of a device that is already made, or None; each is returned once."""
    if not _contexts:
        return None
    finish()
    import pyopencl as cl

    made = _contexts.pop(cl_device.int_ptr, None)
    return None if made is None else cl.Context.from_int_ptr(made, False)


def _before_fork() -> None:
    """Let the thread end before the process forks: the child would have its half of the work."""
    if _has_begun:
        finish()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
