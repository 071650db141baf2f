"""The command line: ``python -m clgemm info | bench | tune | ladder``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code."""
    from clgemm import __version__
    from clgemm.bench import command as bench
    from clgemm.ladder import command as ladder
    from clgemm.planning.selection import require_settings
    from clgemm.tuning import command as tuner

    parser = argparse.ArgumentParser(prog="python -m clgemm", description=__doc__)
    parser.add_argument("--version", action="version", version=f"clgemm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "info", help="versions, settings, OpenCL devices, the chosen device, records and folders"
    ).set_defaults(run=_info)
    race = commands.add_parser("bench", help="compare with NumPy's BLAS, CLBlast and cuBLAS")
    bench.add_arguments(race)
    race.set_defaults(run=bench.main)
    best = commands.add_parser("tune", help="find, validate and store the fastest configs")
    tuner.add_arguments(best)
    best.set_defaults(run=tuner.main)
    climb = commands.add_parser("ladder", help="check and time kernels from naive to tuned")
    ladder.add_arguments(climb)
    climb.set_defaults(run=ladder.main)
    args = parser.parse_args(arguments)
    try:
        require_settings()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return int(args.run(args))


def _info(_: argparse.Namespace) -> int:
    from clgemm import devices, show_config

    show_config()
    return 0 if devices() else 1


if __name__ == "__main__":
    sys.exit(main())
