"""The command ``python -m clgemm verify``."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from clgemm import __version__
from clgemm.core.traits import Identity
from clgemm.hardware.choice import find_device, get_device
from clgemm.hardware.device import Device, identify
from clgemm.info import installed_version
from clgemm.planning.planner import families
from clgemm.records.tuned import kernels_hash
from clgemm.records.verified import FORMAT, all_verified, file_name, own_folder
from clgemm.terminal import duration, meter, print_table, whole
from clgemm.verify.checks import Count, Tally, verify_contract, verify_family

MINUTES = 3.0
FAMILIES_SHARE = 0.6  # of the time
INTERRUPTED = 130  # the shell's exit code for a press of Ctrl-C


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--device", metavar="D", help="number, kind or part of a name")
    parser.add_argument(
        "--minutes",
        type=duration("minutes"),
        default=MINUTES,
        metavar="N",
        help="about how long; every config and part runs once at least (default: %(default)g)",
    )
    parser.add_argument(
        "--seed", type=whole, metavar="S", help="of the random operands (default: the time)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="where the device's file is written (default: verified in the cache folder)",
    )


def main(args: argparse.Namespace) -> int:
    """Verify a device and write its file.

    Returns
    -------
    int
        0; 1 if a product was wrong or the file could not be written; 2 if the arguments are wrong;
        130 if interrupted, without a file.
    """
    try:
        device = find_device(args.device) if args.device else get_device()
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    seed = int(time.time()) if args.seed is None else args.seed
    print(f"{device!r}: about {args.minutes:g} minutes, seed {seed}", flush=True)
    begin = time.monotonic()
    try:
        tally = verify(device, 60 * args.minutes, seed)
    except KeyboardInterrupt:
        return INTERRUPTED
    minutes = (time.monotonic() - begin) / 60
    _print(tally)
    who = identify(device)
    path = (own_folder() if args.folder is None else args.folder) / file_name(who)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(as_dict(who, tally, minutes, seed), indent=1)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        print(f"{path} was not written: {error.strerror or error}", file=sys.stderr)
        return 1
    all_verified.cache_clear()
    print(path)
    return int(tally.failures > 0)


def verify(device: Device, seconds: float, seed: int) -> Tally:
    """Run the contract on a device: every family by itself, then the public functions.

    Parameters
    ----------
    seconds : float
        About how long. Every config and every part runs once at least.
    seed : int
        Of the operands.
    """
    tally, rng = Tally(), np.random.default_rng(seed)
    begin = time.monotonic()
    able = families(device)
    report = meter()

    def spent(text: str) -> float:
        so_far = time.monotonic() - begin
        report(so_far, f"{text}: {tally.products} products, {tally.failures} wrong")
        return so_far

    def has_time(text: str, until: float) -> Callable[[], bool]:
        return lambda: spent(text) < until

    for number, family in enumerate(able, 1):
        until = FAMILIES_SHARE * seconds * number / len(able)
        verify_family(device, family, tally, rng, has_time(family.name, until))
    verify_contract(device, tally, rng, has_time("the contract", seconds))
    return tally


def as_dict(who: Identity, tally: Tally, minutes: float, seed: int) -> dict[str, Any]:
    """Return what the device's file holds."""
    return {
        "format": FORMAT,
        "device": who._asdict(),
        "date": date.today().isoformat(),
        "clgemm": __version__,
        "pyopencl": installed_version("pyopencl"),
        "python": platform.python_version(),
        "seed": seed,
        "minutes": round(minutes, 1),
        "families": {
            name: {
                "kernels": kernels_hash(name),
                "precisions": {mode: count.as_dict() for mode, count in modes.items()},
                "configs": tally.configs.get(name, []),
            }
            for name, modes in tally.families.items()
        },
        "contract": {name: count.as_dict() for name, count in tally.contract.items()},
        "failures": tally.messages,
    }


def _print(tally: Tally) -> None:
    rows = [
        (f"family {name}", mode, *_cells(count))
        for name, modes in tally.families.items()
        for mode, count in modes.items()
    ]
    rows += [(name, "all", *_cells(count)) for name, count in tally.contract.items()]
    print_table(
        f"{tally.products:,} products, {tally.failures:,} of them wrong:",
        ("what", "precision", "products", "elements", "wrong", "largest error / bound"),
        ("left", "left", "right", "right", "right", "right"),
        rows,
    )
    for message in tally.messages:
        print(message, file=sys.stderr)


def _cells(count: Count) -> tuple[str, str, str, str]:
    return f"{count.products:,}", f"{count.elements:,}", f"{count.failures:,}", f"{count.worst:.2g}"
