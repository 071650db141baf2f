"""Several GPUs on paper: how much faster 2, 4 and 8 are than one, for NumPy arrays.

    python docs/several_devices.py [--json FILE]

The tiles and their order are clgemm's own (`clgemm.core.transfer.make_stream`). Only time is
computed instead of spent. The rates were measured: those of an H200's products
(docs/measured/h200_squares.json), of its link, and of the threads that copy.

A piece of an operand is copied to pinned memory, and goes over the links of all devices that need
it: B to all, a row of A to one. A device multiplies a tile once its operands are there and the tile
before is done. The result goes back in pieces, which the same threads copy to where they belong.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
from pathlib import Path
from typing import NamedTuple

from clgemm.planning.selection import SQUARE, SQUARE_BYTES

from clgemm.core.transfer import FLOAT_BYTES, Tile, make_stream
from clgemm.core.transfer_config import TransferConfig

HERE = Path(__file__).parent
SIZES = (16384, 32768, 49152)
DEVICES = (1, 2, 4, 8)
# Multiply-adds a second at 8192 cubed, `strict` and `float32`, on an H200 (2026-11-24).
PRODUCT = {"strict": 2.43e13, "float32": 1.23e14}
LINK = 54e9  # bytes a second each way: pinned memory to an H200 or H100, several at once
# Bytes a second that the threads copy: found in a product beside 16 and 32 Xeon cores, on good days
# and on bad ones (2026-11).
COPYING = (30e9, 50e9)
MEMORY_BYTES = 70 * 2**30  # of a device, for one product
LARGEST_BYTES = 35 * 2**30
CONFIG = TransferConfig(MEMORY_BYTES, 10, square=SQUARE, square_bytes=SQUARE_BYTES)


class Rates(NamedTuple):
    """Multiply-adds a second of a device; bytes a second of its link and of the host's copies."""

    product: float
    link: float
    copying: float


def pieces(size_bytes: int) -> list[int]:
    """Return the bytes of the pieces of a block."""
    count = math.ceil(size_bytes / CONFIG.chunk_bytes)
    return [CONFIG.chunk_bytes] * (count - 1) + [size_bytes - CONFIG.chunk_bytes * (count - 1)]


def bytes_of(tile: Tile, operand: int) -> int:
    """Return the size of a tile's block."""
    return FLOAT_BYTES * math.prod(s.stop - s.start for s in tile.blocks[operand])


def seconds(n: int, devices: int, rates: Rates) -> float:
    """Return the time of an n x n product of n x n matrices on equal devices."""
    sizes = n // devices, n, n
    tiles = make_stream((), sizes, ((), ()), False, CONFIG, LARGEST_BYTES).tiles
    now = 0.0  # of the threads that copy
    sent, received, idle = ([0.0] * devices for _ in range(3))  # until when links and devices work
    results: list[tuple[float, int]] = []  # pieces: when they are in pinned memory, and bytes

    def copy_results(until: float) -> None:
        nonlocal now
        while results and results[0][0] <= until:
            ready, size = heapq.heappop(results)
            now = max(now, ready) + size / rates.copying

    for tile in tiles:
        for device in range(devices):
            for operand in tile.loads:
                if operand == 1 and device:
                    continue  # B has come with that of the first device
                takers = range(devices) if operand == 1 else (device,)
                for size in pieces(bytes_of(tile, operand)):
                    copy_results(now)
                    now += size / rates.copying
                    for taker in takers:
                        sent[taker] = max(sent[taker], now) + size / rates.link
        for device in range(devices):
            rows, columns = (s.stop - s.start for s in tile.blocks[2])
            begin = max(sent[device], idle[device])
            idle[device] = begin + rows * columns * n / rates.product
            received[device] = max(received[device], idle[device])
            for size in pieces(bytes_of(tile, 2)):
                received[device] += size / rates.link
                heapq.heappush(results, (received[device], size))
    copy_results(math.inf)
    return now


def table() -> list[list[str]]:
    """Return a row for each mode, rate of copying and size."""
    rows = []
    for mode, product in PRODUCT.items():
        for copying in COPYING:
            for n in SIZES:
                times = [seconds(n, count, Rates(product, LINK, copying)) for count in DEVICES]
                gains = [f"{times[0] / time:.2f}" for time in times[1:]]
                label = f"`{mode}`", f"{copying / 1e9:.0f}", f"{n:,}"
                rows.append([*label, f"{1e3 * times[0]:,.0f}", *gains])
    return rows


def main() -> None:
    """Compute, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, default=HERE / "measured" / "several_devices.json")
    file = parser.parse_args().json
    rows = table()
    for row in rows:
        print(*row, sep="\t")
    found = {
        "title": "Several H200s on paper: times as fast as one, products of NumPy arrays",
        "device": "none: computed for NVIDIA H200s",
        "driver": "none",
        "date": "2026-11-25",
        "command": "python docs/several_devices.py",
        "notes": [
            "Computed from measured rates in the order of clgemm's own tiles, not measured.",
            "Product: {:.0f} and {:.0f} TFLOP/s.".format(*(2e-12 * x for x in PRODUCT.values())),
            f"Link: {LINK / 1e9:.0f} GB/s each way for each device.",
            "Copying: GB/s to and from pinned memory, for all devices together.",
            "Square matrices.",
        ],
        "columns": [
            "mode",
            "copying, GB/s",
            "size",
            "one device, ms",
            *(f"{count} devices" for count in DEVICES[1:]),
        ],
        "align": "lrrr" + "r" * len(DEVICES[1:]),
        "rows": rows,
    }
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
