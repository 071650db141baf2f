"""Operands of small whole numbers, whose products are exact in float32."""

from __future__ import annotations

import numpy as np
import pyopencl.array as cl_array

import clgemm

RNG = np.random.default_rng(8)


def whole(*shape):
    """Return an array of small integers, whose products are exact in any order of summation."""
    return RNG.integers(-8, 9, shape).astype(np.float32)


FUNCTIONS = {
    "matmul": lambda a, b, out: clgemm.matmul(a, b, out=out),
    "dot": lambda a, b, out: clgemm.dot(a, b, out=out),
    "sgemm": lambda a, b, out: clgemm.sgemm(1.0, a, b, 0.0, out, overwrite_c=1, order="C"),
}


def got(x):
    """Return the values of a result as a NumPy array."""
    return x.get() if isinstance(x, cl_array.Array) else x
