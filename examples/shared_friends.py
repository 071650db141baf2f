"""Counts the friends that two people share, for all pairs, in plain NumPy.

It knows nothing of clgemm or of OpenCL devices. Each year is one product of int32 matrices.

    python examples/shared_friends.py [--people N] [--years N]
    python -m clgemm.accel --profile examples/shared_friends.py
"""

from __future__ import annotations

import argparse
import time

import numpy as np


def main() -> None:
    """Count, year by year."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=1200)
    parser.add_argument("--years", type=int, default=8)
    args = parser.parse_args()
    random = np.random.default_rng(0)
    start = time.perf_counter()
    for year in range(1, args.years + 1):
        friends = (random.random((args.people, args.people)) < 0.01).astype(np.int32)
        shared = friends @ friends.T
        np.fill_diagonal(shared, 0)
        seconds = time.perf_counter() - start
        print(f"year {year}: two people share {shared.max()} friends, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
