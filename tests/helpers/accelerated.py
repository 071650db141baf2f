"""Operands and checks for tests of accelerated NumPy."""

from __future__ import annotations

import contextlib
import ctypes
import sys

import numpy as np

from clgemm.accel import enabled, patches, report
from clgemm.side import preparation

RANDOM = np.random.default_rng(0)
TYPE_CALL = 128  # the offset of __call__'s slot in CPython's PyTypeObject
VERSION = 1 << 19  # a flag that CPython sets on types when it looks up a method


def integers(*shape):
    """Return an array of small positive integers, whose sums are exact in any order."""
    return RANDOM.integers(1, 9, shape).astype(np.float32)


A, B = integers(30, 20), integers(20, 40)
EXACT = A.astype(np.float64) @ B.astype(np.float64)
SQUARE, OTHER = integers(32, 32), integers(32, 32)
SQUARE_EXACT = SQUARE.astype(np.float64) @ OTHER.astype(np.float64)


@contextlib.contextmanager
def offloading(calls=None):
    """Accelerate products of all sizes, and assert how many ran on the device."""
    with enabled(threshold=0):
        yield
    offloaded = report().offloaded
    assert offloaded == calls if calls is not None else offloaded > 0, report()


def numpy_contents():
    """Return the contents of all patched places, including pointers and C slots."""
    offset = ctypes.c_ssize_t.from_address(id(np.ufunc) + patches.TYPE_VECTORCALL_OFFSET).value
    pointers = [
        ctypes.c_void_p.from_address(address).value
        for address in (id(np.matmul) + offset, id(np.add) + offset, id(np.ufunc) + TYPE_CALL)
    ]
    descriptors = [
        owner.__dict__[name]
        for owner, name in (
            (np.ndarray, "__matmul__"),
            (np.ndarray, "dot"),
            (np.ufunc, "__call__"),
        )
    ]
    slots = [
        id(x)
        for kind in (np.ndarray, np.memmap, np.matrix, np.ma.MaskedArray)
        for x in (kind.__matmul__, kind.dot)
    ]
    functions = [np.dot, np.dot._implementation, np.inner, np.inner._implementation, np.matmul]
    flags = [kind.__flags__ & ~VERSION for kind in (np.ndarray, np.ufunc)]
    return pointers, descriptors, slots, functions, sys.unraisablehook, flags


def forget_products():
    """Clear what is known of products and of the device, as a new process would."""
    preparation.state = preparation.State()
    for known in (preparation.entries, preparation.running, preparation.may_hold):
        known.clear()
    preparation.clock.__init__()


def expect(host_us, device_us):
    """Let the only product that was made so far take these times; return what is known of it."""
    (entry,) = preparation.entries.values()
    entry.host.us, entry.device.us, entry.estimate_us = host_us, 0.0, device_us
    entry.is_ready, entry.remaining = True, 0
    return entry


class PlantedError(Exception):
    """An exception of the program, such as that of a signal's handler."""
