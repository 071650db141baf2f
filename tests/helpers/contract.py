"""Random calls of all functions that follow NumPy, compared with NumPy itself.

Whole numbers, so that values must be equal, signs of zeros included; so must types, dtypes, errors
and memory that is written to. ``python tests/helpers/contract.py --minutes 60`` searches long.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import clgemm
from clgemm import numpy_rules

NAMES = ["matmul", "dot", "inner", "tensordot", "multi_dot"]
THEIRS = {
    "matmul": np.matmul,
    "dot": np.dot,
    "inner": np.inner,
    "tensordot": np.tensordot,
    "multi_dot": np.linalg.multi_dot,
}
DTYPES = [np.float32] * 12 + [np.float64, np.int32, np.int8, np.float16, np.bool_, np.complex64]
FILE = Path(tempfile.gettempdir()) / f"clgemm-contract-{os.getpid()}"


class Plain(np.ndarray):
    """A subclass that redefines nothing."""


def subclassed(rng, x):
    """An array of another type with the same elements, mostly the array itself."""
    kind = rng.integers(40)
    if kind == 0:
        return x.view(Plain)
    if kind == 1 and x.ndim == 2:
        return x.view(np.matrix)
    if kind == 2:
        return np.ma.masked_array(x, rng.random(x.shape) < 0.2)
    if kind == 3 and x.size:
        file = FILE.with_suffix(f".{rng.integers(2**60)}")
        mapped = np.memmap(file, x.dtype, "w+", shape=x.shape or (1,))
        file.unlink()
        mapped[...] = x
        return mapped
    if kind == 4 and x.ndim < 3:
        return x.tolist()
    return x


def laid_out(rng, shape, dtype):
    """An array of a random memory layout: order, steps, reversed, repeated and shifted axes."""
    ndim = len(shape)
    order = rng.permutation(ndim)
    steps = [int(rng.choice([1, 1, 1, 2, -1, -2, 0])) for _ in shape]
    sizes = [1 if steps[i] == 0 else shape[i] * abs(steps[i]) + int(rng.integers(2)) for i in order]
    high = 2 if dtype is np.bool_ else 9
    low = 0 if dtype is np.bool_ else -8
    whole = rng.integers(low, high, sizes).astype(dtype)
    x = whole.transpose(np.argsort(order))
    index = tuple(slice(None) if step == 0 else slice(None, None, step) for step in steps)
    x = x[index]
    x = x[tuple(slice(0, n) if step else slice(None) for n, step in zip(shape, steps, strict=True))]
    x = np.broadcast_to(x, shape) if 0 in steps else x
    if rng.integers(20) == 0 and x.size:  # not aligned
        raw = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
        raw[...] = x
        x = raw
    if rng.integers(10) == 0 and x.flags.writeable:
        x.flags.writeable = False
    return x


def size(rng):
    return int(rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 16, 33], p=[0.04, 0.2, *[0.095] * 8]))


def operands(rng, name):
    """Arguments whose shapes mostly fit."""
    dtype = DTYPES[rng.integers(len(DTYPES))]
    other = dtype if rng.integers(8) else DTYPES[rng.integers(len(DTYPES))]
    if name == "multi_dot":
        count = int(rng.integers(2, 5))
        dims = [size(rng) for _ in range(count + 1)]
        shapes = [(dims[i], dims[i + 1]) for i in range(count)]
        if rng.integers(3) == 0:
            shapes[0] = shapes[0][1:]
        if rng.integers(3) == 0:
            shapes[-1] = shapes[-1][:1]
        return ([subclassed(rng, laid_out(rng, shape, dtype)) for shape in shapes],), {}
    m, n, k = size(rng), size(rng), size(rng)
    ndims = [int(rng.choice([0, 1, 2, 3, 4, 5], p=[0.04, 0.2, 0.4, 0.2, 0.1, 0.06])) for _ in "ab"]
    batch = [int(rng.integers(1, 4)) for _ in range(3)]
    keywords = {}
    if name == "tensordot":
        shapes = [tuple(size(rng) % 6 for _ in range(ndim)) for ndim in ndims]
        shared = min(ndims)
        axes = int(rng.integers(0, min(shared, 3) + 1))
        a, b = list(shapes[0]), list(shapes[1])
        if rng.integers(2):
            b[:axes] = a[len(a) - axes :]
            keywords["axes"] = axes
        else:
            left = [int(i) for i in rng.permutation(len(a))[:axes]]
            right = [int(i) for i in rng.permutation(len(b))[:axes]]
            for i, j in zip(left, right, strict=True):
                b[j] = a[i]
            if rng.integers(4) == 0:
                left = [i - len(a) for i in left]
            keywords["axes"] = (left, right)
        shapes = [tuple(a), tuple(b)]
    else:
        shapes = []
        for ndim, ends in zip(ndims, ((m, k), (n, k) if name == "inner" else (k, n)), strict=True):
            if ndim == 0:
                shapes.append(())
            elif ndim == 1:
                shapes.append((k,))
            else:
                stack = tuple(1 if rng.integers(4) == 0 else x for x in batch[5 - ndim :])
                shapes.append(stack + ends)
        if rng.integers(25) == 0 and shapes[1]:
            shapes[1] = (*shapes[1][:-1], shapes[1][-1] + 1)
    a, b = laid_out(rng, shapes[0], dtype), laid_out(rng, shapes[1], other)
    if rng.integers(15) == 0 and a.ndim > 1:
        b = a.swapaxes(-1, -2) if name != "inner" else a
    a, b = subclassed(rng, a), subclassed(rng, b)
    return (a, b), keywords


def with_out(rng, name, arguments, keywords):
    """Two equal places for the result, mostly None; mostly they fit."""
    if name == "tensordot" or rng.integers(4):
        return None, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = np.asarray(THEIRS[name](*arguments, **keywords))
    except Exception:
        return None, None
    dtype = model.dtype if rng.integers(6) else DTYPES[rng.integers(len(DTYPES))]
    shape = model.shape if rng.integers(10) else (*model.shape, 2)
    order = "C" if rng.integers(3) else "F"
    places = [np.full(shape, 77, dtype, order) for _ in "ab"]
    if rng.integers(8) == 0 and len(shape):
        places = [np.full((*shape[:-1], 2 * shape[-1]), 77, dtype)[..., ::2] for _ in "ab"]
    return places[0], places[1]


def outcome(function, arguments, keywords):
    """The result, or the error's type and text. NumPy's BLAS warns of what it does not use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*arguments, **keywords), None
        except Exception as error:
            return None, (type(error).__name__, str(error))


