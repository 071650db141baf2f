"""The command line: ``clgemm info | warmup | bench | tune | verify | ladder``.

``python -m clgemm`` is the same.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code."""
    from clgemm import __version__
    from clgemm.core.settings import require_settings

    parser = argparse.ArgumentParser(prog="python -m clgemm", description=__doc__)
    parser.add_argument("--version", action="version", version=f"clgemm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    given = list(sys.argv[1:] if arguments is None else arguments)
    for name, (place, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if not given or name in given or given[0].startswith("-"):
            module = importlib.import_module(place)
            module.add_arguments(command)
            command.set_defaults(run=module.main)
    args = parser.parse_args(given)
    try:
        require_settings()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return int(args.run(args))


# Each command's module, which has `add_arguments` and `main`, and what the command does.
COMMANDS = {
    "info": (
        "clgemm.info",
        "versions, settings, OpenCL devices, the chosen device, records and folders",
    ),
    "warmup": ("clgemm.trials.warm", "check, build and measure now, not beside the first products"),
    "bench": ("clgemm.bench.command", "compare with NumPy's BLAS, CLBlast and cuBLAS"),
    "tune": ("clgemm.tuning.command", "find, validate and store the fastest configs"),
    "verify": ("clgemm.verify", "check every kernel family on a device"),
    "ladder": ("clgemm.ladder.command", "check and time kernels from naive to tuned"),
}


def run() -> int:
    """Run a command; if its output cannot be written, say so without a traceback."""
    try:
        code = main()
        sys.stdout.flush()
        return code
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC) or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes there
        if error.errno == errno.ENOSPC:
            print(f"the output is not complete: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run())
