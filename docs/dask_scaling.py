"""Scaling on paper: a 200,000 x 200,000 product on 1 to 64 workers with one GPU each.

    python docs/dask_scaling.py [--plot FILE]

Rates are those that ``bench`` measured on an H200 (docs/measured/bench_h200.json): a product of
NumPy arrays, both transfers over the link included, by its size. The network is an assumption.

Dask computes a product of matrices in N/c x N/c chunks as (N/c)^3 products of chunks. A worker
multiplies 1/W of them, one after the other. Of the two operands of each, a share of 1 - 1/W lies at
other workers and comes over the network, as Dask promises no reuse of what was fetched; partial
products stay where they are added. Computing and fetching overlap: the longer one counts.

    compute = (N/c)^3 t(c) / W          t(c): seconds of a product of chunks, link included
    fetch   = (N/c)^3 8 c^2 (1 - 1/W) / W / network

Both fall as 1/W. For many workers the network bounds the product, however many they are, if
8 c^2 / network > t(c) = 2 c^3 / rate, that is for chunks below c = 4 rate / network (the rate in
operations a second). The best chunks are the largest that leave each worker some products and that
its memory holds several of.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

HERE = Path(__file__).parent
N = 200_000
WORKERS = (1, 2, 4, 8, 16, 32, 64)
CHUNKS = (1000, 2000, 4000, 8000, 12_500, 25_000)  # that divide N
NETWORKS = {"10 Gbit/s": 10e9 / 8, "100 Gbit/s": 100e9 / 8}  # bytes a second
MEMORY_BYTES = 128e9  # of a worker
HELD = 3  # times a product's chunks, as `clgemm.dask.suggest_chunks` counts


def rates() -> tuple[Any, Any]:
    """Return sizes of square products, and the multiply-adds a second that bench measured."""
    found = json.loads((HERE / "measured" / "bench_h200.json").read_text(encoding="utf-8"))
    square = {
        case["n"]: case["n"] ** 3 / case["host"][0]["time_s"]["median"]
        for case in found["cases"]
        if case["group"] == "square"
    }
    sizes = sorted(square)
    return np.array(sizes), np.array([square[size] for size in sizes])


def rate(chunk: int) -> float:
    """Return multiply-adds a second at a size: between those measured, and not above them."""
    sizes, found = rates()
    return float(np.exp(np.interp(np.log(chunk), np.log(sizes), np.log(found))))


def parts(chunk: int, workers: int, network: float) -> tuple[float, float]:
    """Return the seconds of computing and of fetching."""
    blocks = -(-N // chunk)
    products = -(-(blocks**3) // workers)  # of the worker that has the most
    compute = products * chunk**3 / rate(chunk)
    fetch = products * 8 * chunk**2 * (1 - 1 / workers) / network
    return compute, fetch


def seconds(chunk: int, workers: int, network: float) -> float:
    """Return the time of the whole product."""
    return max(parts(chunk, workers, network))


def fits(chunk: int) -> bool:
    """Tell whether a worker's memory holds the chunks of the products that it is busy with."""
    return HELD * 3 * 4 * chunk**2 <= MEMORY_BYTES


def best(workers: int, network: float) -> int:
    """Return the chunk size of the least time."""
    return min(filter(fits, CHUNKS), key=lambda chunk: seconds(chunk, workers, network))


def draw(path: Path) -> None:
    """Plot the times over the workers, one picture for each network."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True, layout="constrained")
    for axes, (name, network) in zip(both, NETWORKS.items(), strict=True):
        for chunk in CHUNKS:
            times = [seconds(chunk, workers, network) for workers in WORKERS]
            axes.plot(WORKERS, times, marker="o", markersize=3, label=f"chunks of {chunk:,}")
        ideal = [parts(CHUNKS[-1], 1, network)[0] / workers for workers in WORKERS]
        axes.plot(WORKERS, ideal, "k--", linewidth=1, label="no network")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(WORKERS, [str(workers) for workers in WORKERS])
        axes.set_xlabel("workers with one H200 each")
        axes.set_title(f"network of {name}")
        axes.grid(alpha=0.3)
    both[0].set_ylabel("seconds")
    both[1].legend(fontsize=8)
    figure.suptitle(f"{N:,} x {N:,} by {N:,} x {N:,}, computed from measured rates")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print a table for each network, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path, default=HERE / "dask_scaling.png")
    for name, network in NETWORKS.items():
        print(f"network of {name}: seconds")
        print("workers", *(f"{c:>8,}" for c in CHUNKS), "    best  bound by", sep="\t")
        for workers in WORKERS:
            chosen = best(workers, network)
            compute, fetch = parts(chosen, workers, network)
            times = [f"{seconds(chunk, workers, network):8,.0f}" for chunk in CHUNKS]
            bound = "network" if fetch > compute else "GPU and link"
            print(workers, *times, f"{chosen:8,}  {bound}", sep="\t")
        bounded = [f"{chunk:,}" for chunk in CHUNKS if 8 * rate(chunk) / network > chunk]
        print(f"chunks for which the network is slower: {', '.join(bounded) or 'none'}\n")
    draw(parser.parse_args().plot)


if __name__ == "__main__":
    main()
