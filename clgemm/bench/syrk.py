"""``bench --syrk``: a matrix by its own transpose, beside NumPy, SciPy and CuPy."""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pyopencl.array as cl_array

import clgemm
from clgemm.bench.contenders import DEVICE, HOST, cupy_on
from clgemm.bench.report import print_rows
from clgemm.hardware.choice import device as chosen_device
from clgemm.hardware.choice import find_devices, get_devices
from clgemm.output import written
from clgemm.terminal import progress
from clgemm.testing.assertions import gamma

__all__ = ["add_arguments", "main"]

SHAPES = "500", "1000", "2000", "2000x300", "3000x1000"
TURNS = 5
IDLE_S = 0.2  # after which the idle threads of NumPy's BLAS do not spin any more
TURN_S = 0.02  # short products are repeated for so long
CHECKED_ROWS = 64
# Of the report: clgemm's calls, and for each of its peers the call that it is compared with.
GEMM, OURS, SSYRK = "x @ y", "x @ x.T", "ssyrk"
PEERS = {"NumPy": OURS, "SciPy": SSYRK, "CuPy": OURS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--syrk",
        nargs="*",
        metavar="NxK",
        help="instead: products of N x K matrices by their own transposes, and one triangle of "
        "them, beside clgemm's product of two matrices, NumPy and, where installed, SciPy's ssyrk "
        "and CuPy. With --json",
    )


def main(args: argparse.Namespace) -> int:
    """Time the products and print a table.

    Returns
    -------
    int
        0; 1 if a result is wrong or the file is not written; 2 if the device or a shape is wrong.
    """
    try:
        device = (find_devices(args.device) if args.device else get_devices())[0]
        shapes = [_parsed(text) for text in args.syrk or SHAPES]
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    places = (HOST,) if device.kind == "CPU" else (HOST, DEVICE)
    rows = []
    with progress(len(shapes) * len(places)) as step, chosen_device(device):
        for n, k in shapes:
            for place in places:
                step(f"{n}x{k} {place}")
                rows.append(_timed(device, n, k, place))
    peers = [peer for peer in PEERS if any(peer in row["ms"] for row in rows)]
    print_rows(
        f"A matrix by its own transpose on {device.label}: times of others over clgemm's",
        ("N x K", "arrays", *(f"{name}, ms" for name in (GEMM, OURS, SSYRK)), *_headings(peers)),
        [
            (
                f"{row['n']} x {row['k']}",
                row["arrays"],
                *(f"{row['ms'][name]:.3g}" for name in (GEMM, OURS, SSYRK)),
                *(_cell(row["ratios"], heading) for heading in _headings(peers)),
            )
            for row in rows
        ],
    )
    if wrong := [row for row in rows if not row["is_right"]]:
        print(f"{len(wrong)} results are wrong", file=sys.stderr)
    saved = written(args.json, json.dumps({"device": device.label, "products": rows}, indent=1))
    return int(bool(wrong) or not saved)


def _parsed(text: str) -> tuple[int, int]:
    """Return N and K of an argument: N alone is a square matrix."""
    n, _, k = text.partition("x")
    try:
        sizes = int(n), int(k or n)
        if min(sizes) < 1:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not a shape: N or NxK, such as 2000x300") from None
    return sizes


def _headings(peers: list[str]) -> list[str]:
    ours = [f"{GEMM} / {OURS}", f"{GEMM} / {SSYRK}"]
    return [*ours, *(f"{peer} / {PEERS[peer]}" for peer in peers)]


def _cell(ratios: dict[str, float], heading: str) -> str:
    return f"{ratios[heading]:.2f}" if heading in ratios else ""


def _timed(device: Any, n: int, k: int, place: str) -> dict[str, Any]:
    x: Any = np.random.default_rng(n).standard_normal((n, k)).astype(np.float32)
    a, b = x, np.ascontiguousarray(x.T)
    c: Any
    d: Any
    c, d = (np.zeros((n, n), np.float32) for _ in "cd")
    if place == DEVICE:
        a, b, c, d = (_on_device(device, each) for each in (a, b, c, d))
    contenders: dict[str, Callable[[], Any]] = {
        GEMM: lambda: clgemm.sgemm(1.0, a, b, 0.0, c, overwrite_c=1),
        SSYRK: lambda: clgemm.ssyrk(1.0, a, 0.0, d, overwrite_c=1),
        OURS: lambda: clgemm.sgemm(1.0, a, a, 0.0, c, trans_b=1, overwrite_c=1),
    }
    if place == DEVICE:
        contenders = {name: _finished(call, device) for name, call in contenders.items()}
    else:
        contenders["NumPy"] = functools.partial(np.matmul, x, x.T, out=np.empty_like(c))
        contenders |= _of_scipy(x)
    contenders |= _of_cupy(device, x, place)
    for call in contenders.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(TURNS):
        for name, call in contenders.items():
            time.sleep(IDLE_S)
            call()  # its threads were asleep
            times[name].append(_seconds(call))
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


def _on_device(device: Any, x: Any) -> Any:
    return cl_array.to_device(device.queue, x)


def _finished(call: Callable[[], Any], device: Any) -> Callable[[], Any]:
    def finished() -> None:
        call()
        device.queue.finish()

    return finished


def is_right(x: Any, c: Any, d: Any) -> bool:
    """Return whether two results are `x` by its own transpose: all of it, and the upper triangle.

    The first rows are compared with float64.
    """
    rows = x[:CHECKED_ROWS].astype(np.float64)
    allowed = gamma(x.shape[1] + 128) * (abs(rows) @ abs(x.T))
    is_near = (abs(c[:CHECKED_ROWS] - rows @ x.T.astype(np.float64)) <= allowed).all()
    is_triangle = (abs(np.triu(c - d)[:CHECKED_ROWS]) <= 2 * allowed).all()
    return bool(is_near and is_triangle and np.array_equal(c, c.T) and not np.tril(d, -1).any())


def _seconds(call: Callable[[], object]) -> float:
    begun, count = time.perf_counter(), 0
    while (taken := time.perf_counter() - begun) < TURN_S or not count:
        call()
        count += 1
    return taken / count


def _of_scipy(x: Any) -> dict[str, Callable[[], Any]]:
    try:
        blas: Any = importlib.import_module("scipy.linalg.blas")
    except ImportError:
        return {}
    c = np.zeros((len(x), len(x)), np.float32, order="F")
    # BLAS takes columns, which the transpose has: nothing is copied.
    return {"SciPy": functools.partial(blas.ssyrk, 1.0, x.T, 0.0, c, 1, 0, 1)}


def _of_cupy(device: Any, x: Any, place: str) -> dict[str, Callable[[], Any]]:
    """Return CuPy's product on a GPU: of NumPy arrays, it takes the transfers too."""
    if device.kind == "CPU" or (cupy := cupy_on(device)) is None:
        return {}
    y = cupy.asarray(x)

    def product() -> None:
        z = cupy.asarray(x) if place == HOST else y
        z = z @ z.T
        if place == HOST:
            cupy.asnumpy(z)
        cupy.cuda.Device().synchronize()

    return {"CuPy": product}
