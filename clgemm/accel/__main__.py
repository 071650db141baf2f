"""Run an unmodified program with accelerated NumPy: ``python -m clgemm.accel program.py``."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import sys
from collections.abc import Sequence

from clgemm import __version__, get_device, progress, set_device
from clgemm.accel import install, report
from clgemm.accel.advice import why_nothing
from clgemm.accel.crossover import measure
from clgemm.accel.run import run, run_code, run_input
from clgemm.accel.session import host_matmul
from clgemm.hardware.choice import ENVIRONMENT_VARIABLE, find_devices
from clgemm.planning.crossovers import Crossovers
from clgemm.planning.selection import require_settings
from clgemm.terminal import print_table, product_bar, whole

EPILOG = """
Without --threshold, the device multiplies from the crossover on: the size from which on it is
faster than the host. It is measured once on this machine: by --measure for all kinds of products,
or for one kind by the first program that spends a second in large products of that kind. On most
CPUs with AVX-512, estimates serve until --measure.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program, and return the exit code unless the program ends the process."""
    parser = argparse.ArgumentParser(
        prog="python -m clgemm.accel", description=__doc__, epilog=EPILOG, allow_abbrev=False
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="count and time all products; print a table at the end",
    )
    parser.add_argument(
        "--threshold",
        type=whole,
        metavar="N",
        help="use the device for products of N or more multiply-adds; 0: for all products",
    )
    parser.add_argument(
        "--device",
        metavar="D",
        help='"gpu", "cpu", a position or part of a name; "all", or several with commas',
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="first measure from which size on the device is faster",
    )
    parser.add_argument(
        "--children",
        action="store_true",
        help="also accelerate Python processes that the program starts, unless they are forked",
    )
    parser.add_argument(
        "--progress",
        action="store_true",
        help="show on the error stream how far products are that take longer than two seconds",
    )
    parser.add_argument("--version", action="version", version=f"clgemm {__version__}")
    parser.add_argument(
        "-c",
        dest="code",
        nargs=argparse.REMAINDER,
        help="the program is this text; the rest of the line is its arguments",
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module")
    parser.add_argument(
        "program",
        nargs="?",
        help="a script, a folder, - for the standard input, or with -m a module",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")
    args = parser.parse_args(arguments)
    if args.code == []:
        parser.error("argument -c: expected a program")
    if args.code:
        args.program, args.arguments = args.code[0], args.code[1:]
    if args.program is None and not args.measure:
        parser.error("there is no program to run")
    try:
        require_settings()
        chosen = () if args.device is None else find_devices(args.device)
        device = chosen[0] if len(chosen) == 1 else None
        if len(chosen) > 1:
            set_device(*chosen)
            os.environ[ENVIRONMENT_VARIABLE] = args.device  # of processes that the program starts
        if args.measure:
            _print_crossovers(measure(device or get_device(), host_matmul()))
        if args.program is None:
            return 0
        if args.profile:
            atexit.register(_print_report, os.getpid())
        install(args.threshold, device, profile=args.profile, children=args.children)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    if args.progress:
        progress(product_bar()).__enter__()  # for the program's main thread, to its end
    if args.code:
        run_code(args.program, args.arguments)
    elif args.program == "-" and not args.is_module:
        run_input(args.arguments)
    else:
        run(args.program, args.arguments, args.is_module)
    return 0


def _print_crossovers(found: Crossovers) -> None:
    rows = [
        (kind, "never" if least is None else f"{least / 1e6:,.0f}") for kind, least in found.items()
    ]
    with contextlib.redirect_stdout(sys.stderr):
        print_table(
            "Sizes from which on the device is faster, transfers included",
            ("kind of product", "million multiply-adds"),
            ("left", "right"),
            rows,
        )


def _print_report(process: int) -> None:
    if os.getpid() != process:
        return
    found = report()
    rows = [
        (
            row.function,
            f"{row.calls:,}",
            f"host: {row.reason}" if row.reason else "device",
            "" if row.seconds is None else f"{row.seconds:.3f}",
        )
        for row in found.rows
    ]
    for where, on_device in (("device", True), ("host", False)):
        side = [row for row in found.rows if (not row.reason) == on_device]
        calls, seconds = sum(row.calls for row in side), sum(row.seconds or 0 for row in side)
        rows.append(("all", f"{calls:,}", where, f"{seconds:.3f}"))
    with contextlib.redirect_stdout(sys.stderr):
        print_table(
            f"Matrix products on {found.device or 'the host alone'}",
            ("function", "calls", "where and why", "seconds"),
            ("left", "right", "left", "right"),
            rows,
        )
        sentences = why_nothing(found), found.saved, found.children, *found.left_out
        for sentence in filter(None, sentences):
            print(sentence)


if __name__ == "__main__":
    sys.exit(main())
