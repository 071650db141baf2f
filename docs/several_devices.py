"""Several devices on paper: how much faster 2, 4 and 8 GPUs are than one, for NumPy arrays.

    python docs/several_devices.py [--json FILE]

The schedule is clgemm's own: `clgemm.planning.tiles` cuts the product, and
`clgemm.planning.schedule` gives tiles to devices. Only time is computed instead of spent. Rates are
those of an H200 (docs/measured/bench_h200.json) and of its link.

A device works at a draw, which is some tiles of one band, as the pipeline does: it gets the band's
block of B, then the rows of A tile by tile; it multiplies a tile once its rows are there and the
tile before is done; each result goes back meanwhile. Two cases bound what is to be expected:

    link     each device moves bytes at the rate of its own link, both ways at once
    copying  all bytes pass through pinned memory, and the host's processors copy them for all
             devices together, both ways; a device's part of that is one channel
"""

from __future__ import annotations

import argparse
import heapq
import json
from pathlib import Path
from typing import NamedTuple

from clgemm.planning.schedule import WAIT, Draw, Drawer, Schedule
from clgemm.planning.tiles import Party, TileGrid, spread_grid

HERE = Path(__file__).parent
SIZES = (16384, 32768, 49152)
DEVICES = (1, 2, 4, 8)
LINK = 55e9  # bytes a second each way: pinned memory to an H200, measured in 2026-11
COPYING = 50e9  # bytes a second: memcpy by 16 threads beside it, measured in 2026-11
ITEM = 4  # bytes
AGAIN = 1e-3  # seconds until a device that may not draw asks again


class Rates(NamedTuple):
    """What bounds a device.

    Attributes
    ----------
    product : float
        Multiply-adds a second.
    link : float
        Bytes a second of its link, each way.
    copying : float
        Bytes a second that the host copies for one device; 0 if nothing is copied.
    """

    product: float
    link: float
    copying: float = 0.0


def product_rate() -> float:
    """Return the multiply-adds a second of an H200 on operands that it holds."""
    found = json.loads((HERE / "measured" / "bench_h200.json").read_text(encoding="utf-8"))
    cases = [case for case in found["cases"] if case["group"] == "square"]
    largest = max(cases, key=lambda case: case["n"])
    return float(largest["n"] ** 3 / largest["device"][0]["time_s"]["median"])


def draw_seconds(grid: TileGrid, draw: Draw, rates: Rates) -> float:
    """Return how long a device takes for a draw, beginning with nothing on the device."""
    speed = min(rates.link, rates.copying or rates.link)
    columns = grid.bands[draw.band][0][-1]
    wide = columns.stop - columns.start
    up = ITEM * grid.depth * wide / speed
    computed = down = 0.0
    for rows, _ in grid.bands[draw.band][draw.first : draw.stop]:
        tall = rows.stop - rows.start
        up += ITEM * grid.depth * tall / speed
        computed = max(computed, up) + grid.depth * tall * wide / rates.product
        back = ITEM * tall * wide / speed
        if rates.copying:  # one channel for both ways
            up += back
        down = max(down, computed) + back
    return max(down, up)


def seconds(n: int, rates: list[Rates]) -> float:
    """Return the time of an n x n product of n x n matrices on devices of these rates."""
    if len(rates) == 1:  # one draw of all
        rows = max(n // 8, 256)
        tiles = tuple((slice(i, min(i + rows, n)), slice(0, n)) for i in range(0, n, rows))
        return draw_seconds(TileGrid((tiles,), True, n), Draw(0, 0, len(tiles)), rates[0])
    grid = spread_grid((n, n), n, [Party(compute_units=132, in_place=False)] * len(rates))
    if grid is None:
        return seconds(n, rates[:1])
    wide = grid.bands[0][0][-1]
    setup_s = [
        ITEM * n * (wide.stop - wide.start) / min(r.link, r.copying or r.link) for r in rates
    ]
    drawers = [Drawer(rate.product, setup) for rate, setup in zip(rates, setup_s, strict=True)]
    schedule = Schedule(grid, drawers)
    events = [(0.0, who) for who in range(len(rates))]
    end = 0.0
    while events:
        now, who = heapq.heappop(events)
        if drawers[who].held is not None:
            schedule.finished(who, now)
            end = now
        drawn = schedule.draw(who, now)
        if drawn is WAIT:
            heapq.heappush(events, (now + AGAIN, who))
        elif drawn is not None:
            heapq.heappush(events, (now + draw_seconds(grid, drawn, rates[who]), who))
    return end


def table() -> list[list[str]]:
    """Return a row for each case and size."""
    product, rows = product_rate(), []
    for name, copying in (("link", 0.0), ("copying", COPYING)):
        for n in SIZES:
            times = [seconds(n, [Rates(product, LINK, copying / c)] * c) for c in DEVICES]
            gains = [f"{times[0] / time:.2f}" for time in times[1:]]
            rows.append([name, f"{n:,}", f"{1e3 * times[0]:,.0f}", *gains])
    return rows


def main() -> None:
    """Compute, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=HERE / "measured" / "several_devices.json")
    file = parser.parse_args().json
    rows = table()
    for row in rows:
        print(*row, sep="\t")
    found = {
        "title": "Several H200s on paper: times as fast as one, products of NumPy arrays",
        "device": "none: computed for NVIDIA H200s",
        "driver": "none",
        "date": "2026-11-23",
        "command": "python docs/several_devices.py",
        "notes": [
            "Computed by clgemm's own schedule from measured rates, not measured.",
            f"Product: {2e-12 * product_rate():.0f} TFLOP/s, as bench measured.",
            f"Link: {LINK / 1e9:.0f} GB/s each way for each device.",
            f"Copying: {COPYING / 1e9:.0f} GB/s for all devices together, both ways.",
            "Square matrices.",
        ],
        "columns": ["bound by", "size", "one device, ms", *(f"{c} devices" for c in DEVICES[1:])],
        "align": "lr" + "r" * len(DEVICES),
        "rows": rows,
    }
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
