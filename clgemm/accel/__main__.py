"""Run an unmodified program with accelerated NumPy: ``python -m clgemm.accel program.py``."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from clgemm import __version__
from clgemm.accel.run import run, run_code, run_input
from clgemm.core.imports import after_import, set_during_import
from clgemm.terminal import whole

EPILOG = """
Without --threshold and --side, each product is computed where it takes less time. NumPy computes
all products until the device is ready, which child processes of low priority see to; what they have
built and measured is kept. 'python -m clgemm warmup' does all of that at once.
"""
NO_DEVICE = 2  # the exit code of `warmup` if no device works
# After a product, threads of NumPy's OpenBLAS spin for 2**28 cycles, a tenth of a second, and take
# cores from copies and launches. With this setting they sleep after 2**26, 20 to 30 milliseconds.
# Much sooner, programs that NumPy computes alone lose by waking them.
SPINNING = "OPENBLAS_THREAD_TIMEOUT", "26"


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
        "--side",
        choices=["auto", "host", "device"],
        help="compute products on the faster side (auto), by NumPy, or on the device, if it can",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="prepare the device first, as 'python -m clgemm warmup' does",
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
        install = _prepared(args)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    if args.program is None:
        return 0
    if args.profile:
        atexit.register(_print_report, os.getpid())
    # NumPy is accelerated once the program imports it: until then this process loads nothing.
    set_during_import("numpy", *SPINNING)
    after_import("numpy", install)
    if args.progress:
        from clgemm import progress
        from clgemm.terminal import show_share

        progress(show_share).__enter__()  # for the program's main thread, to its end
    if args.code:
        run_code(args.program, args.arguments)
    elif args.program == "-" and not args.is_module:
        run_input(args.arguments)
    else:
        run(args.program, args.arguments, args.is_module)
    return 0


def _prepared(args: argparse.Namespace) -> Any:
    """Check the arguments and the settings, and return a function that accelerates NumPy.

    Raises
    ------
    RuntimeError, ValueError
        As `install`.
    SystemExit
        If the device cannot be prepared first.
    """
    from clgemm.side.settings import least_of, require_settings

    require_settings()
    device = None
    if args.device is not None:
        from clgemm.hardware.choice import ENVIRONMENT_VARIABLE, find_devices, set_device

        chosen = find_devices(args.device)
        device = chosen[0] if len(chosen) == 1 else None
        if device is None:
            set_device(*chosen)
            os.environ[ENVIRONMENT_VARIABLE] = args.device  # of processes that the program starts
    if args.measure:
        from clgemm.trials.warm import main as warm

        with contextlib.redirect_stdout(sys.stderr):  # the other one is the program's
            code = warm(argparse.Namespace(device=args.device, json=False))
        if code == NO_DEVICE or (code and args.program is None):
            raise SystemExit(code)
    if args.children:  # at once: the program itself need not import NumPy
        from clgemm.accel.children import accelerate_children

        accelerate_children(least_of(args.threshold, args.side), device)

    def install() -> None:
        from clgemm.accel.session import install

        try:
            install(
                *(args.threshold, device),
                profile=args.profile,
                children=args.children,
                side=args.side,
            )
        except RuntimeError as error:  # in the program's import of NumPy, which must not fail
            print(f"clgemm: this process uses plain NumPy: {error}", file=sys.stderr)

    return install


def _print_report(process: int) -> None:
    if os.getpid() != process or "numpy" not in sys.modules:
        return
    from clgemm.accel.advice import advisor
    from clgemm.accel.reporting import HEADS
    from clgemm.accel.session import report
    from clgemm.terminal import print_table

    found = report()
    rows = found.cells()
    for where, on_device in (("device", True), ("host", False)):
        side = [row for row in found.rows if (not row.reason) == on_device]
        calls, seconds = sum(row.calls for row in side), sum(row.seconds or 0 for row in side)
        rows.append(("all", f"{calls:,}", where, f"{seconds:.3f}"))
    with contextlib.redirect_stdout(sys.stderr):
        print_table(
            f"Matrix products on {found.device or 'the host alone'}",
            HEADS,
            ("left", "right", "left", "right"),
            rows,
        )
        sentences = found.why_nothing, found.saved, found.preparing, found.children, *found.left_out
        sentences = *sentences, *advisor.sentences()
        for sentence in filter(None, sentences):
            print(sentence)


if __name__ == "__main__":
    sys.exit(main())
