"""``bench --dtypes`` and ``--syrk``: other dtypes than float32, and a matrix by its own transpose.

All are timed in this process, in turns, beside NumPy and others. Before each turn, the idle threads
of NumPy's BLAS have gone to sleep.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyopencl.array as cl_array

import clgemm
from clgemm.bench.contenders import DEVICE, HOST, cupy_on
from clgemm.bench.report import print_rows
from clgemm.hardware.device import Device
from clgemm.runtime import exact
from clgemm.terminal import positive, progress, written
from clgemm.testing.assertions import gamma
from clgemm.transfer.multiply import multiply_exactly

TURNS = 5
IDLE_S = 0.2  # after which the idle threads of NumPy's BLAS do not spin any more
TURN_S = 0.02  # short products are repeated for so long
CHECKED_ROWS, CHECKED_WORK = 64, 2**28  # rows of A, and their multiply-adds, at most

DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float16", "bool")
ON_GPUS = ("float64", "complex64", "complex128")  # on processors, NumPy's BLAS makes them
SIZES = (64, 128, 256, 512, 1000, 2000)
# What takes longer by loops, which take as long for each row of A, is timed on fewer rows.
LONGEST_S, LOOPS = 0.3, ("NumPy", "einsum", "torch", "numba")

SHAPES = (500, 500), (1000, 1000), (2000, 2000), (2000, 300), (3000, 1000)
# Of the report: clgemm's calls, and for each of its peers the call that it is compared with.
GEMM, OURS, SSYRK = "x @ y", "x @ x.T", "ssyrk"
PEERS = {"NumPy": OURS, "SciPy": SSYRK, "CuPy": OURS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--dtypes",
        nargs="*",
        type=positive,
        metavar="N",
        help="instead: products of other dtypes than float32 of N x N matrices, beside NumPy, "
        "np.einsum, a cast to float64 and, where installed, PyTorch, numba and CuPy; on a GPU also "
        "of arrays that are there. With --json",
    )
    parser.add_argument(
        "--syrk",
        nargs="*",
        type=_shape,
        metavar="NxK",
        help="instead: products of N x K matrices by their own transposes, and one triangle of "
        "them, beside clgemm's product of two matrices, NumPy and, where installed, SciPy's ssyrk "
        "and CuPy. With --json",
    )


def _shape(text: str) -> tuple[int, int]:
    """Return N and K of an argument: N alone is a square matrix."""
    n, _, k = text.partition("x")
    try:
        return positive(n), positive(k or n)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shape: N or NxK, such as 2000x300"
        ) from None


def dtypes(args: argparse.Namespace, device: Device) -> int:
    """Time products of other dtypes and print a table.

    Returns
    -------
    int
        0; 1 if a result is wrong or the file is not written.
    """
    sizes = args.dtypes or SIZES
    wider = () if device.limits.has_vectors else ON_GPUS
    like = {each: np.empty(0, each) for each in wider}
    able = (each for each, x in like.items() if exact.computes(device, exact.types_of(x, x, x)))
    names = (*DTYPES, *able)
    rows = []
    with progress(len(names) * len(sizes)) as step, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in names:
            for n in sizes:
                step(f"{dtype} {n}")
                rows.append(timed(device, np.dtype(dtype), n))
    others = sorted({name for row in rows for name in row["others"]})
    print_rows(
        f"Products of N x N matrices on {device.label}: times of others over clgemm's",
        ("dtype", "N", "clgemm ms", "Gop/s", "NumPy", *others),
        [
            (
                row["dtype"],
                str(row["n"]),
                f"{row['ms']:.3g}",
                f"{2e-6 * row['n'] ** 3 / row['ms']:.3g}",
                f"{row['numpy_ms'] / row['ms']:.2f}",
                *(
                    f"{row['others'][name] / row['ms']:.2f}" if name in row["others"] else ""
                    for name in others
                ),
            )
            for row in rows
        ],
    )
    return _finished(args, device, rows)


def timed(device: Device, dtype: np.dtype[Any], n: int) -> dict[str, Any]:
    """Time a product of n x n matrices: clgemm's, NumPy's and others' milliseconds, in turns."""
    rng = np.random.default_rng(n)
    a, b = _random(rng, n, dtype), _random(rng, n, dtype)
    c = np.empty((n, n), dtype)
    multiply_exactly(a, b, c, device)
    few = min(n, CHECKED_ROWS, max(1, CHECKED_WORK // n**2))
    is_right = np.array_equal(c[:few], exact.expected(a[:few], b, dtype))
    # Each takes the number of rows of A.
    contenders: dict[str, Callable[[int], object]] = {"NumPy": lambda m: np.matmul(a[:m], b)}
    if dtype.name in DTYPES and dtype.kind != "b":
        contenders["einsum"] = lambda m: np.einsum("ij,jk->ik", a[:m], b)
        contenders["float64"] = lambda m: (a[:m].astype("d") @ b.astype("d")).astype(dtype)
    contenders |= _of_torch(a, b) | _of_numba(a, b)
    if device.kind == "GPU":
        x, y = (cl_array.to_device(device.queue, each) for each in (a, b))
        contenders["clgemm there"] = _waiting(device, lambda m: clgemm.matmul(x[:m], y))
        contenders |= _of_cupy(device, lambda x, y, m: x[:m] @ y, a, b)
    rows = {name: _affordable(contenders[name], n) for name in LOOPS if name in contenders}
    calls: dict[str, Callable[[], object]] = {"clgemm": lambda: multiply_exactly(a, b, c, device)}
    calls |= {name: functools.partial(call, rows.get(name, n)) for name, call in contenders.items()}
    times = _raced(calls)
    ms = {name: 1e3 * median(each) * n / rows.get(name, n) for name, each in times.items()}
    found = {"dtype": dtype.name, "n": n, "ms": ms.pop("clgemm"), "numpy_ms": ms.pop("NumPy")}
    return found | {"others": ms, "is_right": is_right}


def _random(rng: np.random.Generator, n: int, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return rng.random((n, n)) < 1 / n
    numbers = rng.integers(0 if dtype.kind == "u" else -3, 4, (n, n))
    return (numbers + 1j * numbers.T).astype(dtype) if dtype.kind == "c" else numbers.astype(dtype)


def _affordable(call: Callable[[int], object], n: int) -> int:
    """Return for how many rows of A a product does not take long."""
    call(1)
    begun = time.perf_counter()
    call(1)
    row_s = time.perf_counter() - begun
    return n if row_s * n < LONGEST_S else max(1, int(LONGEST_S / row_s / 4))


def _of_torch(a: Any, b: Any) -> dict[str, Callable[[int], object]]:
    try:
        torch: Any = importlib.import_module("torch")
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        x[:1] @ y
    except (ImportError, TypeError, RuntimeError):
        return {}
    return {"torch": lambda m: x[:m] @ y}


def _of_numba(a: Any, b: Any) -> dict[str, Callable[[int], object]]:
    try:
        numba: Any = importlib.import_module("numba")
    except ImportError:
        return {}
    if a.dtype == np.float16:
        return {}

    def product(x: Any, y: Any, z: Any) -> None:
        for i in numba.prange(x.shape[0]):
            for p in range(x.shape[1]):
                for j in range(y.shape[1]):
                    z[i, j] += x[i, p] * y[p, j]

    compiled: Any = numba.njit(parallel=True)(product)
    return {"numba": lambda m: compiled(a[:m], b, np.zeros((m, b.shape[1]), a.dtype))}


def syrk(args: argparse.Namespace, device: Device) -> int:
    """Time products by their own transposes and print a table.

    Returns
    -------
    int
        0; 1 if a result is wrong or the file is not written.
    """
    shapes = args.syrk or SHAPES
    places = (HOST,) if device.kind == "CPU" else (HOST, DEVICE)
    rows = []
    with progress(len(shapes) * len(places)) as step, clgemm.device(device):
        for n, k in shapes:
            for place in places:
                step(f"{n}x{k} {place}")
                rows.append(_timed_syrk(device, n, k, place))
    peers = [peer for peer in PEERS if any(peer in row["ms"] for row in rows)]
    ratios = [f"{GEMM} / {OURS}", f"{GEMM} / {SSYRK}", *(f"{x} / {PEERS[x]}" for x in peers)]
    print_rows(
        f"A matrix by its own transpose on {device.label}: times of others over clgemm's",
        ("N x K", "arrays", *(f"{name}, ms" for name in (GEMM, OURS, SSYRK)), *ratios),
        [
            (
                f"{row['n']} x {row['k']}",
                row["arrays"],
                *(f"{row['ms'][name]:.3g}" for name in (GEMM, OURS, SSYRK)),
                *(f"{row['ratios'][x]:.2f}" if x in row["ratios"] else "" for x in ratios),
            )
            for row in rows
        ],
    )
    return _finished(args, device, rows)


def _timed_syrk(device: Device, n: int, k: int, place: str) -> dict[str, Any]:
    x: Any = np.random.default_rng(n).standard_normal((n, k)).astype(np.float32)
    arrays: list[Any] = [x, np.ascontiguousarray(x.T), *np.zeros((2, n, n), np.float32)]
    if place == DEVICE:
        arrays = [cl_array.to_device(device.queue, each) for each in arrays]
    a, b, c, d = arrays

    contenders: dict[str, Callable[[], object]] = {
        GEMM: lambda: clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1),
        SSYRK: lambda: clgemm.ssyrk(1.0, a, 0.0, d, overwrite_c=1),
        OURS: lambda: clgemm.sgemm(1.0, a, a, 0.0, c, trans_b=1, overwrite_c=1),
    }
    if place == DEVICE:
        contenders = {name: _waiting(device, call) for name, call in contenders.items()}
    else:
        e = np.empty((n, n), np.float32)
        contenders["NumPy"] = lambda: np.matmul(x, x.T, out=e)
        contenders |= _of_scipy(x)
    if device.kind == "GPU" and (cupys := _of_cupy(device, lambda z, _: z @ z.T, x)):
        cupys_call = cupys["CuPy" if place == HOST else "CuPy there"]
        contenders["CuPy"] = lambda: cupys_call(n)
    times = _raced(contenders)
    results = (c, d) if place == HOST else (c.get(), d.get())
    compared = {
        f"{theirs} / {ours}": median(s / t for s, t in zip(times[theirs], times[ours], strict=True))
        for theirs, ours in ((GEMM, OURS), (GEMM, SSYRK), *PEERS.items())
        if theirs in times
    }
    return {
        "n": n,
        "k": k,
        "arrays": place,
        "ms": {name: 1e3 * median(each) for name, each in times.items()},
        "ratios": compared,
        "is_right": is_right(x, *results),
    }


def is_right(x: Any, c: Any, d: Any) -> bool:
    """Return whether two results are `x` by its own transpose: all of it, and the upper triangle.

    The first rows are compared with float64.
    """
    rows = x[:CHECKED_ROWS].astype(np.float64)
    allowed = gamma(x.shape[1] + 128) * (abs(rows) @ abs(x.T))
    is_near = (abs(c[:CHECKED_ROWS] - rows @ x.T.astype(np.float64)) <= allowed).all()
    is_triangle = (abs(np.triu(c - d)[:CHECKED_ROWS]) <= 2 * allowed).all()
    return bool(is_near and is_triangle and np.array_equal(c, c.T) and not np.tril(d, -1).any())


def _of_scipy(x: Any) -> dict[str, Callable[[], object]]:
    try:
        blas: Any = importlib.import_module("scipy.linalg.blas")
    except ImportError:
        return {}
    c = np.zeros((len(x), len(x)), np.float32, order="F")
    # BLAS takes columns, which the transpose has: nothing is copied.
    return {"SciPy": lambda: blas.ssyrk(1.0, x.T, 0.0, c, 1, 0, 1)}


def _of_cupy(
    device: Device, multiply: Callable[..., Any], *arrays: Any
) -> dict[str, Callable[[int], object]]:
    """Return CuPy's product of host arrays, both transfers included, and of arrays on the GPU.

    Parameters
    ----------
    multiply : callable
        Takes CuPy's arrays and the number of rows of the first one.
    """
    if (cupy := cupy_on(device)) is None:
        return {}
    there = [cupy.asarray(each) for each in arrays]
    return {
        "CuPy": lambda m: cupy.asnumpy(multiply(*map(cupy.asarray, arrays), m)),
        "CuPy there": lambda m: (multiply(*there, m), cupy.cuda.Device().synchronize()),
    }


def _waiting(device: Device, call: Callable[..., object]) -> Callable[..., None]:
    def waiting(*arguments: int) -> None:
        call(*arguments)
        device.queue.finish()

    return waiting


def _raced(calls: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Return the seconds of each call in each turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            time.sleep(IDLE_S)
            call()  # its threads were asleep
            begun, count = time.perf_counter(), 0
            while (taken := time.perf_counter() - begun) < TURN_S or not count:
                call()
                count += 1
            times[name].append(taken / count)
    return times


def _finished(args: argparse.Namespace, device: Device, rows: Sequence[dict[str, Any]]) -> int:
    """Write the figures if a file is named, and return the exit code."""
    if wrong := sum(not row["is_right"] for row in rows):
        print(f"{wrong} results are wrong", file=sys.stderr)
    text = json.dumps({"device": device.label, "products": rows}, indent=1)
    return int(not written(args.json, text) or wrong > 0)
