"""Measure products of NumPy arrays on one, two and more equal GPUs of a machine, and draw them.

    python docs/measure_several.py [--sizes 16384,32768] [--batch 64x4096] [--rounds 3]
                                   [--devices 1,2,4] [--json FILE] [--plot FILE]

All numbers of devices take turns within a round, and each shares every product, also those that
clgemm would give to one. Some rows of each result are compared with those that NumPy computes in
float64. The bytes over each link are those of the transfers that clgemm enqueued.

First the links alone: pinned memory to all GPUs and back at the same time.

Writes a table for docs/render.py, with every time in it, and a picture.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
import numpy as np
import pyopencl as cl

import clgemm
from clgemm.transfer import several, tiles

HERE = Path(__file__).parent
FILE = HERE / "measured" / "several_gpus.json"
MODES = ("strict", "float32")
CHECKED_ROWS = 16
COLUMNS_AT_ONCE = 1024  # of B, in float64
LINK_BYTES = 2**28
ERROR = 1e-6  # by the root mean square of the result and of k: a wrong row has 1 by that of k
THREADS = min(32, os.cpu_count() or 1)


def filled(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return normal values, made by many threads."""
    out = np.empty(shape, np.float32)
    parts = np.array_split(out.reshape(-1, shape[-1]), 8 * THREADS)

    def fill(part: np.ndarray, number: int) -> None:
        np.random.default_rng((seed, number)).standard_normal(out=part, dtype=np.float32)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(fill, parts, range(len(parts))))
    return out


