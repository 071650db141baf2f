"""Measure which Dask functions reach the device: products per worker, and the largest error.

    python docs/dask_functions.py [--json docs/measured/dask_functions.json]

Each function runs on two worker processes with one thread each, and on the scheduler of threads.
Every float32 product goes to the device. The error is relative to the largest element of the
result that NumPy finds in float64; where NumPy's result depends on signs or signs are chance, it is
of singular values or solutions.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import clgemm.dask

SIDE, CHUNK = 1024, 256
ROWS, COLUMNS = 8192, 64

_random = np.random.default_rng(0)
A, B = (_random.standard_normal((SIDE, SIDE), np.float32) for _ in range(2))
# Singular values apart from each other, as a low-rank approximation is for.
TALL = _random.standard_normal((ROWS, COLUMNS), np.float32) * np.float32(0.9) ** np.arange(COLUMNS)
TALL = TALL.astype(np.float32)
SOLUTION = _random.standard_normal(COLUMNS, np.float32)
RIGHT = TALL @ SOLUTION + _random.standard_normal(ROWS, np.float32)


def square(x: Any) -> Any:
    """Return a square matrix in square chunks."""
    return da.from_array(x, chunks=CHUNK)


def tall(x: Any) -> Any:
    """Return a tall matrix in chunks of rows."""
    return da.from_array(x, chunks=(ROWS // 8, *x.shape[1:]))


def singular_values() -> Any:
    """Return the ten largest singular values that Dask finds."""
    return da.linalg.svd_compressed(tall(TALL), 10, n_power_iter=4, seed=0)[1]


# What Dask computes, and NumPy's result in float64.
FUNCTIONS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "`da.matmul`": (lambda: da.matmul(square(A), square(B)), lambda: double(A) @ double(B)),
    "`da.tensordot`": (
        lambda: da.tensordot(square(A), square(B), axes=1),
        lambda: double(A) @ double(B),
    ),
    "`da.dot`": (lambda: da.dot(square(A), square(B)), lambda: double(A) @ double(B)),
    "`da.einsum`": (
        lambda: da.einsum("ij,kj->ik", square(A), square(B)),
        lambda: double(A) @ double(B).T,
    ),
    "`da.einsum(..., optimize=True)`": (
        lambda: da.einsum("ij,kj->ik", square(A), square(B), optimize=True),
        lambda: double(A) @ double(B).T,
    ),
    "`da.linalg.svd_compressed`": (
        singular_values,
        lambda: np.linalg.svd(double(TALL), compute_uv=False)[:10],
    ),
    "`da.linalg.lstsq`": (
        lambda: da.linalg.lstsq(tall(TALL), tall(RIGHT))[0],
        lambda: np.linalg.lstsq(double(TALL), double(RIGHT), rcond=None)[0],
    ),
}


def double(x: Any) -> Any:
    """Return an array in double precision."""
    return x.astype(np.float64)


def error(found: Any, expected: Any) -> float:
    """Return the largest error relative to the largest element."""
    return float(abs(found - expected).max() / abs(expected).max())


def with_workers() -> dict[str, tuple[str, float, float]]:
    """Return for each function the products offloaded per worker, and both sides' errors."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        results = {}
        for name, (function, expected) in FUNCTIONS.items():
            plain = error(function().compute(), expected())
            client.register_plugin(clgemm.dask.Accelerate(threshold=0))
            ours = error(function().compute(), expected())
            workers = clgemm.dask.report(client).workers
            counts = " + ".join(str(worker.offloaded) for worker in workers)
            results[name] = counts, ours, plain
            print(name, counts, ours, plain, file=sys.stderr)
            client.unregister_worker_plugin("clgemm")  # the next function is counted from 0 on
        return results


def with_threads() -> dict[str, tuple[str, float]]:
    """Return for each function the products that threads offload, and the error."""
    results = {}
    for name, (function, expected) in FUNCTIONS.items():
        with clgemm.accel.enabled(threshold=0):
            found = function().compute(scheduler="threads")
        results[name] = str(clgemm.accel.report().offloaded), error(found, expected())
    return results


def main() -> None:
    """Measure, and write the table's data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", type=Path, default=Path(sys.path[0]) / "measured" / "dask_functions.json"
    )
    file = parser.parse_args().json
    processes, threads = with_workers(), with_threads()
    device = clgemm.get_device()
    rows = [
        [name, counts, f"{ours:.1e}", threads[name][0], f"{threads[name][1]:.1e}", f"{plain:.1e}"]
        for name, (counts, ours, plain) in processes.items()
    ]
    table = {
        "title": "Products offloaded, and the largest error against NumPy in float64",
        "device": device.label,
        "driver": str(device.cl_device.driver_version),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": "python docs/dask_functions.py",
        "notes": [
            f"Square matrices of {SIDE} in chunks of {CHUNK}.",
            f"Tall matrices of {ROWS} × {COLUMNS} in 8 chunks.",
            "Two worker processes with one thread each, each on its own part of the processor.",
            "Error: relative to the largest element of the result.",
        ],
        "columns": [
            "function",
            "2 processes: products of each",
            "error",
            "threads: products",
            "error",
            "NumPy's workers: error",
        ],
        "align": "lrrrrr",
        "rows": rows,
    }
    file.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