def differs(expected, found):
    """What is different of two results, "" if nothing is."""
    if type(expected) is not type(found):
        return f"type {type(found).__name__} instead of {type(expected).__name__}"
    x, y = np.asarray(expected), np.asarray(found)
    if x.dtype != y.dtype or x.shape != y.shape:
        return f"{y.dtype}{y.shape} instead of {x.dtype}{x.shape}"
    if not np.array_equal(x, y, equal_nan=x.dtype.kind in "fc"):
        return "values"
    if x.dtype.kind == "f" and not np.array_equal(np.signbit(x), np.signbit(y)):
        return "signs of zeros"
    return ""


def one(seed, entrance):
    """Make one random call both ways; return its name and what is different."""
    rng = np.random.default_rng(seed)
    name = NAMES[rng.integers(len(NAMES))]
    arguments, keywords = operands(rng, name)
    ours, theirs = with_out(rng, name, arguments, keywords)
    extra = [{} if place is None else {"out": place} for place in (ours, theirs)]
    expected, error = outcome(THEIRS[name], arguments, keywords | extra[1])
    if entrance == "clgemm":
        found = outcome(getattr(clgemm, name), arguments, keywords | extra[0])
    else:
        with clgemm.accel.enabled(0):
            found = outcome(THEIRS[name], arguments, keywords | extra[0])
    result, failed = found
    if (error is None) != (failed is None) or (error and error[0] != failed[0]):
        return name, f"{failed} instead of {error}"
    if error is None:
        if (expected is theirs) != (result is ours):
            return name, "another object than `out`"
        if wrong := differs(expected, result):
            return name, wrong
    if theirs is not None and differs(theirs, ours):
        return name, "what is written to `out`"
    return name, ""


def search(seeds, seconds):
    """Make random calls until the time is over; return how many of each kind, and the faults."""
    made, faults = Counter(), []
    end = time.monotonic() + seconds
    for seed in seeds:
        for entrance in ("clgemm", "NumPy"):
            name, wrong = one(seed, entrance)
            made[entrance, name] += 1
            if wrong:
                faults.append((seed, entrance, name, wrong))
        if time.monotonic() > end:
            break
    return made, faults


def everything_on_the_device():
    """Have small products of integers go there, too."""
    numpy_rules.LEAST_SIZE = numpy_rules.LEAST_WORK = 0
    numpy_rules.LEAST_SIZES.update(dict.fromkeys(numpy_rules.LEAST_SIZES, 0))


def chosen(description):
    """Choose the device that the command line names, for all sizes; return seeds and seconds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--device", default=None)
    options = parser.parse_args()
    os.environ["CLGEMM_THRESHOLD"] = "0"
    everything_on_the_device()
    if options.device:
        clgemm.set_device(options.device)
    first = options.seed * 10**6
    return range(first, first + 10**9), 60 * options.minutes


def main():
    made, faults = search(*chosen(__doc__))
    print(clgemm.get_device().label, sum(made.values()), "calls,", len(faults), "differ")
    for fault in faults[:40]:
        print(*fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