def expected_rows(a: np.ndarray, b: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return these rows of a @ b in float64; those of every matrix of a batch."""
    some = a[..., rows, :].astype(np.float64)

    def columns(first: int) -> np.ndarray:
        return some @ b[..., first : first + COLUMNS_AT_ONCE].astype(np.float64)

    with ThreadPoolExecutor(THREADS) as pool:
        return np.concatenate(list(pool.map(columns, range(0, b.shape[-1], COLUMNS_AT_ONCE))), -1)


class Bytes:
    """What goes over each link, in both directions."""

    def __init__(self) -> None:
        self.moved: Counter[tuple[int, bool]] = Counter()
        enqueue = tiles.enqueue_transfer

        def counting(queue: Any, is_up: bool, buffer: Any, offset: int, host: Any, before: Any):
            self.moved[queue.device.int_ptr, is_up] += host.nbytes
            return enqueue(queue, is_up, buffer, offset, host, before)

        tiles.enqueue_transfer = counting

    def of(self, devices: tuple[Any, ...], is_up: bool) -> list[int]:
        """Return the bytes of each device."""
        return [self.moved[device.cl_device.int_ptr, is_up] for device in devices]


def link_rates(devices: tuple[Any, ...]) -> dict[str, list[float]]:
    """Return bytes a second over each link: to the device, back, and both ways, all at once."""
    found: dict[str, list[float]] = {}
    flags = cl.mem_flags
    ends = []
    for device in devices:
        context = cl.Context([device.cl_device])
        queues = [cl.CommandQueue(context) for _ in "ab"]
        hosts, buffers = [], []
        for queue in queues:
            pinned = cl.Buffer(context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, LINK_BYTES)
            both = cl.map_flags.READ | cl.map_flags.WRITE
            host, _ = cl.enqueue_map_buffer(queue, pinned, both, 0, (LINK_BYTES,), np.uint8)
            host[:] = 1
            hosts.append((pinned, host))
            buffers.append(cl.Buffer(context, flags.READ_WRITE, LINK_BYTES))
        ends.append((queues, hosts, buffers))

    def copy(number: int, ways: str) -> float:
        queues, hosts, buffers = ends[number]
        begin = time.perf_counter()
        for _ in range(8):
            for way, queue, (_, host), buffer in zip("ud", queues, hosts, buffers, strict=True):
                if way in ways:
                    pair = (buffer, host) if way == "u" else (host, buffer)
                    cl.enqueue_copy(queue, *pair, is_blocking=False)
                    queue.flush()
        for queue in queues:
            queue.finish()
        return 8 * LINK_BYTES / (time.perf_counter() - begin)

    with ThreadPoolExecutor(len(devices)) as pool:
        for name, ways in ("to the device", "u"), ("back", "d"), ("each way, both at once", "ud"):
            for _ in range(2):  # the first copies warm up
                found[name] = list(pool.map(copy, range(len(devices)), [ways] * len(devices)))
        found["to the first alone"] = [copy(0, "u")]
    return found


def products(args: argparse.Namespace) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield the name of each product, the shape of its matrices, and its rounds."""
    for n in (int(size) for size in args.sizes.split(",") if size):
        yield f"{n:,}", (n, n), args.rounds if n < 32768 else max(1, args.rounds - 1)
    if args.batch:
        count, n = (int(part) for part in args.batch.split("x"))
        yield f"{count} of {n:,}", (count, n, n), args.rounds


class Product:
    """One product, its result checked each time.

    Attributes
    ----------
    error : float
        The largest of the last result, by the root mean square of the right one.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._a, self._b = filled(shape, 1), filled(shape, 2)
        self._c = np.zeros(shape, np.float32)
        self._rows = np.random.default_rng().choice(shape[-2], CHECKED_ROWS, replace=False)
        self._right = expected_rows(self._a, self._b, self._rows)
        self._scale = math.sqrt(np.mean(self._right**2))
        self.error = 0.0

    def seconds(self, devices: tuple[Any, ...], mode: str) -> float:
        """Make it on these devices, and return the time."""
        self._c[..., self._rows, :] = np.nan
        with clgemm.device(*devices), clgemm.precision(mode):
            begin = time.perf_counter()
            clgemm.matmul(self._a, self._b, out=self._c)
            took = time.perf_counter() - begin
        wrong = np.abs(self._c[..., self._rows, :] - self._right)
        self.error = float(np.max(wrong)) / self._scale
        if not self.error < ERROR * math.sqrt(self._a.shape[-1]):
            raise SystemExit(f"WRONG: {mode} on {len(devices)} devices: error {self.error:.2g}")
        return took


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Return what all products took, with what the machine is."""
    first = clgemm.devices()[0]
    every = tuple(device for device in clgemm.devices() if device.name == first.name)
    counts = [count for count in map(int, args.devices.split(",")) if count <= len(every)]
    found: dict[str, Any] = {
        "device": f"{max(counts)} {first.name}, {os.cpu_count()} processors",
        "driver": first.cl_device.driver_version,
        "date": datetime.date.today().isoformat(),
        "counts": counts,
        "links": link_rates(every[: max(counts)]),
        "cases": [],
    }
    for name, rates in found["links"].items():
        print(name, spread_of(rates), sep=": ")
    counter, gains, answers = Bytes(), several.is_faster_shared, []

    def shared(*product: Any) -> bool:
        answers.append(gains(*product))
        return True

    several.is_faster_shared = shared
    for label, shape, rounds in products(args):
        product = Product(shape)
        for mode in MODES:
            case: dict[str, Any] = {"size": label, "mode": mode, "counts": {}}
            for number in range(rounds + 1):
                for count in counts:
                    counter.moved.clear()
                    answers.clear()
                    took = product.seconds(every[:count], mode)
                    own = case["counts"].setdefault(str(count), {"s": []})
                    own["up"], own["down"] = (counter.of(every[:count], up) for up in (True, False))
                    own["chosen"], own["error"] = all(answers), product.error
                    if number:  # the first round pins memory
                        own["s"].append(took)
            found["cases"].append(case)
            print(
                label, mode, *(f"{count}: {milliseconds(case, count):.0f} ms" for count in counts)
            )
    return found


def milliseconds(case: dict[str, Any], count: int) -> float:
    """Return the median time of a product on so many devices."""
    return 1e3 * median(case["counts"][str(count)]["s"])


def spread_of(rates: list[float]) -> str:
    """Return the least and the greatest rate, and their sum."""
    low, high = min(rates) / 1e9, max(rates) / 1e9
    return f"{low:.0f} to {high:.0f} GB/s, {sum(rates) / 1e9:.0f} in all"


def table(found: dict[str, Any]) -> dict[str, Any]:
    """Return a table for docs/render.py, with all that was found in its details."""
    more = found["counts"][1:]
    rows = []
    for case in found["cases"]:
        one = milliseconds(case, 1)
        gains = [f"{one / milliseconds(case, count):.2f}" for count in more]
        chosen = [str(count) for count in more if case["counts"][str(count)]["chosen"]]
        last = case["counts"][str(more[-1])]
        moved = (f"{last[way][0] / 1e9:.1f}" for way in ("up", "down"))
        row = [case["size"], f"`{case['mode']}`", f"{one:,.0f}", *gains, *moved]
        rows.append([*row, " and ".join(chosen) or "no"])
    links = found["links"]
    names = {"up": f"GB to each of {more[-1]}", "down": "GB back from each"}
    return {
        "title": "Products of NumPy arrays on several GPUs: times as fast as one",
        **{name: found[name] for name in ("device", "driver", "date")},
        "command": "python docs/measure_several.py",
        "columns": [
            *("size", "mode", "one GPU, ms", *(f"{count} GPUs" for count in more)),
            *(*names.values(), "clgemm shares it between"),
        ],
        "align": "rlr" + "r" * len(more) + "rrl",
        "rows": rows,
        "notes": [
            "`matmul` into an array; medians; every product was made to be shared.",
            f"Pinned memory to all GPUs at once: {spread_of(links['to the device'])}.",
            f"Back: {spread_of(links['back'])}.",
            f"Both at once: {spread_of(links['each way, both at once'])}, each way.",
            f"To one GPU alone: {links['to the first alone'][0] / 1e9:.0f} GB/s.",
        ],
        "details": {name: found[name] for name in ("counts", "links", "cases")},
    }


def draw(found: dict[str, Any], path: Path) -> None:
    """Plot how much faster several devices are, a picture for each mode."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    counts = found["counts"]
    figure, both = plt.subplots(1, len(MODES), figsize=(9, 4.2), sharey=True, layout="constrained")
    for axes, mode in zip(both, MODES, strict=True):
        for case in found["cases"]:
            if case["mode"] == mode:
                gains = [milliseconds(case, 1) / milliseconds(case, count) for count in counts]
                axes.plot(counts, gains, marker="o", label=case["size"])
        axes.plot(counts, counts, "k--", linewidth=1, label="as many times")
        axes.set_xticks(counts)
        axes.set_xlabel("GPUs")
        axes.set_title(f"precision {mode}")
        axes.grid(alpha=0.3)
    both[0].set_ylabel("times as fast as one GPU")
    both[0].legend(fontsize=8)
    figure.suptitle(f"Products of NumPy arrays, {found['device']}, driver {found['driver']}")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", default="16384,32768,49152", help="sides of square matrices")
    parser.add_argument("--batch", default="64x4096", help="matrices of a batch, and their side")
    parser.add_argument("--rounds", type=int, default=3, help="one less from 32,768 on")
    parser.add_argument("--devices", default="1,2,4,8", help="numbers of devices")
    parser.add_argument("--json", type=Path, default=FILE)
    parser.add_argument("--plot", type=Path, default=HERE / "several_gpus.png")
    args = parser.parse_args()
    found = measured(args)
    args.json.write_text(json.dumps(table(found), indent=1) + "\n", encoding="utf-8")
    draw(found, args.plot)


if __name__ == "__main__":
    main()
