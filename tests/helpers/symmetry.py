"""Random products of matrices by their own transposes, which must be exactly symmetric.

``python tests/helpers/symmetry.py --minutes 10`` searches long.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import numpy as np
import pyopencl.array as cl_array
from contract import chosen

import clgemm

DTYPES = [np.float32] * 6 + [np.int8, np.uint16, np.int32, np.int64, np.float16]
LARGE = 0.01  # the share of products with a triangle that is computed in blocks of usual size


def laid_out(rng, shape, dtype):
    """A batch of matrices of random values and of a random layout."""
    axes = rng.permutation(len(shape))
    steps = rng.choice([1, 1, 1, 2, -1], len(shape))
    sizes = [shape[axis] * abs(steps[axis]) for axis in axes]
    if np.dtype(dtype).kind == "f":
        whole = rng.standard_normal(sizes, np.float32).astype(dtype)
    else:
        whole = rng.integers(-100 if np.dtype(dtype).kind == "i" else 0, 100, sizes).astype(dtype)
    return whole.transpose(np.argsort(axes))[tuple(slice(None, None, step) for step in steps)]


def products(rng, x):
    """Products of a matrix, or of a batch, by all entrances that take it."""
    other, out = x.swapaxes(-1, -2), np.empty((*x.shape[:-1], x.shape[-2]), x.dtype)
    yield "matmul", clgemm.matmul(x, other)
    yield "matmul, out", clgemm.matmul(x, other, out=out)
    with clgemm.accel.enabled(0):
        yield "NumPy's @", x @ other
    if x.ndim > 2:
        return
    yield "dot", clgemm.dot(x, other)
    yield "inner", clgemm.inner(x, x)
    yield "tensordot", clgemm.tensordot(x, x, ((1,), (1,)))
    if x.dtype != np.float32:
        return
    alpha = float(rng.standard_normal())
    yield "sgemm", clgemm.sgemm(alpha, x, x, trans_b=1)
    yield "sgemm of columns", clgemm.sgemm(alpha, other, other, trans_a=1, order="C")
    if clgemm.get_device().limits.has_vectors:  # others compute all of it where C is added
        yield "sgemm, C", clgemm.sgemm(alpha, x, x, 0.5, out, trans_b=1)
    y = cl_array.to_device(clgemm.get_device().queue, np.ascontiguousarray(x))
    yield "device arrays", clgemm.matmul(y, y.T).get()


def search(seeds, seconds, largest):
    """Compute products until the time is over; return how many of each kind, and the faults."""
    made, faults, end = Counter(), [], time.monotonic() + seconds
    for seed in seeds:
        rng = np.random.default_rng(seed)
        is_large = rng.random() < LARGE
        high = largest if is_large else min(largest, 300)
        n, k = (int(2 ** rng.uniform(0, np.log2(high))) for _ in "nk")
        if is_large:
            n, k = max(n, 3 * largest // 4), max(k, largest // 4)
        batch = () if is_large else [(), (), (3,), (2, 1)][rng.integers(4)]
        x = laid_out(rng, (*batch, n, k), DTYPES[rng.integers(len(DTYPES))])
        for name, found in products(rng, x):
            made[name] += 1
            if not np.array_equal(found, found.swapaxes(-1, -2)):
                faults.append((seed, name, x.dtype, x.shape, x.strides))
        if time.monotonic() > end:
            break
    return made, faults


def main():
    made, faults = search(*chosen(__doc__), 1100)
    print(clgemm.get_device().label, sum(made.values()), "products,", len(faults), "asymmetric")
    print(*(f"{name}: {count}" for name, count in made.items()), sep="; ")
    for fault in faults[:40]:
        print(*fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
