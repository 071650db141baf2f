"""The command line: ``python -m clgemm info``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from clgemm import show_config


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m clgemm", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, OpenCL devices, the chosen one and why, caches")
    parser.parse_args(arguments)
    show_config()
    return 0


if __name__ == "__main__":
    sys.exit(main())
