"""Enqueueing of kernels without an event.

pyopencl makes an event for each kernel that it enqueues. This calls OpenCL itself, through the
loader that pyopencl uses.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import pyopencl as cl
import pyopencl._cl

__all__ = ["enqueuer", "has_direct_calls"]


def _loaders_function() -> Any:
    """Return clEnqueueNDRangeKernel, or None where the loader's functions are not to be found."""
    try:
        # Symbols of a library are looked up in those that it needs, too. As in pyopencl's call,
        # other Python threads wait meanwhile.
        function = ctypes.PyDLL(pyopencl._cl.__file__).clEnqueueNDRangeKernel
    except (AttributeError, OSError, TypeError):
        return None
    function.restype = ctypes.c_int32
    return function


_function = _loaders_function()


def has_direct_calls() -> bool:
    """Tell whether kernels can be enqueued without an event."""
    return _function is not None


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
    size = ctypes.c_size_t
    return functools.partial(
        _function,
        *(ctypes.c_void_p(queue.int_ptr), ctypes.c_void_p(kernel.int_ptr), ctypes.c_uint32(1)),
        *(None, ctypes.byref(size(work_items)), ctypes.byref(size(group))),
        *(ctypes.c_uint32(0), None, None),
    )
