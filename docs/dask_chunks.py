"""Measure how the chunk size of a Dask product trades with its time, and plot it.

    python docs/dask_chunks.py [--side N] [--json FILE] [--plot FILE]

Two worker processes with one thread each multiply chunked matrices, with NumPy and with NumPy
accelerated in turns. Times are printed as ratios: of each chunk size to NumPy's best, in the same
run. Other programs on the machine disturb both sides alike.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import matplotlib as mpl
import numpy as np
from distributed import Client, LocalCluster, wait

import clgemm.dask

CHUNKS = (256, 512, 1024, 2048)
TICKS = (1, 2, 3, 5, 10, 20)
HERE = Path(__file__).parent


def seconds(client: Client, side: int, chunk: int) -> float:
    """Return what a product of operands that the workers hold takes."""
    state = da.random.default_rng(0)
    a = state.random((side, side), chunks=chunk, dtype=np.float32).persist()
    wait(a)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dask.array.PerformanceWarning)  # small chunks are the point
        product = da.matmul(a, a)
    start = time.perf_counter()
    c = client.persist(product)
    wait(c)
    spent = time.perf_counter() - start
    del c, product, a
    return spent


def measure(side: int, rounds: int) -> dict[int, dict[str, list[float]]]:
    """Return the seconds of each side by the chunk size; the sides take turns."""
    times: dict[int, dict[str, list[float]]] = {c: {"NumPy": [], "clgemm": []} for c in CHUNKS}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for turn in range(rounds + 1):
            for name in ("NumPy", "clgemm"):
                if name == "clgemm":
                    client.register_plugin(clgemm.dask.Accelerate(threshold=0))
                for chunk in CHUNKS:
                    spent = seconds(client, side, chunk)
                    if turn:  # the first compiles
                        times[chunk][name].append(spent)
                if name == "clgemm":
                    print(clgemm.dask.report(client), file=sys.stderr)
                    client.unregister_worker_plugin("clgemm")
    return times


def draw(ratios: dict[str, list[float]], side: int, path: Path) -> None:
    """Plot the ratios over the chunk size."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, values in ratios.items():
        axes.plot(CHUNKS, values, marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(CHUNKS, [str(chunk) for chunk in CHUNKS])
    axes.set_yticks(TICKS, [str(tick) for tick in TICKS])
    axes.set_xlabel("side of a chunk")
    axes.set_ylabel("time, as a multiple of NumPy's best")
    axes.set_title(f"{side} x {side} by {side} x {side} on two workers of one thread each")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path, default=HERE / "measured" / "dask_chunks.json")
    parser.add_argument("--plot", type=Path, default=HERE / "dask_chunks.png")
    arguments = parser.parse_args()
    times = measure(arguments.side, arguments.rounds)
    best = min(min(both["NumPy"]) for both in times.values())
    ratios = {
        name: [min(times[chunk][name]) / best for chunk in CHUNKS] for name in ("NumPy", "clgemm")
    }
    rows: list[list[Any]] = []
    for i, chunk in enumerate(CHUNKS):
        blocks = -(-arguments.side // chunk)
        one = f"{ratios['NumPy'][i]:.2f}", f"{ratios['clgemm'][i]:.2f}"
        rows.append([str(chunk), f"{blocks**3:,}", *one])
        print(*rows[-1], sep="\t")
    device = clgemm.get_device()
    table = {
        "title": "Time of a Dask product by the side of its chunks, as a multiple of NumPy's best",
        "device": device.label,
        "driver": str(device.cl_device.driver_version),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": "python docs/dask_chunks.py",
        "notes": [
            f"Square matrices of {arguments.side}; two worker processes with one thread each.",
            "Every product on the device (threshold 0). Times: the least of the rounds.",
            "Other programs used the machine: only ratios of the same run are told.",
        ],
        "columns": ["side of a chunk", "products", "NumPy", "clgemm"],
        "align": "rrrr",
        "rows": rows,
    }
    text = json.dumps(table, indent=1, ensure_ascii=False)
    arguments.json.write_text(text + "\n", encoding="utf-8")
    draw(ratios, arguments.side, arguments.plot)


if __name__ == "__main__":
    main()
