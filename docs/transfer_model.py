"""What each way to transfer should reach on an H200, by a model of its measured rates.

    python docs/transfer_model.py [--gflops N] [--caller-us N]

Rates: memcpy, link and page-locking beside an H200, as measured in 2026-11 (the table `RATES`).
The model knows no contention between copies and the link's own use of memory: measured times are
longer. Compare ways with one another, not with the clock.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from clgemm.bench.transfer_model import Rates, Task, product_tasks, simulate
from clgemm.bench.transfer_settings import GROUPS, changed, parsed
from clgemm.core.transfer import TransferConfig

SIZES = (4096, 8192, 16384)
RATES = Rates(
    link_gbps=55.0,
    copy_gbps=((1, 11.0), (2, 23.0), (4, 37.0), (8, 37.0), (16, 50.0)),
    lock_gbps=39.0,  # CL_MEM_USE_HOST_PTR: 6.8 ms for 256 MiB
    gflops=225_000.0,  # 4.9 ms at 8192
)
TODAY = TransferConfig(memory_bytes=70 * 2**30, threads=8)
MEASURED_MS = {4096: (6.4, 8.8), 8192: (22.0, 27.6), 16384: (147.0, 163.0)}
WANTED_MS = {4096: (4.5, 5.5), 8192: (14.0, 17.0), 16384: (70.0, 85.0)}
BASE = "threads=16,caller_copies=no,locking.loads=0.5"
TOGETHER = (
    f"{BASE},locking.results=0.5",
    f"{BASE},locking.results=0.5,locking.in_thread=yes",
    f"{BASE},locking.results=0.5,locking.in_thread=yes,prefault=populate",
    f"{BASE},locking.results=0.5,locking.in_thread=yes,prefault=populate,edge_bytes=1MiB",
    f"{BASE},locking.results=0.5,locking.in_thread=yes,prefault=populate,ramp=2,edge_bytes=1MiB",
    f"{BASE},locking.results=0.5,locking.in_thread=yes,prefault=populate,square=4",
    f"{BASE},locking.in_thread=yes,prefault=populate,square=8",
)
SHORTER = ("threads", "t"), ("caller_copies=no,", ""), ("locking.", "l."), ("populate", "yes")


def limit_s(n: int, rates: Rates) -> float:
    """Return the longest of the link's ways and the product: A and B go up, C comes down."""
    return max(8 * n * n / rates.link_gbps, 2 * n**3 / rates.gflops) / 1e9


def expected_s(n: int, settings: str, rates: Rates, out_new: bool) -> float:
    """Return the seconds of a product of n by n matrices by the model."""
    config = changed(TODAY, parsed(settings))
    tasks: list[Task] = product_tasks((n, n, n), config, rates, out_new)
    # The calling thread copies, too, while it waits.
    threads = config.threads + config.caller_copies
    return max(each.end for each in simulate(tasks, threads, rates.copies))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gflops", type=float, default=RATES.gflops)
    parser.add_argument("--caller-us", type=float, default=1e6 * RATES.caller_s)
    args = parser.parse_args()
    rates = replace(RATES, gflops=args.gflops, caller_s=args.caller_us / 1e6)
    print("milliseconds into an array that is there / to a new one, by the model\n")
    print(f"{'':72}" + "".join(f"{n:>18,}" for n in SIZES))

    def line(name: str, values: dict[int, tuple[float, ...]]) -> None:
        cells = (" / ".join(f"{each:6.1f}" for each in values[n]) for n in SIZES)
        print(f"{name:72}" + "".join(f"{cell:>18}" for cell in cells))

    line("limit: link or product", {n: (1e3 * limit_s(n, rates),) for n in SIZES})
    line("wanted", WANTED_MS)
    line("measured on 2026-11-22, settings as they are", MEASURED_MS)

    def model(settings: str) -> dict[int, tuple[float, ...]]:
        return {
            n: tuple(1e3 * expected_s(n, settings, rates, new) for new in (False, True))
            for n in SIZES
        }

    line("settings as they are", model(""))
    for group, alternatives in GROUPS.items():
        if group in ("way to lock", "locking again", "copies again"):
            continue
        print(f"{group}:")
        for settings in alternatives:
            line(f"  {settings}", model(settings))
    print("together:")
    for settings in TOGETHER:
        name = settings
        for long, short in SHORTER:
            name = name.replace(long, short)
        line(f"  {name}", model(settings))


if __name__ == "__main__":
    main()
