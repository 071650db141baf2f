"""Kernels without an event, and transfers for which a thread keeps the interpreter's lock.

pyopencl makes an event for each kernel, and lets other threads run while it enqueues a transfer.
Among threads that copy, it takes ten times as long as the driver to get the lock back. So this
calls OpenCL itself, through the loader that pyopencl uses.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl._cl

SVM_FINE_GRAIN_SYSTEM = 0x11B7  # CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM

_pointer, _size, _number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32


def _loaders_function(name: str, *arguments: Any) -> Any:
    """Return a function of OpenCL, or None where the loader's functions are not to be found."""
    try:
        # Symbols of a library are looked up in those that it needs, too. Other Python threads wait
        # during a call.
        function = getattr(ctypes.PyDLL(pyopencl._cl.__file__), name)
    except (AttributeError, OSError, TypeError):
        return None
    function.restype = ctypes.c_int32
    if arguments:
        function.argtypes = arguments
    return function


_function = _loaders_function("clEnqueueNDRangeKernel")
_set_info = _loaders_function("clSetKernelExecInfo", _pointer, _number, _size, _pointer)
_write, _read = (
    _loaders_function(
        f"clEnqueue{name}Buffer",
        *(_pointer, _pointer, _number, _size, _size, _pointer, _number, _pointer, _pointer),
    )
    for name in ("Write", "Read")
)


def has_direct_calls() -> bool:
    """Return whether kernels can be enqueued without an event."""
    return _function is not None


def allow_addresses(kernel: cl.Kernel) -> None:
    """Let a kernel take addresses in place of buffers.

    Where that fails, the kernel refuses them, as the check of the device finds.
    """
    if _set_info is not None:
        yes = _number(1)
        size_bytes = ctypes.sizeof(yes)
        _set_info(kernel.int_ptr, SVM_FINE_GRAIN_SYSTEM, size_bytes, ctypes.byref(yes))


def enqueue_transfer(
    queue: cl.CommandQueue,
    is_up: bool,
    buffer: cl.Buffer,
    offset_bytes: int,
    host: npt.NDArray[np.float32],
    before: Sequence[cl.Event],
) -> cl.Event:
    """Enqueue a transfer between host memory and a buffer, and return its event.

    The caller keeps the host's memory until the transfer is over.

    Parameters
    ----------
    is_up : bool
        Whether it goes from the host to the buffer.
    offset_bytes : int
        Where the buffer's part begins.
    host : float32 array
        One run of memory.
    before : sequence of pyopencl.Event
        What has to be over first.
    """
    function = _write if is_up else _read
    if function is not None:
        count, event = len(before), ctypes.c_void_p()
        events = (_pointer * count)(*(each.int_ptr for each in before)) if count else None
        start = host.__array_interface__["data"][0]
        code = function(
            *(queue.int_ptr, buffer.int_ptr, 0, offset_bytes, host.nbytes, start),
            *(count, events, ctypes.byref(event)),
        )
        if code == 0 and event.value:
            return cl.Event.from_int_ptr(event.value, False)
    # This raises the error, if there is one, and frees memory before it gives up.
    ends: Any = (buffer, host) if is_up else (host, buffer)
    offset: Any = {"dst_offset" if is_up else "src_offset": offset_bytes}
    return cl.enqueue_copy(queue, *ends, is_blocking=False, wait_for=list(before), **offset)


def enqueuer(
    queue: cl.CommandQueue, kernel: cl.Kernel, work_items: int, group: int
) -> Callable[[], int]:
    """Return a function that enqueues a kernel, with the arguments that are set then.

    Parameters
    ----------
    work_items, group : int
        The number of work-items, in all and in a work-group.

    Returns
    -------
    callable
        It returns OpenCL's error code, 0 for success. It keeps neither the queue nor the kernel.
    """
    return functools.partial(
        _function,
        *(_pointer(queue.int_ptr), _pointer(kernel.int_ptr), _number(1)),
        *(None, ctypes.byref(_size(work_items)), ctypes.byref(_size(group))),
        *(_number(0), None, None),
    )
