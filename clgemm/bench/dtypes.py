"""``bench --dtypes``: products of other dtypes than float32, beside NumPy and others."""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import clgemm
from clgemm.bench.contenders import cupy_on
from clgemm.bench.report import print_rows
from clgemm.hardware.choice import find_devices, get_devices
from clgemm.output import written
from clgemm.runtime import exact
from clgemm.terminal import progress
from clgemm.transfer.multiply import multiply_exactly

__all__ = ["add_arguments", "main", "timed"]

DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float16", "bool")
ON_GPUS = ("float64", "complex64", "complex128")  # on processors, NumPy's BLAS makes them
SIZES = (64, 128, 256, 512, 1000, 2000)
TURNS = 5
IDLE_S = 0.2  # after which the idle threads of NumPy's BLAS do not spin any more
LONGEST_S = 1.0  # what takes NumPy longer is timed on fewer rows of A: a row takes what a row takes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--dtypes",
        nargs="*",
        metavar="N",
        help="instead: products of other dtypes than float32 of N x N matrices, beside NumPy, "
        "np.einsum, a cast to float64 and, where installed, PyTorch, numba and CuPy; on a GPU also "
        "of arrays that are there. With --json",
    )


def main(args: argparse.Namespace) -> int:
    """Time the products and print a table.

    Returns
    -------
    int
        0; 1 if a result is wrong or the file is not written; 2 if the device or a size is wrong.
    """
    try:
        devices = find_devices(args.device) if args.device else get_devices()
        sizes = tuple(map(int, args.dtypes)) or SIZES
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    device, rows, wrong = devices[0], [], 0
    wider = () if device.limits.has_vectors else ON_GPUS
    dtypes = (*DTYPES, *(each for each in wider if _computes(device, each)))
    with progress(len(dtypes) * len(sizes)) as step, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in dtypes:
            for n in sizes:
                step(f"{dtype} {n}")
                found = timed(device, np.dtype(dtype), n)
                wrong += not found["is_right"]
                rows.append(found)
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
                *(_ratio(row["others"].get(name), row["ms"]) for name in others),
            )
            for row in rows
        ],
    )
    if wrong:
        print(f"{wrong} results are wrong", file=sys.stderr)
    text = json.dumps({"device": device.label, "products": rows}, indent=1)
    saved = written(args.json, text)
    return int(bool(wrong) or not saved)


def _computes(device: Any, dtype: str) -> bool:
    like = np.empty(0, dtype)
    return exact.computes(device, exact.types_of(like, like, like))


def timed(device: Any, dtype: np.dtype[Any], n: int) -> dict[str, Any]:
    """Time a product of n x n matrices: clgemm's, NumPy's and others' milliseconds, in turns."""
    rng = np.random.default_rng(n)
    a, b = _random(rng, n, dtype), _random(rng, n, dtype)
    c = np.empty((n, n), dtype)

    def ours() -> None:
        multiply_exactly(a, b, c, device)

    ours()
    own = _of_clgemm_there(a, b, device)
    few = max(1, min(n, 64))
    is_right = np.array_equal(c[:few], exact.expected(a[:few], b, dtype))
    contenders: dict[str, Callable[[int], object]] = {"NumPy": lambda m: np.matmul(a[:m], b)}
    if dtype.name in DTYPES and dtype.kind != "b":
        contenders["einsum"] = lambda m: np.einsum("ij,jk->ik", a[:m], b)
        contenders["float64"] = lambda m: (a[:m].astype("d") @ b.astype("d")).astype(dtype)
    contenders |= _of_torch(a, b) | _of_numba(a, b) | _of_cupy(a, b, device) | own
    rows = {name: _affordable(call, n) for name, call in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in ("clgemm", *contenders)}
    for _ in range(TURNS):
        time.sleep(IDLE_S)
        ours()  # its threads are asleep, too
        times["clgemm"].append(_seconds(ours))
        for name, call in contenders.items():
            m = rows[name]
            times[name].append(_seconds(functools.partial(call, m)) * n / m)
    ms = {name: 1e3 * median(each) for name, each in times.items()}
    found = {"dtype": dtype.name, "n": n, "ms": ms.pop("clgemm"), "numpy_ms": ms.pop("NumPy")}
    return found | {"others": ms, "is_right": is_right}


def _ratio(ms: float | None, ours_ms: float) -> str:
    return "" if ms is None else f"{ms / ours_ms:.2f}"


def _random(rng: np.random.Generator, n: int, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return rng.random((n, n)) < 1 / n
    numbers = rng.integers(0 if dtype.kind == "u" else -3, 4, (n, n))
    return (numbers + 1j * numbers.T).astype(dtype) if dtype.kind == "c" else numbers.astype(dtype)


def _of_clgemm_there(a: Any, b: Any, device: Any) -> dict[str, Callable[[int], object]]:
    """Return products of arrays that lie on a GPU."""
    if device.kind != "GPU":
        return {}
    import pyopencl.array as cl_array

    x, y = (cl_array.to_device(device.queue, each) for each in (a, b))

    def product(m: int) -> None:
        clgemm.matmul(x[:m], y)
        device.queue.finish()

    return {"clgemm there": product}


def _of_cupy(a: Any, b: Any, device: Any) -> dict[str, Callable[[int], object]]:
    """Return CuPy's products of host arrays, and of arrays that lie on the GPU."""
    if device.kind != "GPU" or (cupy := cupy_on(device)) is None:
        return {}
    x, y = cupy.asarray(a), cupy.asarray(b)

    def there(m: int) -> None:
        x[:m] @ y
        cupy.cuda.Device().synchronize()

    return {
        "CuPy": lambda m: cupy.asnumpy(cupy.asarray(a[:m]) @ cupy.asarray(b)),
        "CuPy there": there,
    }


def _affordable(call: Callable[[int], object], n: int) -> int:
    """Return for how many rows of A a product does not take long."""
    m = min(n, 8)
    call(m)
    row_s = _seconds(lambda: call(m)) / m
    return n if row_s * n < LONGEST_S else max(8, int(LONGEST_S / row_s / 4))


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _of_torch(a: Any, b: Any) -> dict[str, Callable[[int], object]]:
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return {}
    try:
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        x[:1] @ y
    except (TypeError, RuntimeError):
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
