"""Compare settings of transfers on a device, in turns.

    python docs/measure_transfers.py [--sizes 4096,8192,16384] [--rounds 5] [--settings TEXT ...]
                                     [--device D] [--out FILE]

Each product is made as ``sgemm`` into an array that is there and as ``matmul`` to a new one. Some
rows of each result are compared with those of the first. A device that shares the host's memory
takes copies here, too, so that the script can be tried.

Writes the medians as a table for docs/render.py.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import time
from dataclasses import fields, replace
from pathlib import Path
from statistics import median

import numpy as np

from clgemm.core.settings import chosen_precision
from clgemm.core.transfer import TransferConfig
from clgemm.hardware.choice import find_device, get_device
from clgemm.hardware.device import transfer_config
from clgemm.runtime import kept_memory
from clgemm.runtime.workspace import workspace
from clgemm.transfer.multiply import multiply_through
from clgemm.transfer.staging import Staging
from clgemm.transfer.tiles import TiledProduct

FILE = Path(__file__).parent / "measured" / "h200_transfers.json"
DEFAULT = "**the default**"
SETTINGS = (
    "threads=6",
    "threads=16",
    "chunk_bytes=2MiB,chunks=32",
    "chunk_bytes=8MiB",
    "chunks=8",
    "tiles=8",
    "edge_bytes=2MiB,ramp=1",
    "square=2,square_bytes=0",
)
MOST_FORCED_BYTES = 2**32
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def config_of(device) -> TransferConfig:
    """Return how host arrays reach a device. One that shares the host's memory takes copies."""
    memory_bytes = min(device.cl_device.global_mem_size // 2, MOST_FORCED_BYTES)
    forced = TransferConfig(memory_bytes=memory_bytes, threads=min(os.cpu_count() or 1, 8))
    return transfer_config(device) or forced


def changed(config: TransferConfig, text: str) -> TransferConfig:
    """Return a config with settings changed, such as ``threads=16,chunk_bytes=4MiB``.

    Raises
    ------
    ValueError
        If there is no such setting or its value is no whole number; the message names it.
    """
    known = [field.name for field in fields(TransferConfig)]
    for item in text.split(","):
        name, _, value = (part.strip() for part in item.partition("="))
        if name not in known:
            raise ValueError(f"{item!r} is not name=value with one of {', '.join(known)}")
        unit = UNITS.get(value[-3:], 1)
        try:
            number = int(float(value[:-3]) * unit) if unit > 1 else int(value)
        except ValueError:
            raise ValueError(f"{name}={value!r} is not a whole number") from None
        config = replace(config, **{name: number})
    return replace(config, pool_chunks=max(config.pool_chunks, 2 * config.chunks))


def measured(device, settings: list[str], n: int, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of both products of two n x n matrices, by settings."""
    plain = config_of(device)
    stagings = {DEFAULT: Staging(device, plain)}
    for text in settings:
        stagings[f"`{text}`"] = Staging(device, changed(plain, text))
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((n, n), np.float32) for _ in "ab")
    product = TiledProduct(1.0, 0.0, chosen_precision(), device, workspace(device.queue), ())
    kept, expected = np.zeros_like(a), np.empty_like(a)
    multiply_through(stagings[DEFAULT], product, a, b, expected)
    some = rng.integers(0, n, 64)
    times: dict[str, list[list[float]]] = {name: [[], []] for name in stagings}
    for number in range(rounds + 1):
        for name, staging in stagings.items():
            for which, own in enumerate(times[name]):
                begin = time.perf_counter()
                c = kept if which == 0 else kept_memory.empty_result((n, n), "C")
                multiply_through(staging, product, a, b, c)
                if number:  # the first round pins memory
                    own.append(1e3 * (time.perf_counter() - begin))
                if not np.allclose(c[some], expected[some], 1e-4, 1e-6 * n):
                    raise SystemExit(f"WRONG with {name}, n = {n}")
            kept[:] = 0
    return {name: [median(each) for each in own] for name, own in times.items()}


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", default="4096,8192,16384", help="sides of the matrices")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--settings", nargs="*", default=SETTINGS, help="such as tiles=8,chunk_bytes=4MiB"
    )
    parser.add_argument("--device", help="as CLGEMM_DEVICE")
    parser.add_argument("--out", type=Path, default=FILE)
    args = parser.parse_args()
    device = find_device(args.device) if args.device else get_device()
    sizes = [int(size) for size in args.sizes.split(",")]
    try:
        for text in args.settings:
            changed(config_of(device), text)
    except ValueError as error:
        parser.error(str(error))
    found = [measured(device, list(args.settings), n, args.rounds) for n in sizes]

    def ms(value: float) -> str:
        return f"{value:.{2 if value < 2 else 1 if value < 100 else 0}f}"

    rows = [[name, *(" / ".join(map(ms, each[name])) for each in found)] for name in found[0]]
    for row in rows:
        print("  ".join(row))
    table = {
        "title": "`sgemm` into an array / `matmul` to a new one, by settings of transfers, ms",
        "device": f"{device.name}, {os.cpu_count()} processors",
        "driver": str(device.cl_device.driver_version),
        "date": f"{datetime.date.today()}",
        "command": "python docs/measure_transfers.py",
        "columns": ["settings", *map(str, sizes)],
        "align": "l" + "r" * len(sizes),
        "rows": rows,
        "notes": [f"Medians of {args.rounds} rounds, in turns. Other settings as the default's."],
    }
    args.out.write_text(json.dumps(table, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
